//! The driver is interrupted or killed in each phase: the history stays readable, and nothing is
//! left after the next start.

use std::process::Command;

use crate::driver::{Running, eventually, highwater, json, processes_naming, said};

/// A phase and the words in the driver's log that show it has begun.
#[derive(Clone, Copy)]
pub(crate) struct Phase {
    /// For the case's name.
    pub(crate) name: &'static str,
    begun: &'static str,
    has_history: bool,
    /// What the driver is struck with.
    pub(crate) signals: &'static [&'static str],
}

/// Every phase of a run in which there is a cluster.
pub(crate) const PHASES: [Phase; 3] = [
    Phase {
        name: "starting",
        begun: "starting 3 nodes",
        has_history: false,
        signals: &["SIGINT", "SIGKILL"],
    },
    Phase {
        name: "a_fault_holds",
        begun: "\"outcome\":\"installed\"",
        has_history: true,
        signals: &["SIGINT", "SIGTERM", "SIGKILL"],
    },
    Phase {
        name: "reading_back",
        begun: "recovered after",
        has_history: true,
        signals: &["SIGINT", "SIGKILL"],
    },
];

/// Interrupts a run in `phase` and looks at what stays.
pub(crate) fn case(system: &str, backend: &str, phase: Phase, signal: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let results = folder.path().canonicalize().expect("a path");
    let limit = if phase.name == "reading_back" { "3s" } else { "60s" };
    let mut run = Running::start(
        system,
        &results,
        &[
            "--backend",
            backend,
            "--time-limit",
            limit,
            "--nemesis",
            "kill,partition",
            "--nemesis-interval",
            "3s",
        ],
    );
    run.await_log(phase.begun);
    run.signal(signal);
    let (code, text) = run.wait();
    // A signal that is lost would let the run go on to its time limit.
    let heard = text.contains("interrupted");
    assert_eq!(heard, signal != "SIGKILL", "{text}");
    match signal {
        "SIGKILL" => assert_eq!(code, None, "{text}"),
        // There is a verdict, or there was nothing to judge yet.
        _ if phase.has_history => assert_eq!(code, Some(0), "{text}"),
        _ => assert_eq!(code, Some(2), "{text}"),
    }
    if phase.has_history {
        let latest = results.join("latest");
        let checked = highwater(&["check", &latest.to_string_lossy()]);
        assert!(matches!(checked.status.code(), Some(0..=2)), "{}", said(&checked));
        assert!(json(&results, "test.json")["plan"]["seed"].is_u64());
    }
    nothing_is_left(backend, &results.to_string_lossy());
}

/// The second Ctrl-C ends the run at once and keeps the history.
pub(crate) fn twice_ends_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let results = folder.path().canonicalize().expect("a path");
    let mut run =
        Running::start("highwater", &results, &["--time-limit", "60s", "--nemesis", "none"]);
    run.await_log("ready after");
    run.signal("SIGINT");
    run.await_log("interrupted: healing");
    run.signal("SIGINT");
    let (code, text) = run.wait();
    assert_eq!(code, Some(2), "{text}");
    assert!(!results.join("latest/verdict.json").exists(), "it did not end at once");
    let checked = highwater(&["check", &results.join("latest").to_string_lossy()]);
    assert!(matches!(checked.status.code(), Some(0..=2)), "{}", said(&checked));
    nothing_is_left("namespaces", &results.to_string_lossy());
}

fn nothing_is_left(backend: &str, results: &str) {
    if backend == "docker" {
        // What a killed driver left is removed by the next one; `down` is one.
        let down = highwater(&["cluster", "down"]);
        assert_eq!(down.status.code(), Some(0), "{}", said(&down));
        for list in [["ps", "--all"], ["network", "ls"]] {
            let output = Command::new("docker")
                .args(list)
                .args(["--quiet", "--filter", "label=highwater"])
                .output()
                .expect("docker runs");
            assert_eq!(said(&output).trim(), "", "`docker {}` still shows some", list.join(" "));
        }
    }
    eventually("every process of the run to be gone", || processes_naming(results).is_empty());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    assert!(!mounts.contains(results), "a mount is left: {mounts}");
    let links = Command::new("ip").args(["-oneline", "link"]).output().expect("ip runs");
    assert!(!said(&links).contains("hw0"), "a link is left: {}", said(&links));
    let rules = Command::new("iptables-save").output().expect("iptables-save runs");
    assert!(!said(&rules).contains("HIGHWATER"), "a rule is left on the host");
}
