//! `duplicate`: one value at two or more offsets of a key.

use crate::findings::Findings;
use crate::order::{KeyOrder, ValueId};
use crate::verdict::{Example, Validity};

pub(crate) const NAME: &str = "duplicate";

pub(super) fn check(order: &KeyOrder<'_>, findings: &mut Findings) {
    for value in order.value_ids() {
        if order.span(value).is_some_and(|(first, last)| first < last) {
            findings.add(NAME, Validity::False, || example(order, value));
        }
    }
}

fn example(order: &KeyOrder<'_>, value: ValueId) -> Example {
    let (first, last) = order.span(value).unwrap_or_default();
    let places: Vec<(i64, u32)> = (first..=last)
        .filter(|rank| {
            let others = order.conflicts.get(rank);
            order.at(*rank) == value || others.is_some_and(|all| all.contains(&value))
        })
        .filter_map(|rank| Some((order.offset(rank), order.sighting(rank, value)?)))
        .collect();
    let told: Vec<String> =
        places.iter().map(|(offset, line)| format!("{offset} (index {line})")).collect();
    let number = order.value(value);
    let text = format!(
        "{}: {number} was sent once and stands at several offsets: {}.",
        order.name(),
        told.join(", ")
    );
    Example::new(order.name(), text)
        .offsets(places.iter().map(|(offset, _)| *offset))
        .values([number])
        .lines(places.iter().map(|(_, line)| *line))
}
