//! `isr-thrash`: a leader whose proposal for an ISR was refused for good sends it again, word for word,
//! instead of waiting for metadata that say why (R14). Seen where the refusal was the nemesis's.

use history::{History, Note};
use serde_json::Value;

use crate::findings::Findings;
use crate::order::Orders;
use crate::verdict::{Example, Validity};

pub(crate) const ISR_THRASH: &str = "isr-thrash";

/// After these a leader asks no more (R14).
const FOR_GOOD: [&str; 3] = ["INVALID_UPDATE_VERSION", "FENCED_LEADER_EPOCH", "INVALID_REQUEST"];

pub(super) fn check(_: &Orders<'_>, history: &History, findings: &mut Findings) {
    for done in &history.nemesis {
        let Some(repeated) = repeated(done).filter(|repeated| *repeated > 0) else { continue };
        let Some(asked) = history.nemesis.iter().find(|note| refuses_for_good(note, done)) else {
            continue;
        };
        findings.add(ISR_THRASH, Validity::False, || {
            let told = asked.value["messages"].as_str().unwrap_or_default();
            let mut example = Example::new(
                "",
                format!(
                    "While the nemesis did `{told}`, requests that had been refused for good were \
                     sent again unchanged, {repeated} times."
                ),
            );
            example.ops = vec![asked.index, done.index];
            example
        });
    }
}

/// How often a refused request came again, where this is the end of a refusal.
fn repeated(note: &Note) -> Option<u64> {
    let ended = note.function == "let-through" && note.value["phase"] == "done";
    ended.then(|| note.value["evidence"]["relays"]["repeated"].as_u64())?
}

/// Is this the beginning of what ended as `done`?
fn refuses_for_good(note: &Note, done: &Note) -> bool {
    let Value::String(messages) = &note.value["messages"] else { return false };
    let refusal = messages.rsplit_once(" with ").map(|(_, refusal)| refusal);
    note.function == "intercept"
        && note.value["phase"] == "done"
        && note.value["id"] == done.value["id"]
        && refusal.is_some_and(|refusal| FOR_GOOD.contains(&refusal))
}
