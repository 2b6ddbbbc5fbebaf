//! `precommitted-read`: an operation polled a value that it itself sent, and so had not yet
//! committed.

use crate::findings::Findings;
use crate::order::KeyOrder;
use crate::verdict::{Example, Validity};

pub(crate) const NAME: &str = "precommitted-read";

pub(super) fn check(order: &KeyOrder<'_>, findings: &mut Findings) {
    for batch in &order.log.batches {
        let op = order.batch_op(batch);
        if op.sends == 0 {
            continue;
        }
        for record in order.log.ids(batch).map(|id| order.record(id)) {
            let own = order.writer(record.value).is_some_and(|sent| sent.op == batch.op);
            if !own {
                continue;
            }
            findings.add(NAME, Validity::False, || {
                let (offset, value) = (order.offset(record.rank), order.value(record.value));
                let text = format!(
                    "{}: the operation that completed at index {} polled {value} at offset \
                     {offset}, which it sent itself.",
                    order.name(),
                    op.completed
                );
                Example::new(order.name(), text)
                    .offsets([offset])
                    .values([value])
                    .lines([op.invoked, op.completed])
            });
        }
    }
}
