//! `hw-violation` and `unchecked-fetch`: what leaders served to a raw consumer.
//!
//! A leader may look at its high watermark a moment before it reads the records, and the two then
//! stand in one answer although the high watermark has risen in between (stock Kafka does so). Within
//! one (node, leader epoch) it only rises (R18): so what a later answer says is no less than what was
//! in force when the records were read, and only records at or above that are a violation.

use std::collections::BTreeMap;

use history::{Fetched, History, NameId, SERVED};

use crate::findings::Findings;
use crate::order::Orders;
use crate::verdict::{Example, Validity};

pub(crate) const HW_VIOLATION: &str = "hw-violation";
pub(crate) const UNCHECKED_FETCH: &str = "unchecked-fetch";

pub(super) fn check(_: &Orders<'_>, history: &History, findings: &mut Findings) {
    let mut by_term: BTreeMap<(NameId, NameId, i32), Vec<&Fetched>> = BTreeMap::new();
    for fetched in &history.fetches {
        edges(history, fetched, findings);
        let term = (fetched.key, fetched.node, fetched.value.leader_epoch);
        by_term.entry(term).or_default().push(fetched);
    }
    for fetches in by_term.values() {
        for (at, fetched) in fetches.iter().enumerate() {
            let later = fetches[at + 1..].iter();
            let mut later = later.filter(|later| later.value.asked_ns >= fetched.answered_ns);
            if let Some(later) = later.next() {
                above(history, fetched, later, findings);
            }
        }
    }
}

/// Records, or a last stable offset, above the high watermark.
fn above(history: &History, fetched: &Fetched, later: &Fetched, findings: &mut Findings) {
    let value = &fetched.value;
    let high_watermark = value.high_watermark.max(later.value.high_watermark);
    let node = &value.node;
    let text = if let Some(batch) = value.batches.iter().find(|one| one.first >= high_watermark) {
        format!(
            "{node} served the records {} to {} with the high watermark {}, which was {} after that",
            batch.first, batch.last, value.high_watermark, later.value.high_watermark
        )
    } else if value.last_stable > high_watermark {
        format!(
            "{node} told {} for the last stable offset and {} for the high watermark, which was {} \
             after that",
            value.last_stable, value.high_watermark, later.value.high_watermark
        )
    } else {
        return;
    };
    found(history, HW_VIOLATION, &[fetched, later], &text, findings);
}

/// What no leader serves: a fetch in another epoch than its own (R31), or one far beyond its log. Which
/// error it gives is its own affair: it may have ceased to lead.
fn edges(history: &History, fetched: &Fetched, findings: &mut Findings) {
    let value = &fetched.value;
    let asked = [
        (&value.edges.older_epoch, "the leader epoch before its own"),
        (&value.edges.newer_epoch, "a leader epoch that is still to come"),
        (&value.edges.beyond_end, "an offset far beyond its log's end"),
    ];
    for (answer, what) in asked {
        if answer.as_deref() == Some(SERVED) {
            let text = format!(
                "{}, in leader epoch {}, served a fetch that named {what}",
                value.node, value.leader_epoch
            );
            found(history, UNCHECKED_FETCH, &[fetched], &text, findings);
        }
    }
}

fn found(
    history: &History,
    anomaly: &'static str,
    fetches: &[&Fetched],
    text: &str,
    findings: &mut Findings,
) {
    let Some(first) = fetches.first() else { return };
    findings.add(anomaly, Validity::False, || {
        let key = history.probed.get(first.key);
        let mut example = Example::new(key, format!("{key}: {text}."));
        example.ops = fetches.iter().map(|fetched| fetched.index).collect();
        example
    });
}
