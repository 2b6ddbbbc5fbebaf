//! `G1a`: an ok poll returned a value whose writer failed. `no-writer`: one that nobody sent.
//!
//! The second is not among the anomalies that make a verdict false: a topic that held records
//! before the history began looks the same as corruption. But nobody can call it valid.

use history::Outcome;

use crate::findings::Findings;
use crate::order::{KeyOrder, ValueId};
use crate::verdict::{Example, Validity};

pub(crate) const G1A: &str = "G1a";
pub(crate) const NO_WRITER: &str = "no-writer";

pub(super) fn check(order: &KeyOrder<'_>, findings: &mut Findings) {
    for value in order.value_ids().filter(|value| order.is_read(*value)) {
        match order.writer_op(value) {
            Some(op) if op.outcome == Outcome::Fail => {
                findings.add(G1A, Validity::False, || example(order, value));
            }
            Some(_) => {}
            None => findings.add(NO_WRITER, Validity::Unknown, || example(order, value)),
        }
    }
}

fn example(order: &KeyOrder<'_>, value: ValueId) -> Example {
    let number = order.value(value);
    let reader = order.reader(value).map(|batch| order.batch_op(batch));
    let line = reader.map(|op| op.completed);
    let offset = order.span(value).map(|(first, _)| order.offset(first));
    let writer = order.writer_op(value);
    let whence = match writer {
        Some(op) => format!("its send failed (index {})", op.completed),
        None => "nothing in this history sent it".to_owned(),
    };
    let text = format!(
        "{}: {number} was read at offset {} (index {}), although {whence}.",
        order.name(),
        offset.unwrap_or_default(),
        line.unwrap_or_default(),
    );
    Example::new(order.name(), text)
        .offsets(offset)
        .values([number])
        .lines(writer.into_iter().flat_map(|op| [op.invoked, op.completed]))
        .lines(line)
}
