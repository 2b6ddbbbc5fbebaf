//! `leaderless`, `stuck-replica` and `stuck-hw`: what had not recovered, long after the last
//! fault was healed. The observer looked, and recorded what it saw as an event `recovery`.

use history::{History, Note};
use serde_json::Value as Json;

use super::replica_state::ISR_INVALID;
use crate::findings::Findings;
use crate::order::Orders;
use crate::verdict::{Example, Validity};

pub(crate) const LEADERLESS: &str = "leaderless";
pub(crate) const STUCK_REPLICA: &str = "stuck-replica";
pub(crate) const STUCK_HW: &str = "stuck-hw";

pub(super) fn check(_: &Orders<'_>, history: &History, findings: &mut Findings) {
    // What a scenario says that the cluster owes, it owes at that moment.
    let promised = |note: &&Note| note.value.get("expected") == Some(&Json::Bool(true));
    for note in history.recovery.iter().filter(promised) {
        missing(note, "where the scenario expects otherwise", findings);
    }
    // Otherwise the last look counts: an earlier one may have come before the end of the deadline.
    let Some(note) = history.recovery.last().filter(|note| !promised(note)) else {
        return;
    };
    missing(note, "without any fault", findings);
    for node in keys(note, "silent") {
        findings.reasons.push(format!(
            "{node} did not answer when the cluster should have recovered (index {})",
            note.index
        ));
    }
    findings.reasons.extend(behind(note));
}

fn missing(note: &Note, when: &str, findings: &mut Findings) {
    for key in keys(note, LEADERLESS) {
        let text = "had no leader".to_owned();
        found(note, LEADERLESS, key, &text, when, findings);
    }
    for key in keys(note, STUCK_HW) {
        let text = "did not answer a write that all in-sync replicas must have".to_owned();
        found(note, STUCK_HW, key, &text, when, findings);
    }
    for (anomaly, what) in [
        (STUCK_REPLICA, "lacked live replicas in its ISR"),
        (ISR_INVALID, "had replicas in its ISR that must not be there"),
    ] {
        let Some(Json::Object(replicas)) = note.value.get(anomaly) else { continue };
        for (key, nodes) in replicas {
            let names: Vec<&str> = list(nodes).filter_map(Json::as_str).collect();
            let text = format!("{what}: {}", names.join(", "));
            found(note, anomaly, key, &text, when, findings);
        }
    }
}

/// A broker that answers, but from an old view of the cluster, has not recovered either. No anomaly
/// has a name for that, so the verdict is unknown.
fn behind(note: &Note) -> impl Iterator<Item = String> + '_ {
    keys(note, "behind").map(|node| {
        let index = note.index;
        format!(
            "{node} had not seen the cluster's newest state when it should have (index {index})"
        )
    })
}

fn list(json: &Json) -> impl Iterator<Item = &Json> {
    json.as_array().into_iter().flatten()
}

/// The names in a field: of a list, or of an object by which more is told of each.
fn keys<'a>(note: &'a Note, field: &str) -> impl Iterator<Item = &'a str> {
    let json = note.value.get(field);
    let listed = json.into_iter().flat_map(list).filter_map(Json::as_str);
    let named = json.and_then(Json::as_object).into_iter().flat_map(|map| map.keys());
    listed.chain(named.map(String::as_str))
}

fn found(
    note: &Note,
    anomaly: &'static str,
    key: &str,
    text: &str,
    when: &str,
    findings: &mut Findings,
) {
    findings.add(anomaly, Validity::False, || {
        let waited = note.value.get("waited_ms").and_then(Json::as_u64);
        let waited = waited.map_or_else(String::new, |ms| format!(" after {ms} ms"));
        let index = note.index;
        let text = format!("{key}: {text}{waited} {when} (index {index}).");
        let mut example = Example::new(key, text);
        example.ops.push(index);
        example
    });
}
