//! Keeps the house: which crate may know which, how long files may be, what must be documented.
#![allow(clippy::expect_used, reason = "a test may fail loudly")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines of a source file before its tests.
const MOST_LINES: usize = 500;
/// Lines of a function.
const MOST_FUNCTION_LINES: usize = 70;

/// Edges between our crates; `ARCHITECTURE.md` says why.
const EDGES: &[(&str, &[&str])] = &[
    ("history", &[]),
    ("checkers", &["history"]),
    ("workloads", &["history"]),
    ("client", &["history", "workloads"]),
    ("cluster", &["history"]),
    ("nemesis", &["cluster", "history"]),
    ("replication", &[]),
    ("broker", &["replication"]),
    ("highwater", &["broker", "checkers", "client", "cluster", "history", "nemesis", "workloads"]),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn metadata() -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo metadata runs");
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

#[test]
fn crates_know_only_whom_they_may() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let names: BTreeSet<&str> =
        packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        EDGES.iter().map(|(name, edges)| (*name, edges.iter().copied().collect())).collect();
    assert_eq!(names, allowed.keys().copied().collect(), "a crate is missing in EDGES");
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        let edges: BTreeSet<&str> = package["dependencies"]
            .as_array()
            .expect("dependencies")
            .iter()
            .filter(|dependency| dependency["kind"].is_null())
            .filter_map(|dependency| dependency["name"].as_str())
            .filter(|dependency| names.contains(dependency))
            .collect();
        let extra: Vec<_> = edges.difference(&allowed[name]).collect();
        assert!(extra.is_empty(), "{name} may not know {extra:?}");
    }
}

#[test]
fn pure_crates_stay_pure() {
    for name in ["history", "checkers", "workloads", "replication"] {
        let manifest =
            fs::read_to_string(root().join(name).join("Cargo.toml")).expect("a manifest");
        for impure in ["tokio", "rdkafka", "reqwest", "nix"] {
            assert!(!manifest.contains(&format!("\n{impure}")), "{name} must not need {impure}");
        }
        let library = fs::read_to_string(root().join(name).join("src/lib.rs")).expect("a library");
        assert!(library.contains("#![forbid(unsafe_code)]"), "{name} must forbid unsafe code");
    }
}

#[test]
fn no_file_and_no_function_grows_too_long() {
    let mut problems = Vec::new();
    for path in sources() {
        let text = fs::read_to_string(&path).expect("a source file");
        let code: Vec<&str> =
            text.lines().take_while(|line| !line.contains("#[cfg(test)]")).collect();
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        if code.len() > MOST_LINES {
            problems.push(format!("{name}: {} lines before its tests", code.len()));
        }
        problems.extend(long_functions(&code).into_iter().map(|long| format!("{name}: {long}")));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Functions that are too long, found by the indentation that rustfmt gives them.
fn long_functions(code: &[&str]) -> Vec<String> {
    let mut long = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in code.iter().enumerate() {
        let indent: String = line.chars().take_while(|c| *c == ' ').collect();
        let is_function = line.contains("fn ") && !line.trim_start().starts_with("//");
        match &open {
            None if is_function => open = Some((number, indent)),
            Some((begun, indent)) if **line == format!("{indent}}}") => {
                if number - begun > MOST_FUNCTION_LINES {
                    long.push(format!(
                        "line {}: a function of {} lines",
                        begun + 1,
                        number - begun
                    ));
                }
                open = None;
            }
            // A declaration without a body ends on its own line.
            Some((begun, _))
                if *begun == number.saturating_sub(1) && code[*begun].ends_with(';') =>
            {
                open = is_function.then_some((number, indent));
            }
            _ => {}
        }
    }
    long
}

#[test]
fn only_the_driver_prints_and_nothing_is_left_undone() {
    for path in sources() {
        let text = fs::read_to_string(&path).expect("a source file");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for mark in ["todo!(", "unimplemented!(", "FIXME", "TODO", "XXX"] {
            assert!(!code.contains(mark), "{}: {mark}", path.display());
        }
    }
}

#[test]
fn every_black_box_anomaly_has_a_folder_of_cases() {
    let anomalies = [
        "inconsistent-offsets",
        "duplicate",
        "lost-write",
        "unseen",
        "G1a",
        "precommitted-read",
        "poll-skip",
        "nonmonotonic-poll",
        "int-poll-skip",
        "int-nonmonotonic-poll",
        "int-send-skip",
        "int-nonmonotonic-send",
        "nonmonotonic-send",
        "realtime-order",
        "torn-txn",
    ];
    for anomaly in anomalies {
        let folder = root().join("checkers/tests/cases").join(anomaly);
        let names: Vec<String> = fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        // Some anomalies are allowed wherever they occur; they are reported all the same.
        let has = |kinds: &[&str]| {
            names.iter().any(|name| kinds.iter().any(|kind| name.starts_with(kind)))
        };
        assert!(has(&["caught", "allowed", "unknown"]), "{anomaly} is not caught by any case");
        assert!(has(&["near-miss", "known"]), "{anomaly} lacks a near miss");
    }
}

/// Our source files, tests and benches left out.
fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> =
        EDGES
            .iter()
            .map(|(name, _)| {
                if *name == "highwater" {
                    root().join("src")
                } else {
                    root().join(name).join("src")
                }
            })
            .collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    assert!(found.len() > 40, "the sources were not found");
    found
}
