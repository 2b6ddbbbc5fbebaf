//! One run, in a process of its own: a crash of one leaves the others alone.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use checkers::Verdict;
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::time::timeout;

use super::catalog::Case;
use crate::exit::{Exit, Failure};
use crate::store;

/// Anomalies that only the observer sees.
const GRAY_BOX: &[&str] = &[
    "damaged-batch",
    "hw-violation",
    "isr-thrash",
    "unchecked-fetch",
    "hw-regression",
    "isr-invalid",
    "replica-bounds",
    "replica-divergence",
    "ack-under-replicated",
    "stuck-replica",
    "stuck-hw",
    "leaderless",
];

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Course {
    /// A scenario.
    Scenario(String),
    /// `highwater test` with these flags.
    Random(String),
}

impl Course {
    /// In a few words.
    pub(crate) fn words(&self) -> &str {
        match self {
            Self::Scenario(name) => name,
            Self::Random(_) => "random schedule",
        }
    }
}

/// What all runs of a proof have in common.
pub(super) struct Place {
    /// This program.
    pub(super) program: PathBuf,
    /// Where runs are stored.
    pub(super) results: PathBuf,
    /// Anomalies that only the observer sees do not count.
    pub(super) black_box_only: bool,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing that must not be; what was expected came out.
    Clean,
    /// These anomalies.
    Anomalies(Vec<String>),
    /// No verdict, or not enough to judge, and why.
    Nothing(String),
}

impl Found {
    /// In words.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Clean => "nothing".to_owned(),
            Self::Anomalies(names) => names.join(", "),
            Self::Nothing(why) => format!("no verdict: {why}"),
        }
    }
}

/// A run that has ended.
pub(super) struct Ended {
    pub(super) found: Found,
    pub(super) took: Duration,
    /// Where it is stored.
    pub(super) run: PathBuf,
}

/// Carries one out, with `bug` switched on or without any, within `limit`.
pub(super) async fn attempt(
    place: &Place,
    case: &Case,
    bug: Option<&str>,
    course: &Course,
    seed: u64,
    limit: Duration,
) -> Result<Ended, Failure> {
    let begun = Instant::now();
    let kind = if bug.is_some() { "bug" } else { "control" };
    let dir = place.results.join(format!("{}-{kind}-{seed}-{}", case.bug, slug(course)));
    let broken = |error: std::io::Error| Failure::internal(format!("{}: {error}", dir.display()));
    fs::create_dir_all(&dir).map_err(broken)?;
    let output = File::create(dir.join("output.log")).map_err(broken)?;
    let errors = output.try_clone().map_err(broken)?;
    let mut command = Command::new(&place.program);
    match course {
        Course::Scenario(name) => command.args(["scenario", "run", name]),
        Course::Random(flags) => command.arg("test").args(flags.split_whitespace()),
    };
    if let Some(bug) = bug {
        command.args(["--system-config", &format!("seeded.bugs={bug}")]);
    }
    command
        .args(["--probe-interval", "100ms", "--recovery-limit", "10s"])
        .args(["--seed", &seed.to_string(), "--results"])
        .arg(&dir)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(broken)?;
    let found = match timeout(limit, child.wait()).await {
        Err(_) => Found::Nothing("time was over".to_owned()),
        Ok(Err(error)) => Found::Nothing(error.to_string()),
        Ok(Ok(status)) => judge(&dir, status.code(), place.black_box_only)?,
    };
    Ok(Ended { found, took: begun.elapsed(), run: dir })
}

fn judge(dir: &Path, code: Option<i32>, black_box_only: bool) -> Result<Found, Failure> {
    if code == Some(Exit::Valid as i32) {
        return Ok(Found::Clean);
    }
    let verdict = store::find(dir, "latest").ok().map(|run| run.read_verdict()).transpose()?;
    let Some(verdict) = verdict.flatten() else {
        return Ok(Found::Nothing(format!("no verdict, exit code {code:?}")));
    };
    let found = anomalies(&verdict, black_box_only);
    if !found.is_empty() {
        return Ok(Found::Anomalies(found));
    }
    let reasons = verdict.reasons();
    Ok(Found::Nothing(if reasons.is_empty() {
        "only the observer saw anything".to_owned()
    } else {
        reasons.join("; ")
    }))
}

/// Those that must not be, the clients' first.
fn anomalies(verdict: &Verdict, black_box_only: bool) -> Vec<String> {
    let counts = |name: &&str| !(black_box_only && is_gray_box(name));
    let mut names: Vec<String> = verdict.broken().filter(counts).map(str::to_owned).collect();
    names.sort_by_key(|name| is_gray_box(name));
    names
}

/// Does only the observer see it?
pub(super) fn is_gray_box(anomaly: &str) -> bool {
    GRAY_BOX.contains(&anomaly)
}

fn slug(course: &Course) -> String {
    course.words().replace(['/', ' ', '.'], "-")
}

#[cfg(test)]
mod tests {
    use checkers::{Anomaly, Validity};

    use super::*;

    #[test]
    fn what_clients_see_comes_first_and_is_all_there_is_with_black_box_only() {
        let anomaly = |valid| Anomaly { count: 1, valid, ..Anomaly::default() };
        let found = [
            ("hw-regression", Validity::False),
            ("lost-write", Validity::False),
            ("duplicate", Validity::True),
        ];
        let verdict = Verdict {
            anomalies: found.map(|(name, valid)| (name.to_owned(), anomaly(valid))).into(),
            ..Verdict::default()
        };
        assert_eq!(anomalies(&verdict, false), ["lost-write", "hw-regression"]);
        assert_eq!(anomalies(&verdict, true), ["lost-write"]);
    }
}
