//! The store of runs: `results/<name>/<UTC timestamp>/`.
//!
//! | file | written |
//! |---|---|
//! | `test.json` | first, before the cluster starts; again when its settings are known |
//! | `history.jsonl` | while the run goes on |
//! | `nemesis.log` | the same, the nemesis's events as text |
//! | `driver.log` | the same, what the driver itself had to say |
//! | `n1/`, `n2/`, … | each node's configuration and logs, and its data while it is needed |
//! | `verdict.json` | last |

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use checkers::Verdict;
use chrono::{SecondsFormat, Utc};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// What `test.json` says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TestFile {
    /// What the run was going to do.
    pub(crate) plan: Plan,
    /// UTC, RFC 3339.
    pub(crate) started_at: String,
    /// Of everything that took part.
    #[serde(default)]
    pub(crate) versions: std::collections::BTreeMap<String, String>,
    /// What the rig told every node, by node and setting.
    #[serde(default)]
    pub(crate) settings: serde_json::Value,
    /// Every setting in force, as the nodes say once they are ready, defaults included.
    #[serde(default)]
    pub(crate) effective_settings: serde_json::Value,
    /// How long the cluster took to be ready, milliseconds.
    #[serde(default)]
    pub(crate) ready_ms: Option<u64>,
}

impl TestFile {
    /// Of a run that begins now.
    pub(crate) fn begin(plan: Plan, versions: std::collections::BTreeMap<String, String>) -> Self {
        Self {
            plan,
            started_at: now_text(),
            versions,
            settings: serde_json::Value::Null,
            effective_settings: serde_json::Value::Null,
            ready_ms: None,
        }
    }
}

/// One run's folder.
#[derive(Clone, Debug)]
pub(crate) struct RunDir(PathBuf);

impl RunDir {
    /// Makes the folder of a new run and points `latest` at it, both under its name and for all.
    pub(crate) fn create(results: &Path, name: &str) -> Result<Self> {
        let stamp = Utc::now().format("%Y%m%dT%H%M%S%.3fZ").to_string();
        let parent = results.join(name);
        let make = || -> io::Result<PathBuf> {
            fs::create_dir_all(&parent)?;
            let dir = parent.join(&stamp);
            fs::create_dir(&dir)?;
            dir.canonicalize()
        };
        let dir = make().with_context(|| {
            format!("the run's folder cannot be made under {}", parent.display())
        })?;
        // A convenience: a file system without links is no reason not to run.
        let _ = point_latest(&parent.join("latest"), Path::new(&stamp));
        let _ = point_latest(&results.join("latest"), &Path::new(name).join(&stamp));
        Ok(Self(dir))
    }

    /// The run that is stored in `dir`.
    pub(crate) fn open(dir: PathBuf) -> Self {
        Self(dir)
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Where the history lies; compressed ones are found too.
    pub(crate) fn history(&self) -> PathBuf {
        let plain = self.0.join("history.jsonl");
        let packed = self.0.join("history.jsonl.zst");
        if !plain.exists() && packed.exists() { packed } else { plain }
    }

    /// Writes `test.json`.
    pub(crate) fn write_test(&self, test: &TestFile) -> Result<()> {
        write_json(&self.0.join("test.json"), test)
    }

    /// Reads `test.json`.
    pub(crate) fn read_test(&self) -> Result<TestFile> {
        read_json(&self.0.join("test.json"))
    }

    /// Writes `verdict.json`.
    pub(crate) fn write_verdict(&self, verdict: &Verdict) -> Result<()> {
        write_json(&self.0.join("verdict.json"), verdict)
    }

    /// Reads `verdict.json`; `None` where the run never came to one.
    pub(crate) fn read_verdict(&self) -> Result<Option<Verdict>> {
        let path = self.0.join("verdict.json");
        if path.exists() { read_json(&path).map(Some) } else { Ok(None) }
    }
}

impl RunDir {
    /// Removes the nodes' data and scratch folders, and the program that they ran: the history
    /// says all that matters of a run that was valid.
    pub(crate) fn remove_data(&self) {
        let _ = fs::remove_dir_all(self.0.join("program"));
        for node in folders(&self.0).unwrap_or_default() {
            // What stays costs disk space, nothing else.
            for part in ["data", "tmp"] {
                let _ = fs::remove_dir_all(node.join(part));
            }
            let _ = fs::remove_file(node.join("data.img"));
        }
    }
}

/// The runs under `results`, oldest first.
pub(crate) fn list(results: &Path) -> Result<Vec<RunDir>> {
    let mut runs = Vec::new();
    for name in folders(results)? {
        runs.extend(folders(&name)?.into_iter().filter(|run| run.join("test.json").exists()));
    }
    runs.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    Ok(runs.into_iter().map(RunDir).collect())
}

/// The run that `text` means: a folder, NAME/TIMESTAMP, NAME for its latest, or `latest`.
pub(crate) fn find(results: &Path, text: &str) -> Result<RunDir> {
    let candidates = [PathBuf::from(text), results.join(text), results.join(text).join("latest")];
    candidates
        .into_iter()
        .find(|dir| dir.join("test.json").exists())
        .map(RunDir)
        .with_context(|| {
            format!(
                "there is no run `{text}`, neither as a folder nor under {}; `highwater runs` lists them",
                results.display()
            )
        })
}

/// UTC now, as `test.json` wants it.
pub(crate) fn now_text() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn folders(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", dir.display())),
    };
    Ok(entries
        .flatten()
        // Links (`latest`) would show a run twice.
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect())
}

/// Replaces a link in one step.
fn point_latest(link: &Path, target: &Path) -> io::Result<()> {
    let fresh = link.with_extension("new");
    let _ = fs::remove_file(&fresh);
    symlink(target, &fresh)?;
    fs::rename(&fresh, link)
}

/// Writes the whole file or leaves the old one.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let fresh = path.with_extension("json.new");
    let write = || -> Result<()> {
        let mut text = serde_json::to_vec_pretty(value)?;
        text.push(b'\n');
        fs::write(&fresh, text)?;
        fs::File::open(&fresh)?.sync_all()?;
        fs::rename(&fresh, path)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is broken", path.display()))
}
