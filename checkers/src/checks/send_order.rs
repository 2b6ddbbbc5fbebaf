//! `int-send-skip` and `int-nonmonotonic-send`: consecutive sends to a key inside one operation.
//! `nonmonotonic-send`: a process's successive operations.
//!
//! Transactions of others interleave, so skips inside an operation are normal: told, and allowed.

use history::Sent;
use rustc_hash::FxHashMap;

use crate::findings::Findings;
use crate::order::KeyOrder;
use crate::verdict::{Example, Validity};

pub(crate) const INT_SKIP: &str = "int-send-skip";
pub(crate) const INT_BACK: &str = "int-nonmonotonic-send";
pub(crate) const BACK: &str = "nonmonotonic-send";

pub(super) fn check(order: &KeyOrder<'_>, findings: &mut Findings) {
    let sends = &order.log.sends;
    let mut last: FxHashMap<u32, (usize, u32)> = FxHashMap::default();
    for (place, sent) in sends.iter().enumerate() {
        let Some(rank) = order.landed(place) else {
            continue;
        };
        let process = order.history.op(sent.op).process;
        let Some((before, from)) = last.insert(process, (place, rank)) else {
            continue;
        };
        let before = &sends[before];
        let step = [(before, from), (sent, rank)];
        match (before.op == sent.op, rank <= from) {
            (true, true) => {
                findings.add(INT_BACK, Validity::False, || example(order, step));
            }
            (true, false) if rank - from > 1 => {
                findings.add(INT_SKIP, Validity::True, || example(order, step));
            }
            (false, true) => findings.add(BACK, Validity::False, || example(order, step)),
            _ => {}
        }
    }
}

fn example(order: &KeyOrder<'_>, step: [(&Sent, u32); 2]) -> Example {
    let [first, second] = step.map(|(sent, rank)| {
        let op = order.history.op(sent.op);
        let offset = order.offset(rank);
        format!("{} to offset {offset} (invoked at index {})", sent.value, op.invoked)
    });
    let [(_, from), (_, to)] = step;
    let verdict = if to <= from {
        "which is not further".to_owned()
    } else {
        format!("over {} records of others; allowed, as transactions interleave", to - from - 1)
    };
    let text = format!("{}: one process sent {first} and next {second}, {verdict}.", order.name());
    let lines = step.iter().flat_map(|(sent, rank)| {
        let op = order.history.op(sent.op);
        let value = order.value_id(sent.value);
        // Where the send itself does not tell its place, a poll does.
        let seen = value.and_then(|value| order.sighting(*rank, value));
        [Some(op.invoked), Some(op.completed), seen.filter(|_| sent.offset().is_none())]
    });
    Example::new(order.name(), text)
        .offsets(step.map(|(_, rank)| order.offset(rank)))
        .values(step.map(|(sent, _)| sent.value))
        .lines(lines.flatten())
}
