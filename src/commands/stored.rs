//! `highwater check`, `runs` and `show`: what needs no cluster, only files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::json;

use crate::cli::{CheckArgs, Format, RunsArgs, ShowArgs};
use crate::exit::{Exit, Failure};
use crate::report::{run_report, verdict_report};
use crate::run::judge;
use crate::store::{self, RunDir};

/// Judges a stored history.
///
/// # Errors
/// Bad data, naming file, line and reason.
pub(super) fn check(args: &CheckArgs) -> Result<Exit, Failure> {
    let history = history_of(&args.path)?;
    let verdict = judge(&history)?;
    match args.format {
        Format::Human => super::print(&verdict_report(&verdict)),
        Format::Json => print_json(&verdict)?,
    }
    Ok(verdict.valid.into())
}

/// The history that a path means: itself, or the one in a run's folder.
fn history_of(path: &Path) -> Result<PathBuf, Failure> {
    if !path.exists() {
        return Err(Failure::bad_data(format!("{}: there is no such file", path.display())));
    }
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let history = RunDir::open(path.to_owned()).history();
    if history.exists() {
        Ok(history)
    } else {
        Err(Failure::bad_data(format!(
            "{}: the folder holds no history.jsonl (nor history.jsonl.zst)",
            path.display()
        )))
    }
}

/// Lists stored runs.
///
/// # Errors
/// Bad data where the store cannot be read.
pub(super) fn runs(args: &RunsArgs) -> Result<Exit, Failure> {
    let runs = store::list(&args.results).map_err(bad_data)?;
    let rows: Vec<serde_json::Value> = runs.iter().map(row).collect();
    if args.format == Format::Json {
        print_json(&rows)?;
        return Ok(Exit::Valid);
    }
    let mut text = String::new();
    for row in &rows {
        let word = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let _ = writeln!(
            text,
            "{:<48} {:<14} {:<10} seed {:<18} {}",
            word("run"),
            word("system"),
            word("verdict"),
            row["seed"],
            word("anomalies")
        );
    }
    if rows.is_empty() {
        let _ = writeln!(text, "no runs under {}", args.results.display());
    }
    super::print(&text);
    Ok(Exit::Valid)
}

fn row(run: &RunDir) -> serde_json::Value {
    let path = run.path();
    let parent = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let stamp = path.file_name().unwrap_or_default().to_string_lossy();
    let test = run.read_test();
    let (system, seed) = match &test {
        Ok(test) => (
            format!("{} {}", test.plan.cluster.system, test.plan.cluster.version),
            test.plan.seed.into(),
        ),
        Err(error) => (format!("? ({error:#})"), serde_json::Value::Null),
    };
    let (verdict, anomalies) = match run.read_verdict() {
        Ok(Some(verdict)) => {
            let names: Vec<&str> = verdict.anomalies.keys().map(String::as_str).collect();
            (verdict.valid.to_string(), names.join(" "))
        }
        Ok(None) => {
            ("none".into(), "did not come to a verdict; `highwater check` judges it".into())
        }
        Err(error) => ("broken".into(), format!("{error:#}")),
    };
    json!({
        "run": format!("{parent}/{stamp}"),
        "system": system,
        "seed": seed,
        "verdict": verdict,
        "anomalies": anomalies,
    })
}

/// Prints one stored run.
///
/// # Errors
/// Bad data where there is no such run, or its files are broken.
pub(super) fn show(args: &ShowArgs) -> Result<Exit, Failure> {
    let run = store::find(&args.results, &args.run).map_err(bad_data)?;
    let test = run.read_test().map_err(bad_data)?;
    let verdict = run.read_verdict().map_err(bad_data)?;
    if args.format == Format::Json {
        print_json(&json!({ "path": run.path(), "test": test, "verdict": verdict }))?;
        return Ok(Exit::Valid);
    }
    match verdict {
        Some(verdict) => super::print(&run_report(&run, &test, &verdict)),
        None => super::print(&format!(
            "{}: started {}, seed {}; it did not come to a verdict\nto judge what there is: highwater check {0}",
            run.path().display(),
            test.started_at,
            test.plan.seed
        )),
    }
    Ok(Exit::Valid)
}

/// Prints `value` as one JSON document.
pub(super) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::internal(format!("cannot be written as JSON: {error}")))?;
    super::print(&text);
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "shaped for map_err")]
fn bad_data(error: anyhow::Error) -> Failure {
    Failure::bad_data(format!("{error:#}"))
}
