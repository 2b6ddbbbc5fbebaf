//! `inconsistent-offsets`: two or more distinct values at one offset of a key.

use crate::findings::Findings;
use crate::order::KeyOrder;
use crate::verdict::{Example, Validity};

pub(crate) const NAME: &str = "inconsistent-offsets";

pub(super) fn check(order: &KeyOrder<'_>, findings: &mut Findings) {
    for (rank, values) in &order.conflicts {
        findings.add(NAME, Validity::False, || {
            let offset = order.offset(*rank);
            let seen: Vec<(i64, u32)> = values
                .iter()
                .filter_map(|value| {
                    let line = order.sighting(*rank, *value)?;
                    Some((order.value(*value), line))
                })
                .collect();
            let told: Vec<String> =
                seen.iter().map(|(value, line)| format!("{value} (index {line})")).collect();
            let text = format!(
                "{}: offset {offset} held different values: {}.",
                order.name(),
                told.join(", ")
            );
            Example::new(order.name(), text)
                .offsets([offset])
                .values(seen.iter().map(|(value, _)| *value))
                .lines(seen.iter().map(|(_, line)| *line))
        });
    }
}
