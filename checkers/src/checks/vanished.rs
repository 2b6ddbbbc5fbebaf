//! `read-uncommitted-hw`, as clients alone can see it: a record was delivered and later was gone.
//!
//! A value v at offset o was in an ok poll. After that a process began to read the key from its
//! beginning, by an assign that was invoked later. It returned w, whose send was invoked after
//! that first poll had completed, so w must stand behind v. And it did not return v, although it
//! began at o or before. What lies before the first record that it returned is exempt: retention
//! may have removed it. So are values of transactions that were not acknowledged: a reader of
//! uncommitted records may see what a reader of committed ones rightly does not.

use std::collections::BTreeMap;

use history::{NEVER, Outcome};

use crate::findings::Findings;
use crate::order::{KeyOrder, Record, ValueId};
use crate::passes::{Pass, Start};
use crate::verdict::{Example, Validity};

pub(crate) const NAME: &str = "read-uncommitted-hw";

/// When records were first delivered, as indices of completions.
struct Delivered {
    /// By rank, of the value that stands there.
    at: Vec<u32>,
    /// By rank: the earliest of those from there on.
    from: Vec<u32>,
    /// Of further values, where one rank has several.
    others: BTreeMap<Record, u32>,
}

impl Delivered {
    fn new(order: &KeyOrder<'_>) -> Self {
        let mut at = vec![NEVER; order.ranks() as usize];
        let mut others = BTreeMap::new();
        for batch in &order.log.batches {
            let op = order.batch_op(batch);
            if op.outcome != Outcome::Ok {
                continue;
            }
            for record in order.records(batch) {
                let first = if order.at(record.rank) == record.value {
                    &mut at[record.rank as usize]
                } else {
                    others.entry(*record).or_insert(NEVER)
                };
                *first = (*first).min(op.completed);
            }
        }
        let mut from = at.clone();
        for rank in (1..from.len()).rev() {
            from[rank - 1] = from[rank - 1].min(from[rank]);
        }
        Self { at, from, others }
    }
}

pub(super) fn check(order: &KeyOrder<'_>, findings: &mut Findings) {
    let delivered = Delivered::new(order);
    // A record that several passes miss is one finding.
    let mut gone: BTreeMap<Record, (u32, &Pass)> = BTreeMap::new();
    for pass in order.passes() {
        let Start::Beginning(assign) = pass.start else {
            continue;
        };
        let limit = order.history.op(assign).invoked.min(pass.newest);
        for (record, line) in missing(order, pass, &delivered, limit) {
            if !is_uncommitted(order, record.value) {
                gone.entry(record).or_insert((line, pass));
            }
        }
    }
    for (record, (line, pass)) in gone {
        findings.add(NAME, Validity::False, || example(order, record, line, pass));
    }
}

/// What was first delivered before `limit` and is not in `pass`, though it should.
fn missing(
    order: &KeyOrder<'_>,
    pass: &Pass,
    delivered: &Delivered,
    limit: u32,
) -> Vec<(Record, u32)> {
    let mut missing = Vec::new();
    if delivered.from.get(pass.first as usize).is_none_or(|line| *line >= limit)
        && delivered.others.is_empty()
    {
        return missing;
    }
    let mut read: Vec<Record> = pass.records(order).collect();
    read.sort_unstable();
    let mut next = read.iter().peekable();
    let mut rank = pass.first;
    while let Some(earliest) = delivered.from.get(rank as usize)
        // Behind the pass's last record nothing is left to compare; stop where nothing was
        // delivered in time.
        && (next.peek().is_some() || *earliest < limit)
    {
        let value = order.at(rank);
        let mut found = false;
        while let Some(record) = next.next_if(|record| record.rank <= rank) {
            found |= record.rank == rank && record.value == value;
        }
        let line = delivered.at[rank as usize];
        if !found && line < limit {
            missing.push((Record { rank, value }, line));
        }
        rank += 1;
    }
    for (record, line) in &delivered.others {
        if record.rank >= pass.first && *line < limit && read.binary_search(record).is_err() {
            missing.push((*record, *line));
        }
    }
    missing
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
