//! Whole runs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::driver::{PROGRAM, Running, highwater, json, said};

/// Kill, pause and partition, each felt by clients; the verdict is valid, and `check` agrees.
pub(crate) fn valid_and_judged_alike_later(system: &str, backend: &str) {
    let results = tempfile::tempdir().expect("a folder");
    // Each lasts longer than a send waits for its answer (3 s) and strikes a leader.
    let script = "2s pause leader as p; 8s heal p; 10s kill leader as k; 16s heal k; \
                  18s partition clients-from-leader as c; 24s heal c";
    let run = Running::start(
        system,
        results.path(),
        &["--backend", backend, "--time-limit", "25s", "--nemesis-script", script],
    );
    let (code, said_then) = run.wait();
    assert_eq!(code, Some(0), "{said_then}");
    let verdict = json(results.path(), "verdict.json");
    assert_eq!(verdict["valid"], Value::Bool(true), "{verdict}");
    faults_were_installed_and_felt(&verdict);
    files_are_complete(results.path());
    if system == "highwater" {
        replicas_were_looked_at(results.path());
    }

    let later =
        highwater(&["check", &results.path().join("latest").to_string_lossy(), "--format", "json"]);
    assert_eq!(later.status.code(), Some(0), "{}", said(&later));
    let judged: Value = serde_json::from_slice(&later.stdout).expect("JSON");
    assert_eq!(judged, verdict, "the stored history is judged otherwise than the run was");
    let listed = highwater(&["runs", "--results", &results.path().to_string_lossy()]);
    assert!(said(&listed).contains("valid"), "{}", said(&listed));
    let shown = highwater(&["show", "--results", &results.path().to_string_lossy()]);
    assert!(said(&shown).contains("VALID"), "{}", said(&shown));
}

fn faults_were_installed_and_felt(verdict: &Value) {
    let windows = verdict["stats"]["fault_windows"].as_array().expect("windows");
    for fault in ["kill", "pause", "partition"] {
        let felt = windows.iter().filter(|window| window["fault"] == fault).any(|window| {
            let outcomes = &window["outcomes"];
            outcomes["info"].as_u64().unwrap_or(0) + outcomes["fail"].as_u64().unwrap_or(0) > 0
        });
        assert!(felt, "no client felt a {fault}: {windows:?}");
    }
}

/// Each node, with a leader among its replicas; by nobody else's word.
fn replicas_were_looked_at(results: &Path) {
    let history = fs::read_to_string(results.join("latest/history.jsonl")).expect("a history");
    let events = history.lines().filter(|line| line.contains(r#""f":"probe""#));
    let seen: Vec<Value> =
        events.map(|line| serde_json::from_str(line).expect("an event")).collect();
    for node in ["n1", "n2", "n3"] {
        let led =
            |event: &&Value| event["value"]["node"] == node && event["value"]["leads"] == true;
        let led = seen.iter().find(led).unwrap_or_else(|| panic!("{node} was not seen to lead"));
        assert_eq!(led["process"], "observer", "{led}");
        assert!(led["value"]["asked_ns"].as_u64() <= led["time"].as_u64(), "{led}");
    }
}

fn files_are_complete(results: &Path) {
    let test = json(results, "test.json");
    assert_eq!(test["plan"]["seed"], 5);
    assert_eq!(test["settings"]["n1"]["process.roles"], "broker,controller");
    assert_eq!(test["effective_settings"]["n2"]["node.id"]["value"], "2");
    assert!(test["ready_ms"].as_u64().expect("a number") > 0);
    for file in [
        "history.jsonl",
        "nemesis.log",
        "driver.log",
        "n1/logs/stdout.log",
        "n3/config/server.properties",
    ] {
        let path = results.join("latest").join(file);
        assert!(
            fs::metadata(&path).is_ok_and(|meta| meta.len() > 0),
            "{} is missing",
            path.display()
        );
    }
}

/// The same as a user without any right.
pub(crate) fn works_without_root(system: &str) {
    let results = tempfile::tempdir().expect("a folder");
    fs::set_permissions(results.path(), fs::Permissions::from_mode(0o777))
        .expect("it can be opened");
    // The binary and the jars lie in folders that only root may enter.
    let program = results.path().join("highwater");
    fs::copy(PROGRAM, &program).expect("it can be copied");
    fs::create_dir(results.path().join("xdg")).expect("a folder");
    if system == "kafka" {
        let cache = std::env::var("XDG_CACHE_HOME")
            .unwrap_or_else(|_| format!("{}/.cache", std::env::var("HOME").expect("HOME")));
        let copied = Command::new("cp")
            .args(["-r", &format!("{cache}/highwater")])
            .arg(results.path().join("xdg/highwater"))
            .status();
        assert!(copied.expect("cp runs").success(), "the cache could not be copied");
    }
    let opened =
        Command::new("chmod").args(["-R", "a+rwX", &results.path().to_string_lossy()]).status();
    assert!(opened.expect("chmod runs").success());
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(&program)
        .args([
            "test",
            "--system",
            system,
            "--rate",
            "300",
            "--seed",
            "6",
            "--time-limit",
            "12s",
            "--nemesis-interval",
            "5s",
        ])
        .arg("--results")
        .arg(results.path().join("runs"))
        .env("HOME", results.path())
        .env("XDG_CACHE_HOME", results.path().join("xdg"))
        .current_dir(results.path())
        .output()
        .expect("setpriv runs");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

/// Three brokers and a quorum of their own.
pub(crate) fn separate_controllers(system: &str) {
    let results = tempfile::tempdir().expect("a folder");
    let run = Running::start(
        system,
        results.path(),
        &[
            "--brokers",
            "2",
            "--controllers",
            "1",
            "--time-limit",
            "12s",
            "--nemesis-interval",
            "5s",
            "--nemesis",
            "partition",
            "--partition",
            "leader-from-controllers,leader-from-followers",
            "--topic-config",
            "min.insync.replicas=1",
        ],
    );
    let (code, said_then) = run.wait();
    assert_eq!(code, Some(0), "{said_then}");
    let test = json(results.path(), "test.json");
    assert_eq!(test["settings"]["n3"]["process.roles"], "controller");
    assert_eq!(test["settings"]["n1"]["process.roles"], "broker");
}

/// A true positive on a system as it is: the followers miss writes that the leader acknowledges
/// alone, then one of them is elected without having them.
pub(crate) fn an_unclean_election_loses_acknowledged_writes(system: &str) {
    let results = tempfile::tempdir().expect("a folder");
    let script =
        "2s kill followers:orders-0 as f; 12s kill leader:orders-0 as l; 13s heal f; 28s heal l";
    let run = Running::start(
        system,
        results.path(),
        &[
            "--brokers",
            "3",
            "--controllers",
            "1",
            "--time-limit",
            "32s",
            "--topics",
            "orders",
            "--partitions",
            "1",
            "--topic-config",
            "min.insync.replicas=1",
            "--topic-config",
            "unclean.leader.election.enable=true",
            "--nemesis-script",
            script,
            // What nobody has read before it is gone is lost; what somebody has is worse, and is
            // told as read-uncommitted-hw.
            "--consumers",
            "0",
        ],
    );
    let (code, said_then) = run.wait();
    assert_eq!(code, Some(1), "{said_then}");
    let verdict = json(results.path(), "verdict.json");
    let lost = &verdict["anomalies"]["lost-write"];
    assert!(lost["count"].as_u64().unwrap_or(0) > 0, "{verdict}");
    let example = &lost["examples"][0];
    assert_eq!(example["key"], "orders-0");
    assert!(!example["ops"].as_array().expect("indices").is_empty(), "{example}");
}
