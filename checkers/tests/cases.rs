//! Minimal histories, one anomaly a folder, one test a file.
//!
//! `caught-*` (or, where Kafka promises no better, `allowed-*`) shows the anomaly, `near-miss-*`
//! almost does. Beside each history stands what must come out: the verdict, and for each anomaly
//! the history indices of its examples, in order; nothing else may be found. Every anomaly that
//! the checkers know must have its folder, with files of both kinds. `coverage` holds histories
//! that can and cannot be judged.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use checkers::{Validity, Verdict};
use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize;

const ANOMALIES: &[&str] = &[
    "G1a",
    "ack-under-replicated",
    "damaged-batch",
    "duplicate",
    "hw-regression",
    "hw-violation",
    "inconsistent-offsets",
    "int-nonmonotonic-poll",
    "int-nonmonotonic-send",
    "int-poll-skip",
    "int-send-skip",
    "isr-invalid",
    "isr-thrash",
    "leaderless",
    "lost-write",
    "misnumbered-batch",
    "no-writer",
    "nonmonotonic-poll",
    "nonmonotonic-send",
    "offset-commit-ahead",
    "offset-commit-lost",
    "poll-skip",
    "precommitted-read",
    "read-uncommitted-hw",
    "realtime-order",
    "replica-bounds",
    "replica-divergence",
    "stuck-hw",
    "stuck-replica",
    "torn-txn",
    "unchecked-fetch",
    "unseen",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    valid: Validity,
    anomalies: BTreeMap<String, Vec<Vec<u64>>>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut trials = vec![Trial::test("every anomaly has its cases", {
        let root = root.clone();
        move || all_there(&root).map_err(Failed::from)
    })];
    for path in histories(&root)? {
        let name = path.strip_prefix(&root)?.with_extension("").display().to_string();
        trials.push(Trial::test(name, move || judge(&path).map_err(Failed::from)));
    }
    Ok(libtest_mimic::run(&arguments, trials).exit_code())
}

fn histories(root: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = Vec::new();
    for folder in fs::read_dir(root)? {
        for file in fs::read_dir(folder?.path())? {
            let path = file?.path();
            if path.extension().is_some_and(|end| end == "jsonl") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn all_there(root: &Path) -> Result<(), String> {
    let mut lacking = BTreeSet::new();
    for anomaly in ANOMALIES {
        let folder = root.join(anomaly);
        let names: Vec<String> = fs::read_dir(&folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .filter(|name| Path::new(name).extension().is_some_and(|end| end == "jsonl"))
            .collect();
        let caught =
            names.iter().any(|name| name.starts_with("caught-") || name.starts_with("allowed-"));
        if !caught && !names.iter().any(|name| name == "caught.jsonl") {
            lacking.insert(format!("{anomaly}/caught-*"));
        }
        if !names.iter().any(|name| name.starts_with("near-miss-")) {
            lacking.insert(format!("{anomaly}/near-miss-*"));
        }
    }
    if lacking.is_empty() { Ok(()) } else { Err(format!("not there: {lacking:?}")) }
}

fn judge(path: &Path) -> Result<(), String> {
    let text = |error: &dyn Error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| text(&error))?;
    let verdict = checkers::check(file).map_err(|error| text(&error))?;
    let wanted = fs::read(path.with_extension("json")).map_err(|error| text(&error))?;
    let wanted: Expected = serde_json::from_slice(&wanted).map_err(|error| text(&error))?;
    let found: BTreeMap<String, Vec<Vec<u64>>> = verdict
        .anomalies
        .iter()
        .map(|(name, anomaly)| {
            let ops = anomaly.examples.iter().map(|example| example.ops.clone());
            (name.clone(), ops.collect())
        })
        .collect();
    if (verdict.valid, &found) != (wanted.valid, &wanted.anomalies) {
        let shown = serde_json::to_string_pretty(&verdict).unwrap_or_default();
        return Err(format!(
            "expected {} with {:?}\nfound {} with {found:?}\n{shown}",
            wanted.valid, wanted.anomalies, verdict.valid
        ));
    }
    consistent(path, &verdict)
}

/// What holds for every verdict.
fn consistent(path: &Path, verdict: &Verdict) -> Result<(), String> {
    let folder = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let expected_here = verdict.anomalies.get(&*folder);
    if file.starts_with("caught") && expected_here.is_none_or(|a| a.valid == Validity::True) {
        return Err(format!("{file} does not show {folder}"));
    }
    if file.starts_with("allowed") && expected_here.is_none_or(|a| a.valid != Validity::True) {
        return Err(format!("{file} does not show {folder} as allowed"));
    }
    if file.starts_with("near-miss") && expected_here.is_some() {
        return Err(format!("{file} shows {folder}"));
    }
    let unknown = verdict.checkers.values().any(|report| !report.reasons.is_empty());
    if verdict.valid == Validity::Unknown && !unknown && verdict.anomalies.is_empty() {
        return Err("unknown without a reason".to_owned());
    }
    let json = serde_json::to_string(&verdict).map_err(|error| error.to_string())?;
    let again: Verdict = serde_json::from_str(&json).map_err(|error| error.to_string())?;
    if &again != verdict {
        return Err(format!("the verdict does not survive being written and read: {json}"));
    }
    for anomaly in verdict.anomalies.values() {
        for example in &anomaly.examples {
            let shown = example.ops.iter().all(|op| *op < verdict.stats.events);
            if example.text.is_empty() || !example.text.ends_with('.') || !shown {
                return Err(format!("{example:?} cannot be followed"));
            }
        }
    }
    Ok(())
}
