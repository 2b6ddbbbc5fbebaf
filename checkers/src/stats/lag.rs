//! `realtime-lag`: how stale the stalest ok poll was, at least.
//!
//! A process that has read up to offset o is behind once a record beyond o is known. At a poll
//! that is invoked later than that, it has been behind for at least the time between. Time
//! before the process was told where to read does not count: someone who reads a key from its
//! beginning is not late for what was written before. Where a process stands that neither sought
//! the beginning nor read anything yet, nobody knows, and it is not measured.

use history::{Change, History, NameId, OpId, Outcome, Setup};
use rustc_hash::FxHashMap;

use super::RealtimeLag;
use crate::order::KeyOrder;

/// When it became known that a key reaches to `offset`.
#[derive(Clone, Copy)]
struct Reach {
    offset: i64,
    /// Index of the completion that showed it.
    line: u32,
    time_ns: u64,
}

/// How far a key was known to reach: each step further, in order.
struct Known(Vec<Reach>);

impl Known {
    fn new(order: &KeyOrder<'_>) -> Self {
        let history = order.history;
        let sends = order.log.sends.iter();
        let sent = sends.filter(|sent| history.op(sent.op).outcome == Outcome::Ok);
        let sent = sent.filter_map(|sent| Some((sent.op, sent.offset()?)));
        let polled = order
            .log
            .batches
            .iter()
            .filter_map(|batch| Some((batch.op, order.offset(order.highest(batch)?))));
        let mut sent = sent.peekable();
        let mut polled = polled.peekable();
        let mut reaches: Vec<Reach> = Vec::new();
        loop {
            // Both lie in the order of completion.
            let sent_first = match (sent.peek(), polled.peek()) {
                (Some((sent, _)), Some((polled, _))) => sent <= polled,
                (sent, _) => sent.is_some(),
            };
            let next = if sent_first { sent.next() } else { polled.next() };
            let Some((op, offset)) = next else {
                return Self(reaches);
            };
            if reaches.last().is_none_or(|last| offset > last.offset) {
                let op = history.op(op);
                reaches.push(Reach { offset, line: op.completed, time_ns: op.completed_ns });
            }
        }
    }

    /// The place of what showed first that the key reaches beyond `offset`. `near` is a place
    /// before it, or not far behind it.
    fn beyond(&self, offset: i64, near: usize) -> usize {
        let passed = |place: usize| self.0.get(place).is_some_and(|reach| reach.offset <= offset);
        if near > 0 && !passed(near - 1) {
            return self.0.partition_point(|reach| reach.offset <= offset);
        }
        // Readers move on by little steps.
        let mut place = near;
        while passed(place) {
            place += 1;
        }
        place
    }
}

/// An ok poll, with what is asked of it for every key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Poll {
    op: OpId,
    /// Index and time of its invocation.
    invoked: u32,
    invoked_ns: u64,
}

/// The ok polls of each process, in order.
pub(super) type PollsByProcess = FxHashMap<u32, Vec<Poll>>;

pub(super) fn ok_polls(history: &History) -> PollsByProcess {
    let polls = [history.functions.find("poll"), history.functions.find("txn")];
    let mut by_process = PollsByProcess::default();
    for (number, op) in (0..).zip(&history.operations) {
        if op.outcome == Outcome::Ok && polls.contains(&Some(op.function)) {
            by_process.entry(op.process).or_default().push(Poll {
                op: number,
                invoked: op.invoked,
                invoked_ns: op.invoked_ns,
            });
        }
    }
    by_process
}

/// The greatest lag of one key.
pub(super) fn lag(order: &KeyOrder<'_>, polls: &PollsByProcess) -> Option<RealtimeLag> {
    let known = Known::new(order);
    let mut batches: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for (place, batch) in (0..).zip(&order.log.batches) {
        let process = order.batch_op(batch).process;
        batches.entry(process).or_default().push(place);
    }
    let mut worst: Option<(u64, Reach, OpId)> = None;
    for (process, polls) in polls {
        let setups = order.history.setups.get(process).map_or(&[][..], Vec::as_slice);
        let mut reader = Reader {
            order,
            known: &known,
            place: None,
            next: 0,
            setups,
            batches: batches.get(process).map_or(&[], Vec::as_slice),
        };
        for poll in polls {
            let here = reader.poll(*poll);
            let later = |(lag, _, poll): &(u64, Reach, OpId)| (*lag, std::cmp::Reverse(*poll));
            if here.as_ref().map(later) > worst.as_ref().map(later) {
                worst = here;
            }
        }
    }
    worst.map(|(lag_ns, reach, poll)| tell(order, lag_ns, reach, poll))
}

/// Where one process reads.
struct Reader<'a, 'h> {
    order: &'a KeyOrder<'h>,
    known: &'a Known,
    /// Up to which offset, and since when it could be expected to follow.
    place: Option<(i64, u64)>,
    /// The place of the last reach beyond that.
    next: usize,
    setups: &'a [Setup],
    batches: &'a [u32],
}

impl Reader<'_, '_> {
    /// How far behind it was at this poll, the next of its process.
    fn poll(&mut self, poll: Poll) -> Option<(u64, Reach, OpId)> {
        while let Some((setup, ahead)) = self.setups.split_first()
            && setup.op <= poll.op
        {
            self.setups = ahead;
            self.set_up(setup);
        }
        while let Some((place, ahead)) = self.batches.split_first()
            && let batch = &self.order.log.batches[*place as usize]
            && batch.op <= poll.op
        {
            self.batches = ahead;
            if batch.op == poll.op
                && let Some(highest) = self.order.highest(batch)
            {
                let last = self.order.offset(highest);
                let (offset, since) = self.place.unwrap_or((last, poll.invoked_ns));
                self.place = Some((offset.max(last), since));
            }
        }
        let (offset, since_ns) = self.place?;
        self.next = self.known.beyond(offset, self.next);
        let reach = *self.known.0.get(self.next)?;
        let behind_since = reach.time_ns.max(since_ns);
        let lag_ns = poll.invoked_ns.saturating_sub(behind_since);
        (lag_ns > 0 && reach.line < poll.invoked).then_some((lag_ns, reach, poll.op))
    }

    fn set_up(&mut self, setup: &Setup) {
        let key: NameId = self.order.id();
        let done_ns = self.order.history.op(setup.op).completed_ns;
        match &setup.change {
            Change::Assign { keys, seek_to_beginning } => {
                let assigned = keys.binary_search(&key).is_ok();
                if !assigned {
                    self.place = None;
                } else if *seek_to_beginning {
                    self.place = Some((-1, done_ns));
                }
            }
            Change::Rebalance { keys } if keys.binary_search(&key).is_err() => {}
            Change::Subscribe { .. } | Change::Crash | Change::Rebalance { .. } => {
                self.place = None;
            }
        }
    }
}

fn tell(order: &KeyOrder<'_>, lag_ns: u64, reach: Reach, poll: OpId) -> RealtimeLag {
    let op = order.history.op(poll);
    let milliseconds = lag_ns as f64 / 1e6;
    RealtimeLag {
        max_ns: lag_ns,
        key: order.name().to_owned(),
        time_ns: op.invoked_ns,
        ops: vec![reach.line.into(), op.invoked.into(), op.completed.into()],
        text: format!(
            "{}: the poll at index {} was at least {milliseconds:.1} ms stale: that the key reached \
             to offset {} had been known since index {}.",
            order.name(),
            op.invoked,
            reach.offset,
            reach.line
        ),
    }
}
