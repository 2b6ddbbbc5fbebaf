//! Carries a schedule out against a cluster, and records what was asked and what was done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cluster::network::{Cut, Endpoint, Impairment};
use cluster::relay::{Deed, Message, Rule, Side};
use cluster::{Cluster, NodeName};
use history::{Draft, Process, Record};
use rand::{RngExt as _, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value as Json, json};
use tokio::sync::watch;
use tokio::time::sleep_until;
use tracing::{info, warn};

use crate::catalog::FaultKind;
use crate::faults::{Fault, Outcome, Status};
use crate::partition::PartitionKind;
use crate::schedule::{Inject, Step, StepAction};
use crate::situation::{Leadership, Situation};
use crate::strike::Strike;
use crate::target::{Target, TargetError};

/// How slow a schedule makes a node: a fetch takes a tenth of a second to ask.
const SLOW_KBIT: u32 = 50;
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

    /// Carries out one fault whose victims are known already, as `id`; `asked` is how it was written.
    pub async fn strike(&mut self, id: u64, asked: &str, strike: Strike) -> Outcome {
        let told = json!({ "step": asked });
        self.carry_out(id, strike.kind(), asked, told, Ok(strike)).await
    }

    /// Helps these nodes up, whichever faults brought them down, and leaves the other victims of
    /// those faults as they are. One outcome for each fault that held any of them.
    pub async fn release(&mut self, nodes: &BTreeSet<NodeName>) -> Vec<Outcome> {
        let ids: Vec<u64> = self.open.keys().rev().copied().collect();
        let mut outcomes = Vec::new();
        for id in ids {
            let Some(struck) = self.open.get_mut(&id).and_then(|open| open.fault.struck()) else {
                continue;
            };
            let (now, later): (BTreeSet<_>, BTreeSet<_>) =
                struck.iter().copied().partition(|node| nodes.contains(node));
            if now.is_empty() {
                continue;
            }
            *struck = now;
            outcomes.extend(self.heal_in_part(id, &later).await);
        }
        outcomes
    }

    /// Heals every fault of this kind; one outcome for each.
    pub async fn heal_kind(&mut self, kind: FaultKind) -> Vec<Outcome> {
        let open = self.open.iter().filter(|(_, open)| open.kind == kind);
        let ids: Vec<u64> = open.map(|(id, _)| *id).collect();
        let mut outcomes = Vec::new();
        for id in ids {
            outcomes.extend(self.heal(id).await);
        }
        outcomes
    }

    async fn inject(&mut self, id: u64, inject: &Inject) -> Status {
        let mut rng = ChaCha8Rng::seed_from_u64(inject.choice);
        let situation = self.situation().await;
        let resolved = resolve(inject, &situation, &mut rng);
        let mut told = json!({});
        add(&mut told, "target", inject.target.as_ref().map(ToString::to_string));
        add(&mut told, "partition", inject.partition.as_ref().map(ToString::to_string));
        self.carry_out(id, inject.fault, &words(inject), told, resolved).await.status
    }

    /// What both ways have in common: recorded as asked, done, recorded as done.
    async fn carry_out(
        &mut self,
        id: u64,
        kind: FaultKind,
        words: &str,
        told: Json,
        resolved: Result<Strike, TargetError>,
    ) -> Outcome {
        let name = kind.summary().name;
        let struck = resolved.as_ref().map_or(Json::Null, Strike::whom);
        let mut asked = json!({ "id": id, "phase": "asked" });
        merge(&mut asked, &told);
        merge(&mut asked, &struck);
        self.note(name, asked);
        let outcome = match resolved {
            Ok(strike) => {
                let mut fault = strike.fault(id);
                let outcome = fault.inject(&self.cluster).await;
                if outcome.status != Status::Skipped {
                    let text = describe(words, &struck);
                    self.active.lock().insert(id, text.clone());
                    self.open.insert(id, Open { kind, text, fault });
                }
                outcome
            }
            Err(error) => Outcome::skipped(error.to_string()),
        };
        self.note_outcome(name, id, &outcome, &struck);
        outcome
    }

    /// Undoes the fault `id`, if it still holds.
    pub async fn heal(&mut self, id: u64) -> Option<Outcome> {
        self.heal_in_part(id, &BTreeSet::new()).await
    }

    /// Heals a fault, but for the victims that shall be helped `later`.
    async fn heal_in_part(&mut self, id: u64, later: &BTreeSet<NodeName>) -> Option<Outcome> {
        let mut open = self.open.remove(&id)?;
        let name = open.kind.summary().heal_name;
        let mut of = json!({ "of": open.text });
        if !later.is_empty() {
            of["later"] = json!(later);
        }
        let mut asked = json!({ "id": id, "phase": "asked" });
        merge(&mut asked, &of);
        self.note(name, asked);
        let outcome = open.fault.heal(&self.cluster).await;
        self.note_outcome(name, id, &outcome, &of);
        match open.fault.struck() {
            Some(struck) if !later.is_empty() => {
                struck.clone_from(later);
                self.open.insert(id, open);
            }
            _ => drop(self.active.lock().remove(&id)),
        }
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
        self.recorder.record(Draft::note(Process::Nemesis, name, value));
    }
}

/// Whom the fault strikes, now that it is known.
fn resolve(
    inject: &Inject,
    situation: &Situation,
    rng: &mut ChaCha8Rng,
) -> Result<Strike, TargetError> {
    let process_fault: fn(BTreeSet<NodeName>) -> Strike = match inject.fault {
        FaultKind::Kill => Strike::Kill,
        FaultKind::Stop => Strike::Stop,
        FaultKind::Pause => Strike::Pause,
        FaultKind::PowerOff => Strike::PowerOff,
        FaultKind::DiskFull => Strike::DiskFull,
        FaultKind::DiskError => Strike::DiskError,
        FaultKind::Slow => |nodes| Strike::Slow(nodes, SLOW_KBIT),
        // No schedule names it: nodes that run are never its victims.
        FaultKind::Spoil => return Err(TargetError::NobodyLeft),
        FaultKind::Impair => {
            let target = inject.target.clone().unwrap_or(Target::One);
            return Ok(impaired(&target.resolve(situation, rng)?, situation, rng));
        }
        FaultKind::Intercept => {
            let target = inject.target.clone().unwrap_or(Target::One);
            let victims = target.resolve(situation, rng)?;
            return Ok(Strike::Intercept(held(victims, situation, rng)));
        }
        FaultKind::Partition => {
            // Schedules and scripts always name a shape; the plainest stands in where none is.
            let shape = inject.partition.unwrap_or(PartitionKind::IsolateOne);
            return Ok(Strike::Cut(shape.cuts(situation, inject.target.as_ref(), rng)?));
        }
    };
    let target = inject.target.clone().unwrap_or(Target::One);
    Ok(process_fault(target.resolve(situation, rng)?))
}

/// Every link of the victims, to nodes and clients, is bad in one or two ways.
fn impaired(victims: &BTreeSet<NodeName>, situation: &Situation, rng: &mut ChaCha8Rng) -> Strike {
    let ends = situation.nodes.keys().map(|node| Endpoint::Node(*node)).chain([Endpoint::Clients]);
    let ends: Vec<Endpoint> = ends.collect();
    let mut links = BTreeSet::new();
    for victim in victims.iter().map(|node| Endpoint::Node(*node)) {
        for end in ends.iter().filter(|end| **end != victim) {
            links.extend(Cut::both(victim, *end));
        }
    }
    let mut impairment = Impairment::default();
    for _ in 0..2 {
        match rng.random_range(0..5) {
            0 => {
                impairment.delay_ms = rng.random_range(5..200);
                impairment.jitter_ms = impairment.delay_ms / 2;
            }
            1 => impairment.loss = f64::from(rng.random_range(2..20)) / 100.0,
            2 => impairment.duplicate = f64::from(rng.random_range(2..20)) / 100.0,
            3 => impairment.reorder = f64::from(rng.random_range(2..20)) / 100.0,
            _ => impairment.corrupt = f64::from(rng.random_range(2..10)) / 100.0,
        }
    }
    Strike::Impair(links, impairment, rng.random())
}

/// Holds one kind of message that the victims and all others send each other, on one of its sides.
fn held(victims: BTreeSet<NodeName>, situation: &Situation, rng: &mut ChaCha8Rng) -> Rule {
    let messages: Vec<Message> = Message::all().collect();
    let message = messages[rng.random_range(0..messages.len())];
    let side = if rng.random_bool(0.5) { Side::Requests } else { Side::Answers };
    let everyone = situation.nodes.keys().copied().collect();
    let (from, to) = if rng.random_bool(0.5) { (victims, everyone) } else { (everyone, victims) };
    Rule { deed: Deed::Hold, side, message, from, to, spared: 0 }
}

/// `kill leader`, as a schedule means it.
fn words(inject: &Inject) -> String {
    let whom = inject
        .partition
        .map(|shape| shape.to_string())
        .or_else(|| inject.target.as_ref().map(ToString::to_string))
        .unwrap_or_default();
    format!("{} {whom}", inject.fault)
}

/// `kill leader: n2`, for the screen and for the heal's record.
fn describe(words: &str, struck: &Json) -> String {
    let names: Vec<&str> =
        struck["nodes"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
    if names.is_empty() { words.to_owned() } else { format!("{words}: {}", names.join(" ")) }
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
