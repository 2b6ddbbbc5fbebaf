//! `torn-txn`: a part of a transaction's writes is visible, another part never, although the
//! other part's key was read from its beginning, after the transaction had ended, up to a value
//! that was sent after that end. A reader of committed records cannot pass an undecided
//! transaction, so by then it was decided.

use std::collections::BTreeMap;

use history::{History, NEVER, OpId, Outcome};

use crate::findings::Findings;
use crate::order::{KeyOrder, Orders, ValueId};
use crate::passes::{Pass, Start};
use crate::verdict::{Example, Validity};

pub(crate) const NAME: &str = "torn-txn";

type Write<'a, 'h> = (&'a KeyOrder<'h>, ValueId);

pub(super) fn check(orders: &Orders<'_>, _: &History, findings: &mut Findings) {
    let mut writes: BTreeMap<OpId, Vec<Write<'_, '_>>> = BTreeMap::new();
    for order in &orders.keys {
        for sent in &order.log.sends {
            if orders.seen_txns.contains(&sent.op)
                && let Some(value) = order.value_id(sent.value)
            {
                writes.entry(sent.op).or_default().push((order, value));
            }
        }
    }
    for (op, writes) in writes {
        let (seen, unseen): (Vec<_>, Vec<_>) =
            writes.into_iter().partition(|(order, value)| order.is_read(*value));
        let torn = unseen
            .iter()
            .find_map(|(order, value)| Some((*order, *value, complete_pass(order, op)?)));
        if let (Some(seen), Some(torn)) = (seen.first(), torn) {
            findings.add(NAME, Validity::False, || example(op, *seen, torn));
        }
    }
}

/// A read of the whole key that began after `op` had ended, and went on beyond that.
fn complete_pass<'a>(order: &'a KeyOrder<'_>, op: OpId) -> Option<&'a Pass> {
    let op = order.history.op(op);
    if op.completed == NEVER || op.outcome == Outcome::Fail {
        return None;
    }
    order.passes().iter().find(|pass| match pass.start {
        Start::Beginning(assign) => {
            order.history.op(assign).invoked > op.completed && pass.newest > op.completed
        }
        Start::Unsaid | Start::Somewhere => false,
    })
}

fn example(
    op: OpId,
    (seen, there): Write<'_, '_>,
    (order, value, pass): (&KeyOrder<'_>, ValueId, &Pass),
) -> Example {
    let op = order.history.op(op);
    let sighted = seen.reader(there).map_or(0, |batch| seen.batch_op(batch).completed);
    let last = pass.batch_of(order, pass.newest_value);
    let last = last.map_or(0, |batch| order.batch_op(batch).completed);
    let (visible, missing) = (seen.value(there), order.value(value));
    let newest = order.value(pass.newest_value);
    let text = format!(
        "{}: of one transaction (index {}), {visible} to {} was read (index {sighted}), but \
         {missing} to {} never, although that key was read from its beginning up to {newest} \
         (index {last}).",
        order.name(),
        op.completed,
        seen.name(),
        order.name(),
    );
    Example::new(order.name(), text).values([visible, missing]).lines([
        op.invoked,
        op.completed,
        sighted,
        last,
    ])
}
