//! `read-uncommitted-hw`, as clients alone can see it: a record was delivered and later was gone.
//!
//! A value v at offset o was in an ok poll. After that a process began to read the key from its
//! beginning, by an assign that was invoked later. It returned w, whose send was invoked after
//! that first poll had completed, so w must stand behind v. And it did not return v, although it
//! began at o or before. What lies before the first record that it returned may have been removed by
//! retention, so it is not called gone; but it makes the verdict unknown. Exempt are values of transactions that were not acknowledged: a reader of
//! uncommitted records may see what a reader of committed ones rightly does not.

use std::collections::BTreeMap;

use history::{NEVER, Outcome, RecordId};

use crate::findings::Findings;
use crate::order::{KeyOrder, Record, ValueId};
use crate::passes::{Pass, Start};
use crate::verdict::{Example, Validity};

pub(crate) const NAME: &str = "read-uncommitted-hw";

/// Records in the order of their offsets, and when they were first delivered, as indices of
/// completions.
struct Delivered {
    /// Numbers of the records.
    ids: Vec<RecordId>,
    /// By place in `ids`.
    first: Vec<u32>,
    /// By place in `ids`: the earliest of those from there on.
    from: Vec<u32>,
}

impl Delivered {
    fn new(order: &KeyOrder<'_>) -> Self {
        let mut ids: Vec<RecordId> = order.record_ids().collect();
        // Mostly they are in order, and a stable sort finds that out.
        ids.sort_by_key(|id| order.record(*id));
        let line = |id: &RecordId| {
            let batch = order.first_read(*id);
            batch.map_or(NEVER, |batch| order.batch_op(batch).completed)
        };
        let first: Vec<u32> = ids.iter().map(line).collect();
        let mut from = first.clone();
        for place in (1..from.len()).rev() {
            from[place - 1] = from[place - 1].min(from[place]);
        }
        Self { ids, first, from }
    }
}

pub(super) fn check(order: &KeyOrder<'_>, findings: &mut Findings) {
    let delivered = Delivered::new(order);
    // A record that several passes miss is one finding.
    let mut gone: BTreeMap<Record, (u32, &Pass)> = BTreeMap::new();
    // By number of the record: the last pass that returned it, counted from 1.
    let mut returned = vec![0; order.record_ids().len()];
    for (number, pass) in (1..).zip(order.passes()) {
        let Start::Beginning(assign) = pass.start else {
            continue;
        };
        let mut end = pass.first;
        for id in pass.ids(order) {
            returned[id as usize] = number;
            end = end.max(order.record(id).rank);
        }
        let limit = order.history.op(assign).invoked.min(pass.newest);
        let begin = delivered.ids.partition_point(|id| order.record(*id).rank < pass.first);
        if delivered.first.iter().take(begin).any(|line| *line < limit) {
            findings.reasons.push(format!(
                "{}: a read from the beginning (index {}) began at offset {}, behind records that \
                 had been read before: retention took them, or the head of the log is lost",
                order.name(),
                order.history.op(assign).invoked,
                order.offset(pass.first)
            ));
        }
        for place in begin..delivered.ids.len() {
            let id = delivered.ids[place];
            let record = order.record(id);
            // Behind the end of the pass little is left, or nothing was delivered in time.
            if record.rank > end && delivered.from[place] >= limit {
                break;
            }
            let line = delivered.first[place];
            if line < limit
                && returned[id as usize] != number
                && !is_uncommitted(order, record.value)
            {
                gone.entry(record).or_insert((line, pass));
            }
        }
    }
    for (record, (line, pass)) in gone {
        findings.add(NAME, Validity::False, || example(order, record, line, pass));
    }
}

fn is_uncommitted(order: &KeyOrder<'_>, value: ValueId) -> bool {
    order.writer_op(value).is_some_and(|op| {
        op.outcome != Outcome::Ok && order.history.functions.get(op.function) == "txn"
    })
}

fn example(order: &KeyOrder<'_>, record: Record, line: u32, pass: &Pass) -> Example {
    let (offset, value) = (order.offset(record.rank), order.value(record.value));
    let newest = order.value(pass.newest_value);
    let sent = order.writer_op(pass.newest_value).map_or(0, |op| op.invoked);
    let assign = match pass.start {
        Start::Beginning(assign) => order.history.op(assign).invoked,
        Start::Unsaid | Start::Somewhere => NEVER,
    };
    let poll = pass.batch_of(order, pass.newest_value);
    let poll = poll.map_or(0, |batch| order.batch_op(batch).completed);
    let text = format!(
        "{}: {value} at offset {offset} was delivered (index {line}) and later gone: a read from \
         the beginning (index {assign}) did not return it, but did return {newest} (index \
         {poll}), which was sent after the delivery (index {sent}).",
        order.name()
    );
    Example::new(order.name(), text)
        .offsets([offset])
        .values([value, newest])
        .lines([line, assign, sent, poll])
}
