//! Carries a schedule out against a cluster, and records what was asked and what was done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cluster::{Cluster, NodeName};
use history::{Draft, Function, Kind, Process, Record, Value};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value as Json, json};
use tokio::sync::watch;
use tokio::time::sleep_until;
use tracing::{info, warn};

use crate::catalog::FaultKind;
use crate::faults::{Fault, Kill, Outcome, Partition, Pause, Status, Stop};
use crate::partition::PartitionKind;
use crate::schedule::{Inject, Step, StepAction};
use crate::situation::{Leadership, Situation};
use crate::target::{Target, TargetError};

/// From a fault that was skipped until it is tried again.
const RETRY_EVERY_MS: u64 = 1_000;

/// The faults that hold now, for those who watch.
#[derive(Debug, Default)]
pub struct ActiveFaults(Mutex<BTreeMap<u64, String>>);

impl ActiveFaults {
    /// One short text a fault, oldest first.
    pub fn list(&self) -> Vec<String> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the last heal went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealReport {
    /// What could not be undone, in words. It is reported and does not cost the verdict.
    pub problems: Vec<String>,
}

struct Open {
    kind: FaultKind,
    text: String,
    fault: Box<dyn Fault>,
}

/// The one who breaks things.
pub struct Conductor {
    cluster: Arc<Cluster>,
    recorder: Arc<dyn Record>,
    active: Arc<ActiveFaults>,
    open: BTreeMap<u64, Open>,
}

impl Conductor {
    /// A conductor of faults against `cluster`.
    pub fn new(
        cluster: Arc<Cluster>,
        recorder: Arc<dyn Record>,
        active: Arc<ActiveFaults>,
    ) -> Self {
        Self { cluster, recorder, active, open: BTreeMap::new() }
    }

    /// Carries out `steps`, counted from now, until the last is done or `stop` turns true.
    /// What is open then stays open: [`Conductor::heal_all`] follows.
    ///
    /// A fault that was skipped, since others held all its victims, is tried again each second
    /// until its heal would be due.
    pub async fn run(&mut self, steps: &[Step], mut stop: watch::Receiver<bool>) {
        let begun = Instant::now();
        let mut agenda: BTreeMap<(u64, u64), Step> =
            steps.iter().map(|step| ((step.at_ms, step.id), step.clone())).collect();
        while let Some((_, step)) = agenda.pop_first() {
            let due = begun + Duration::from_millis(step.at_ms);
            tokio::select! {
                biased;
                _ = stop.wait_for(|stopped| *stopped) => return,
                () = sleep_until(due.into()) => {}
            }
            match &step.action {
                StepAction::Inject(inject) => {
                    let status = self.inject(step.id, inject).await;
                    let again_ms = step.at_ms + RETRY_EVERY_MS;
                    let heal_is_later =
                        agenda.values().any(|later| later.id == step.id && later.at_ms > again_ms);
                    if status == Status::Skipped && heal_is_later {
                        agenda.insert((again_ms, step.id), Step { at_ms: again_ms, ..step });
                    }
                }
                StepAction::Heal => drop(self.heal(step.id).await),
            }
        }
    }

    /// Heals whatever is still broken, newest first, then makes sure that every link passes and
    /// every node runs, whoever broke it.
    pub async fn heal_all(&mut self) -> HealReport {
        let mut report = HealReport::default();
        while let Some(id) = self.open.keys().next_back().copied() {
            if let Some(outcome) = self.heal(id).await
                && outcome.status == Status::Failed
            {
                report
                    .problems
                    .extend(outcome.problems.iter().map(|(place, why)| format!("{place}: {why}")));
            }
        }
        match self.cluster.network().reset().await {
            Ok(links) => report.problems.extend(
                links
                    .iter()
                    .filter(|link| link.holds() == Some(false))
                    .map(|link| format!("{}: packets do not arrive after the heal", link.link)),
            ),
            Err(error) => report.problems.push(error.to_string()),
        }
        for node in self.cluster.nodes() {
            match self.cluster.ensure_running(node.name).await {
                Ok(None) => {}
                Ok(Some(found)) => self.note(
                    "crashed",
                    json!({ "node": node.name, "found": found, "done": "started again" }),
                ),
                Err(error) => report.problems.push(error.to_string()),
            }
        }
        for problem in &report.problems {
            warn!(target: "nemesis", "heal: {problem}");
        }
        report
    }

    async fn inject(&mut self, id: u64, inject: &Inject) -> Status {
        let mut rng = ChaCha8Rng::seed_from_u64(inject.choice);
        let situation = self.situation().await;
        let name = inject.fault.summary().name;
        let resolved = resolve(id, inject, &situation, &mut rng);
        let mut asked = json!({ "id": id, "phase": "asked" });
        add(&mut asked, "target", inject.target.as_ref().map(ToString::to_string));
        add(&mut asked, "partition", inject.partition.as_ref().map(ToString::to_string));
        if let Ok((_, struck)) = &resolved {
            merge(&mut asked, struck);
        }
        self.note(name, asked);
        let (outcome, struck) = match resolved {
            Ok((mut fault, struck)) => {
                let outcome = fault.inject(&self.cluster).await;
                if outcome.status != Status::Skipped {
                    let text = describe(inject, &struck);
                    self.active.lock().insert(id, text.clone());
                    self.open.insert(id, Open { kind: inject.fault, text, fault });
                }
                (outcome, struck)
            }
            Err(error) => (Outcome::skipped(error.to_string()), Json::Null),
        };
        self.note_outcome(name, id, &outcome, &struck);
        outcome.status
    }

    async fn heal(&mut self, id: u64) -> Option<Outcome> {
        let mut open = self.open.remove(&id)?;
        let name = open.kind.summary().heal_name;
        self.note(name, json!({ "id": id, "phase": "asked", "of": open.text }));
        let outcome = open.fault.heal(&self.cluster).await;
        self.note_outcome(name, id, &outcome, &json!({ "of": open.text }));
        self.active.lock().remove(&id);
        Some(outcome)
    }

    async fn situation(&self) -> Situation {
        let view = self.cluster.view().await;
        let mut alive = BTreeSet::new();
        for node in self.cluster.nodes() {
            if let Ok(cluster::Status::Running { .. }) =
                self.cluster.backend().status(node.name).await
            {
                alive.insert(node.name);
            }
        }
        Situation {
            alive,
            nodes: self.cluster.nodes().iter().map(|node| (node.name, node.role)).collect(),
            controller: view.controller,
            keys: view
                .keys
                .into_iter()
                .map(|(key, seen)| {
                    let leadership = Leadership {
                        leader: seen.leader,
                        replicas: seen.replicas.into_iter().collect(),
                    };
                    (key, leadership)
                })
                .collect(),
        }
    }

    fn note_outcome(&self, name: &str, id: u64, outcome: &Outcome, struck: &Json) {
        let mut done = json!({ "id": id, "phase": "done" });
        merge(&mut done, struck);
        merge(&mut done, &json!(outcome));
        self.note(name, done);
    }

    fn note(&self, name: &str, value: Json) {
        info!(target: "nemesis", "{name} {value}");
        self.recorder.record(Draft::new(
            Process::Nemesis,
            Kind::Info,
            Function::from(name),
            Value::Json(value),
        ));
    }
}

/// The fault itself and whom it strikes, now that it is known.
fn resolve(
    id: u64,
    inject: &Inject,
    situation: &Situation,
    rng: &mut ChaCha8Rng,
) -> Result<(Box<dyn Fault>, Json), TargetError> {
    let process_fault: fn(BTreeSet<NodeName>) -> Box<dyn Fault> = match inject.fault {
        FaultKind::Kill => |nodes| Box::new(Kill::new(nodes)),
        FaultKind::Stop => |nodes| Box::new(Stop::new(nodes)),
        FaultKind::Pause => |nodes| Box::new(Pause::new(nodes)),
        FaultKind::Partition => {
            // Schedules and scripts always name a shape; the plainest stands in where none is.
            let shape = inject.partition.unwrap_or(PartitionKind::IsolateOne);
            let cuts = shape.cuts(situation, inject.target.as_ref(), rng)?;
            let links: Vec<_> = cuts.iter().map(ToString::to_string).collect();
            return Ok((Box::new(Partition::new(id, cuts)), json!({ "links": links })));
        }
    };
    let target = inject.target.clone().unwrap_or(Target::One);
    let nodes = target.resolve(situation, rng)?;
    let struck = json!({ "nodes": nodes });
    Ok((process_fault(nodes), struck))
}

/// `kill leader: n2`, for the screen and for the heal's record.
fn describe(inject: &Inject, struck: &Json) -> String {
    let whom = inject
        .partition
        .map(|shape| shape.to_string())
        .or_else(|| inject.target.as_ref().map(ToString::to_string))
        .unwrap_or_default();
    let names: Vec<&str> =
        struck["nodes"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
    if names.is_empty() {
        format!("{} {whom}", inject.fault)
    } else {
        format!("{} {whom}: {}", inject.fault, names.join(" "))
    }
}

fn add(object: &mut Json, name: &str, text: Option<String>) {
    if let Some(text) = text {
        object[name] = Json::String(text);
    }
}

fn merge(into: &mut Json, from: &Json) {
    if let (Some(into), Some(from)) = (into.as_object_mut(), from.as_object()) {
        into.extend(from.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
}
