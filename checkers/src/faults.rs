//! When which fault was in force, as the nemesis's events tell.
//!
//! A fault takes two pairs of lines, all four with the same `id` in their value: the injection,
//! asked and done, and the heal, asked and done. Only a fault that was seen to hold makes a
//! window. In histories of others the nemesis's values may be anything: then there are none.

use std::collections::BTreeMap;

use history::{History, Note};
use serde_json::Value as Json;

/// A fault that was seen to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) id: u64,
    /// The injecting `f`.
    pub(crate) name: String,
    /// Whom it struck.
    pub(crate) target: Option<String>,
    /// Index and time of the line that says so.
    pub(crate) installed: (u64, u64),
    /// Index and time of the line that says how its heal ended.
    pub(crate) ended: Option<(u64, u64)>,
    /// Did that succeed?
    pub(crate) healed: bool,
}

/// The faults of a history, in the order in which they were installed.
pub(crate) fn faults(history: &History) -> Vec<Fault> {
    let mut faults: Vec<Fault> = Vec::new();
    let mut by_id: BTreeMap<u64, usize> = BTreeMap::new();
    let mut asked: BTreeMap<u64, &Note> = BTreeMap::new();
    for note in &history.nemesis {
        let Some(id) = note.value.get("id").and_then(Json::as_u64) else {
            continue;
        };
        let word = |field: &str| note.value.get(field).and_then(Json::as_str);
        if word("phase") != Some("done") {
            asked.entry(id).or_insert(note);
            continue;
        }
        let here = (note.index, note.time_ns);
        match word("outcome") {
            Some("installed") => {
                by_id.insert(id, faults.len());
                faults.push(Fault {
                    id,
                    name: note.function.clone(),
                    target: struck(note, asked.get(&id).copied()),
                    installed: here,
                    ended: None,
                    healed: false,
                });
            }
            Some(end @ ("healed" | "failed")) => {
                if let Some(fault) = by_id.get(&id).and_then(|place| faults.get_mut(*place)) {
                    fault.ended = Some(here);
                    fault.healed = end == "healed";
                }
            }
            _ => {}
        }
    }
    faults
}

/// Whom a fault struck, in one line: the shape of a partition where the history tells it, and the
/// nodes or links.
fn struck(done: &Note, asked: Option<&Note>) -> Option<String> {
    let told = |fields: &[&str]| {
        let notes = [Some(done), asked];
        notes
            .into_iter()
            .flatten()
            .find_map(|note| fields.iter().find_map(|field| words(note.value.get(field)?)))
    };
    let whom = told(&["nodes", "links", "target"]);
    match (told(&["partition"]), whom) {
        (Some(shape), Some(whom)) => Some(format!("{shape}: {whom}")),
        (shape, whom) => shape.or(whom),
    }
}

fn words(json: &Json) -> Option<String> {
    match json {
        Json::String(word) => Some(word.clone()),
        Json::Array(list) => {
            let words: Vec<&str> = list.iter().filter_map(Json::as_str).collect();
            (!words.is_empty()).then(|| words.join(", "))
        }
        _ => None,
    }
}
