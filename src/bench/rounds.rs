//! The whole run: turn after turn, written down after each.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use chrono::Utc;
use cluster::kafka::java_for;
use tracing::{info, warn};

use super::machine::{Machine, load_1min};
use super::plan::BenchPlan;
use super::record::{BenchFile, Taken, TurnRecord};
use super::schedule::turns;
use super::summary::summarise;
use super::turn::TurnOf;
use crate::exit::Failure;
use crate::interrupt::Interrupts;
use crate::run::Prepared;
use crate::store::{RunDir, now_text, write_json};

/// The folder of a bench: `bench.json`, `driver.log`, and a folder a turn with what the nodes said.
#[derive(Clone, Debug)]
pub(crate) struct BenchDir {
    path: PathBuf,
    stamp: String,
    /// Where the document is written besides.
    out: Option<PathBuf>,
}

impl BenchDir {
    /// Makes `results/bench/<UTC timestamp>`.
    pub(crate) fn create(results: &Path, out: Option<&Path>) -> Result<Self> {
        let stamp = Utc::now().format("%Y%m%dT%H%M%S%.3fZ").to_string();
        let path = results.join("bench").join(&stamp);
        let make = || -> io::Result<PathBuf> {
            fs::create_dir_all(&path)?;
            path.canonicalize()
        };
        let path = make()
            .with_context(|| format!("the bench's folder {} cannot be made", path.display()))?;
        Ok(Self { path, stamp, out: out.map(Path::to_owned) })
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of a turn. Its name is that of no other turn of any bench: containers are named
    /// after it.
    fn turn(&self, round: u32, system: &str) -> PathBuf {
        let system = system.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
        self.path.join(format!("{round}-{system}-{}", self.stamp))
    }

    fn write(&self, file: &BenchFile) -> Result<()> {
        write_json(&self.path.join("bench.json"), file)?;
        self.out.as_ref().map_or(Ok(()), |out| write_json(out, file))
    }
}

/// Measures all that `plan` asks for. A turn that fails is written down as such; the next one is
/// taken all the same. An interrupt ends the run after the cluster of its turn was taken down.
///
/// # Errors
/// The document cannot be written.
pub(crate) async fn run(
    plan: &BenchPlan,
    prepared: &[Prepared],
    dir: &BenchDir,
    interrupts: &Interrupts,
) -> Result<BenchFile, Failure> {
    let mut file = begin(plan);
    dir.write(&file)?;
    let labels: Vec<String> = plan.systems.iter().map(|system| system.label.clone()).collect();
    for turn in turns(plan.rounds, plan.systems.len()) {
        let (Some(system), Some(prepared)) =
            (plan.systems.get(turn.system), prepared.get(turn.system))
        else {
            continue;
        };
        if *interrupts.stop.borrow() {
            break;
        }
        info!("round {}/{}, {}", turn.round, plan.rounds, system.label);
        let turn_dir = dir.turn(turn.round, &system.label);
        let mut record = TurnRecord {
            round: turn.round,
            system: system.label.clone(),
            began_at: now_text(),
            load_1min_before: load_1min(),
            load_1min_after: 0.0,
            measurements: Vec::new(),
        };
        let (measurements, facts) = TurnOf::new(plan, system, turn.round, &turn_dir)
            .take(prepared.clone(), stopped(interrupts))
            .await;
        record.measurements = measurements;
        record.load_1min_after = load_1min();
        // Some gigabytes, which the next turn would find in its way.
        RunDir::open(turn_dir).remove_data();
        if let Some(facts) = facts {
            file.systems.entry(system.label.clone()).or_insert(facts);
        }
        file.turns.push(record);
        file.ended_at = now_text();
        file.interrupted = *interrupts.stop.borrow();
        file.summary = summarise(&labels, &file.turns);
        dir.write(&file)?;
    }
    if file.interrupted {
        warn!("cut short; what was measured until then is in {}", dir.path().display());
    }
    Ok(file)
}

impl BenchFile {
    /// Was everything measured that was asked for?
    pub(crate) fn is_complete(&self) -> bool {
        let measured = |record: &TurnRecord| {
            record.measurements.iter().all(|one| matches!(one.taken, Taken::Measured(_)))
        };
        !self.interrupted && self.turns.iter().all(measured)
    }
}

fn begin(plan: &BenchPlan) -> BenchFile {
    let mut versions = BTreeMap::from([
        ("highwater".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("librdkafka".to_owned(), client::librdkafka_version()),
    ]);
    if let Ok((path, version)) = java_for() {
        versions.insert("java".to_owned(), format!("{version} ({})", path.display()));
    }
    BenchFile {
        plan: plan.clone(),
        started_at: now_text(),
        ended_at: now_text(),
        interrupted: false,
        machine: Machine::this(),
        versions,
        client_settings: client::bench::client_settings(),
        systems: BTreeMap::new(),
        turns: Vec::new(),
        summary: Vec::new(),
    }
}

async fn stopped(interrupts: &Interrupts) {
    let mut stop = interrupts.stop.clone();
    if stop.wait_for(|stopped| *stopped).await.is_err() {
        // The watcher is gone, so nobody can ask any more.
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::tests::plan;
    use crate::bench::summary::tests::turn;

    #[test]
    fn a_bench_is_complete_when_nothing_failed_and_nobody_cut_it_short() {
        let mut file = begin(&plan("--systems kafka").unwrap());
        file.turns = vec![turn(1, "kafka", "1KiB", Some(1.0))];
        assert!(file.is_complete());
        file.interrupted = true;
        assert!(!file.is_complete());
        file.interrupted = false;
        file.turns.push(turn(2, "kafka", "1KiB", None));
        assert!(!file.is_complete());
    }

    #[test]
    fn a_bench_is_written_to_its_folder_and_to_out_and_each_turn_has_a_folder_of_its_own() {
        let results = tempfile::tempdir().unwrap();
        let out = results.path().join("out.json");
        let dir = BenchDir::create(results.path(), Some(&out)).unwrap();
        dir.write(&begin(&plan("--systems kafka --seed 7").unwrap())).unwrap();
        for path in [dir.path().join("bench.json"), out] {
            let text = fs::read_to_string(path).unwrap();
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(json["plan"]["seed"], 7);
        }
        let name = |round, system| {
            let folder = dir.turn(round, system);
            folder.file_name().unwrap().to_string_lossy().into_owned()
        };
        assert_eq!(name(2, "kafka:4.1.1"), format!("2-kafka-4.1.1-{}", dir.stamp));
        assert_ne!(name(1, "kafka"), name(2, "kafka"));
    }
}
