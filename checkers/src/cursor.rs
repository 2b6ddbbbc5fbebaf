//! Where each process reads on in a key, and what makes it read elsewhere.

use history::{Batch, Change, History, NameId, OpId, Setup};
use rustc_hash::FxHashMap;

/// How a process came to where it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It never said. Such a process is taken to read from the beginning, as in histories that
    /// record sends and polls alone.
    Unsaid,
    /// It chose its keys.
    Assigned,
    /// Its group chooses them.
    Subscribed,
}

/// What happened to a process's place in a key since its last poll of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Since {
    /// It reads on from where it was.
    pub(crate) goes_on: bool,
    /// It was told to read from the beginning, by this operation.
    pub(crate) sought: Option<OpId>,
    /// The group took the key from it or gave it to it, before this poll or in it.
    pub(crate) rebalanced: bool,
    /// The same, in this poll: before or after the records, nobody can tell.
    pub(crate) rebalanced_now: bool,
    /// How it came to the key.
    pub(crate) mode: Mode,
}

#[derive(Debug)]
struct Place<'a> {
    /// Changes that have not been looked at.
    ahead: &'a [Setup],
    mode: Mode,
    /// It was rebalanced in the last poll.
    unsure: bool,
}

/// Follows all processes through the polls of one key.
#[derive(Debug)]
pub(crate) struct Cursors<'a> {
    history: &'a History,
    key: NameId,
    places: FxHashMap<u32, Place<'a>>,
}

impl<'a> Cursors<'a> {
    pub(crate) fn new(history: &'a History, key: NameId) -> Self {
        Self { history, key, places: FxHashMap::default() }
    }

    /// Moves on to `batch`, of an ok poll; batches come in their order.
    pub(crate) fn advance(&mut self, batch: &Batch) -> Since {
        let process = self.history.op(batch.op).process;
        let place = self.places.entry(process).or_insert_with(|| Place {
            ahead: self.history.setups.get(&process).map_or(&[], Vec::as_slice),
            mode: Mode::Unsaid,
            unsure: false,
        });
        let mut since = Since {
            goes_on: true,
            sought: None,
            rebalanced: place.unsure,
            rebalanced_now: false,
            mode: place.mode,
        };
        while let Some((setup, ahead)) = place.ahead.split_first()
            && setup.op <= batch.op
        {
            place.ahead = ahead;
            apply(setup, self.key, batch.op, &mut since);
        }
        place.mode = since.mode;
        place.unsure = since.rebalanced_now;
        since
    }
}

fn apply(setup: &Setup, key: NameId, poll: OpId, since: &mut Since) {
    let elsewhere = |since: &mut Since, sought: bool| {
        since.goes_on = false;
        since.rebalanced = false;
        since.sought = sought.then_some(setup.op);
    };
    match &setup.change {
        Change::Assign { keys, seek_to_beginning } => {
            since.mode = Mode::Assigned;
            let assigned = keys.binary_search(&key).is_ok();
            if *seek_to_beginning || !assigned {
                elsewhere(since, *seek_to_beginning && assigned);
            }
        }
        Change::Subscribe { seek_to_beginning } => {
            since.mode = Mode::Subscribed;
            elsewhere(since, *seek_to_beginning);
        }
        Change::Crash => elsewhere(since, false),
        Change::Rebalance { keys } => {
            if keys.binary_search(&key).is_ok() {
                since.rebalanced = true;
                since.rebalanced_now |= setup.op == poll;
            }
        }
    }
}
