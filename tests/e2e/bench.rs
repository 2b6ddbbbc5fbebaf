//! `highwater bench`: what it writes down, never how fast anything was.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::driver::{PATIENCE, PROGRAM, eventually, highwater, processes_naming, said};

/// A tiny bench of one system has a result for everything that can be measured.
pub(crate) fn everything_is_measured_and_written_down() {
    let folder = tempfile::tempdir().expect("a folder");
    let results = folder.path().canonicalize().expect("a path").display().to_string();
    let out = format!("{results}/out.json");
    let output = highwater(&[
        "bench",
        "--systems",
        "highwater",
        "--rounds",
        "1",
        "--sizes",
        "100B,1KiB",
        "--kills",
        "2",
        "--duration",
        "1s",
        "--warm-up",
        "500ms",
        "--seed",
        "5",
        "--results",
        &results,
        "--out",
        &out,
        "--format",
        "json",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = fs::read_to_string(&out).expect("--out was written");
    let written: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(printed, written, "standard output and --out differ");
    assert_eq!(written["plan"]["seed"], 5);
    assert!(written["machine"]["cores"].as_u64().expect("a number") > 0);
    assert_eq!(written["systems"]["highwater"]["settings"]["n1"]["min.insync.replicas"], "2");
    every_case_has_numbers(&written);
    every_number_is_summed_up(&written);
    assert!(processes_naming(&results).is_empty(), "a process is left");
}

/// What was measured in the one turn, each with positive numbers.
fn every_case_has_numbers(written: &Value) {
    let turns = written["turns"].as_array().expect("turns");
    assert_eq!(turns.len(), 1);
    let measurements = turns[0]["measurements"].as_array().expect("measurements");
    let mut cases = BTreeSet::new();
    for one in measurements {
        assert_eq!(one["result"], "measured", "{one}");
        let values = one["values"].as_object().expect("values");
        assert!(!values.is_empty(), "{one}");
        for (name, value) in values {
            assert!(value.as_f64().is_some_and(|value| value > 0.0), "{name} of {one}");
        }
        let words = [&one["measure"], &one["case"]].map(|word| word.as_str().expect("a word"));
        cases.insert(words.join(" "));
    }
    let expected = [
        "start cold",
        "memory idle",
        "memory after produce",
        "produce 100B",
        "produce 1KiB",
        "consume 100B",
        "consume 1KiB",
        "latency 500/s",
        "failover leader",
        "failover leader and controller",
    ];
    assert_eq!(cases, expected.map(str::to_owned).into());
}

fn every_number_is_summed_up(written: &Value) {
    for row in written["summary"].as_array().expect("rows") {
        let system = &row["systems"][0];
        assert_eq!(system["system"], "highwater");
        assert_eq!(system["failed_rounds"], 0);
        assert_eq!(system["spread"]["values"], 1, "{row}");
        assert!(row["ratios"].as_array().expect("ratios").is_empty(), "with nobody to compare");
    }
}

/// A system that cannot be brought up is told as failed, with the reason, and the rest is taken.
pub(crate) fn what_fails_is_told_with_its_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let results = folder.path().canonicalize().expect("a path").display().to_string();
    let output = highwater(&[
        "bench",
        "--systems",
        "highwater",
        "--rounds",
        "1",
        "--only",
        "start,latency",
        "--system-config",
        "process.roles=nonsense",
        "--results",
        &results,
    ]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("round 1, highwater, start cold: "), "{table}");
    assert!(
        table.contains("round 1, highwater, latency 500/s: the cluster was not ready"),
        "{table}"
    );
}

/// An interrupt ends the bench in any phase, keeps what was measured, and leaves nothing.
pub(crate) fn an_interrupt_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let results = folder.path().canonicalize().expect("a path");
    let log = results.join("stderr.log");
    let child = Command::new(PROGRAM)
        .args(["bench", "--systems", "highwater", "--rounds", "2", "--sizes", "1KiB"])
        .args(["--only", "start,produce", "--duration", "60s", "--results"])
        .arg(&results)
        .stdin(Stdio::null())
        .stdout(fs::File::create(results.join("stdout.log")).expect("a file"))
        .stderr(fs::File::create(&log).expect("a file"))
        .spawn()
        .expect("it can be started");
    let pid = child.id().to_string();
    let begun = Instant::now();
    while !fs::read_to_string(&log).is_ok_and(|text| text.contains("start cold: ")) {
        assert!(begun.elapsed() < PATIENCE, "the cluster was not up within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(50));
    }
    let sent = Command::new("kill").args(["-s", "INT", &pid]).status();
    assert!(sent.expect("kill runs").success());
    let output = child.wait_with_output().expect("it ends");
    let told = fs::read_to_string(&log).expect("its log");
    assert_eq!(output.status.code(), Some(2), "{told}");
    let table = fs::read_to_string(results.join("stdout.log")).expect("its output");
    assert!(table.contains("round 1, highwater, produce 1KiB: interrupted"), "{table}");
    assert!(table.contains("first process to acks=all write"), "{table}");
    eventually("every process of the bench to be gone", || {
        processes_naming(&results.display().to_string()).is_empty()
    });
}
