//! Scenarios: what must come out does, and a loss of power loses exactly what was not synced.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::driver::{highwater, said};

/// Values that steps of a scenario send, in their order.
const FIRST_VALUE: i64 = 1_000_000;

/// Plays `names` on `system`; each must come out as expected.
pub(crate) fn come_out_as_expected(system: &str, names: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = play(system, names, folder.path());
    assert!(lines.len() >= names.len(), "{lines:?}");
    for line in &lines {
        assert_eq!(line["outcome"], "as-expected", "{line}");
    }
}

/// Ten records are synced, ten more are not, and then the power goes everywhere.
pub(crate) fn power_loss_drops_exactly_what_was_not_synced() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = play("highwater", &["power-loss-of-all"], folder.path());
    for (variant, survivors) in [("page-cache", 10), ("fsync", 20)] {
        let name = format!("power-loss-of-all/{variant}");
        let line = lines.iter().find(|line| line["scenario"] == name.as_str()).expect("it ran");
        assert_eq!(line["outcome"], "as-expected", "{line}");
        let run = Path::new(line["run"].as_str().expect("it is stored"));
        let expected: BTreeSet<i64> = (FIRST_VALUE..FIRST_VALUE + survivors).collect();
        let before: BTreeSet<i64> =
            read(run).into_iter().filter(|v| *v < FIRST_VALUE + 20).collect();
        assert_eq!(before, expected, "{variant}");
    }
}

fn play(system: &str, names: &[&str], results: &Path) -> Vec<Value> {
    let results = results.display().to_string();
    let mut arguments = vec!["scenario", "run"];
    arguments.extend(names);
    arguments.extend(["--system", system, "--seed", "9", "--results", &results]);
    arguments.extend(["--format", "json"]);
    let output = highwater(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Every value that an ok poll of the run returned.
fn read(run: &Path) -> BTreeSet<i64> {
    let history = fs::read_to_string(run.join("history.jsonl")).expect("a history");
    let mut values = BTreeSet::new();
    for line in history.lines() {
        let event: Value = serde_json::from_str(line).expect("JSON");
        if event["f"] != "poll" || event["type"] != "ok" {
            continue;
        }
        let polled = event["value"][0][1].as_object().into_iter().flatten();
        let pairs = polled.filter_map(|(_, pairs)| pairs.as_array()).flatten();
        values.extend(pairs.filter_map(|pair| pair[1].as_i64()));
    }
    values
}
