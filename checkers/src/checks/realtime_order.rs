//! `realtime-order`: A was acknowledged before B to the same key was invoked, and yet A stands
//! behind B.

use history::Outcome;

use crate::findings::Findings;
use crate::order::KeyOrder;
use crate::verdict::{Example, Validity};

pub(crate) const NAME: &str = "realtime-order";

/// A send whose place is known.
#[derive(Clone, Copy)]
struct Placed {
    /// Place in the log's sends.
    send: usize,
    rank: u32,
    invoked: u32,
    completed: u32,
}

pub(super) fn check(order: &KeyOrder<'_>, findings: &mut Findings) {
    let mut acknowledged: Vec<Placed> = Vec::new();
    let mut all: Vec<Placed> = Vec::new();
    for (send, sent) in order.log.sends.iter().enumerate() {
        let Some(rank) = order.landed(send) else {
            continue;
        };
        let op = order.history.op(sent.op);
        let placed = Placed { send, rank, invoked: op.invoked, completed: op.completed };
        // Sends lie in the order of their completion.
        if op.outcome == Outcome::Ok {
            acknowledged.push(placed);
        }
        all.push(placed);
    }
    all.sort_by_key(|placed| placed.invoked);
    let mut earlier = acknowledged.iter().peekable();
    let mut furthest: Option<Placed> = None;
    for placed in all {
        while let Some(done) = earlier.next_if(|done| done.completed < placed.invoked) {
            if furthest.is_none_or(|furthest| done.rank > furthest.rank) {
                furthest = Some(*done);
            }
        }
        if let Some(before) = furthest
            && before.rank > placed.rank
        {
            findings.add(NAME, Validity::False, || example(order, before, placed));
        }
    }
}

fn example(order: &KeyOrder<'_>, before: Placed, after: Placed) -> Example {
    let value = |placed: Placed| order.log.sends[placed.send].value;
    let text = format!(
        "{}: {} was acknowledged at offset {} (index {}) before {} was sent (index {}), which \
         stands before it, at offset {}.",
        order.name(),
        value(before),
        order.offset(before.rank),
        before.completed,
        value(after),
        after.invoked,
        order.offset(after.rank),
    );
    let both = [before, after];
    let seen = both.iter().filter_map(|placed| {
        let sent = &order.log.sends[placed.send];
        let hidden = sent.offset().is_none();
        let value = order.value_id(sent.value).filter(|_| hidden)?;
        order.sighting(placed.rank, value)
    });
    Example::new(order.name(), text)
        .offsets(both.map(|placed| order.offset(placed.rank)))
        .values(both.map(value))
        .lines(both.iter().flat_map(|placed| [placed.invoked, placed.completed]))
        .lines(seen)
}
