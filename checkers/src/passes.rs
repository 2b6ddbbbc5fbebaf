//! Passes: stretches in which one process read a key without a jump that it asked for.

use history::{Batch, OpId, Outcome, RecordId};
use rustc_hash::FxHashMap;

use crate::cursor::{Cursors, Mode, Since};
use crate::order::{KeyOrder, ValueId};

/// Where a pass began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// At the beginning of the key, as this operation asked.
    Beginning(OpId),
    /// Nothing was ever asked by this process: at the beginning, as far as the history tells.
    Unsaid,
    /// Where the process or its group stood, or at the end: the history does not tell.
    Somewhere,
}

/// A stretch of ok polls of one key by one process, between changes of what it reads.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    pub(crate) start: Start,
    /// The rank at which it began.
    pub(crate) first: u32,
    /// The greatest, over its values, of the value's earliest rank.
    pub(crate) bound: u32,
    /// The value that gives `bound`.
    pub(crate) bound_value: u32,
    /// The latest, over its values, of the index at which the value's send was invoked; 0 where
    /// no send of them is known.
    pub(crate) newest: u32,
    /// The value that gives `newest`.
    pub(crate) newest_value: u32,
    /// Places of its batches in the log.
    pub(crate) batches: Vec<u32>,
}

/// The passes of a key, in the order in which they began.
pub(crate) fn passes(order: &KeyOrder<'_>) -> Vec<Pass> {
    let mut passes: Vec<Pass> = Vec::new();
    let mut current: FxHashMap<u32, usize> = FxHashMap::default();
    let mut cursors = Cursors::new(order.history, order.id());
    for (place, batch) in (0..).zip(&order.log.batches) {
        let op = order.batch_op(batch);
        let Some(first) = order.first(batch) else {
            continue;
        };
        if op.outcome != Outcome::Ok {
            continue;
        }
        let since = cursors.advance(batch);
        let known = current.get(&op.process).copied();
        let pass = known.filter(|_| since.goes_on && !since.rebalanced).unwrap_or_else(|| {
            passes.push(Pass::new(start(&since), first.rank));
            passes.len() - 1
        });
        current.insert(op.process, pass);
        passes[pass].add(order, place, batch);
    }
    passes
}

fn start(since: &Since) -> Start {
    match (since.sought, since.mode) {
        _ if since.rebalanced => Start::Somewhere,
        (Some(op), _) => Start::Beginning(op),
        (None, Mode::Unsaid) => Start::Unsaid,
        (None, Mode::Assigned | Mode::Subscribed) => Start::Somewhere,
    }
}

impl Pass {
    const fn new(start: Start, first: u32) -> Self {
        Self {
            start,
            first,
            bound: 0,
            bound_value: 0,
            newest: 0,
            newest_value: 0,
            batches: Vec::new(),
        }
    }

    fn add(&mut self, order: &KeyOrder<'_>, place: u32, batch: &Batch) {
        self.batches.push(place);
        for id in order.log.ids(batch) {
            let (earliest, sent) = (order.earliest(id), order.sent(id));
            if earliest >= self.bound {
                self.bound = earliest;
                self.bound_value = order.record(id).value;
            }
            if sent > self.newest {
                self.newest = sent;
                self.newest_value = order.record(id).value;
            }
        }
    }

    /// The numbers of its records, in the order in which they came.
    pub(crate) fn ids<'a>(
        &'a self,
        order: &'a KeyOrder<'_>,
    ) -> impl Iterator<Item = RecordId> + 'a {
        let batches = self.batches.iter().map(|place| &order.log.batches[*place as usize]);
        batches.flat_map(|batch| order.log.ids(batch))
    }

    /// The first of its batches that returned `value`.
    pub(crate) fn batch_of<'a>(
        &self,
        order: &'a KeyOrder<'_>,
        value: ValueId,
    ) -> Option<&'a Batch> {
        let batches = self.batches.iter().map(|place| &order.log.batches[*place as usize]);
        let mut holding =
            batches.filter(|batch| order.log.ids(batch).any(|id| order.record(id).value == value));
        holding.next()
    }
}
