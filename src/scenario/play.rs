//! Carrying the steps of a scenario out, and recording them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{ClientError, Hand, QueueClients, QueueSummary, Sent, Stop};
use cluster::probe::{View, await_recovery, replicas_by_protocol};
use cluster::relay::Rule;
use cluster::{Cluster, NodeName, Operation};
use futures_util::future::join_all;
use history::{Draft, Key, Process, Record};
use nemesis::faults::{Outcome, Status};
use nemesis::{Conductor, FaultKind, Strike};
use serde_json::{Value as Json, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::info;

use super::cast::Cast;
use super::condition::{Marks, Seen, lacking, owed};
use super::step::{Action, Blow, Condition, Step};
use crate::exit::Failure;

/// Between two looks at a condition.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// Longest wait for what a node says of its replicas.
const MARKS_LIMIT: Duration = Duration::from_secs(2);
/// Longest wait until an operation is under way.
const OPERATION_LIMIT: Duration = Duration::from_secs(20);
/// Longest read of a key in the middle of a scenario.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// Why a step did not come about. No fault of the cluster: what was to be shown was not shown.
pub(super) struct Unmet(pub(super) String);

impl Unmet {
    pub(super) fn because(why: impl fmt::Display) -> Self {
        Self(why.to_string())
    }
}

/// Who carries steps out.
pub(crate) struct Player<'a> {
    cluster: &'a Cluster,
    clients: &'a Arc<QueueClients>,
    recorder: Arc<dyn Record>,
    conductor: &'a mut Conductor,
    seed: u64,
    cast: Cast<'a>,
    hand: Hand,
    load: Option<Load>,
    faults: u64,
    /// Ids of cuts, and of what stops messages, by the words in which they were made.
    made: BTreeMap<String, u64>,
}

/// The workload that runs beside the steps.
struct Load {
    stop: Stop,
    /// None once it has ended.
    work: Option<JoinHandle<Result<QueueSummary, ClientError>>>,
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

impl<'a> Player<'a> {
    /// For `cluster`, with what `clients` send and read, and what `conductor` breaks.
    pub(crate) fn new(
        cluster: &'a Cluster,
        clients: &'a Arc<QueueClients>,
        recorder: Arc<dyn Record>,
        conductor: &'a mut Conductor,
        seed: u64,
    ) -> Self {
        let hand = clients.by_hand();
        Self {
            cluster,
            clients,
            recorder,
            conductor,
            seed,
            cast: Cast::new(cluster),
            hand,
            load: None,
            faults: 0,
            made: BTreeMap::new(),
        }
    }

    /// Carries `steps` out, one after the other, until one does not come about or `stopped` is
    /// there. That is recorded, and the verdict is unknown then unless something worse was found.
    ///
    /// # Errors
    /// The clients cannot work at all.
    pub(crate) async fn play(
        mut self,
        steps: &[Step],
        stopped: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        tokio::pin!(stopped);
        for (number, step) in (1_u64..).zip(steps) {
            self.note(number, step, json!({ "phase": "begun" }));
            let done = tokio::select! {
                biased;
                () = &mut stopped => Err(Unmet::because("interrupted")),
                done = self.step(step) => done,
            };
            match done {
                Ok(told) => {
                    let mut value = json!({ "phase": "done" });
                    if !told.is_null() {
                        value["found"] = told;
                    }
                    self.note(number, step, value);
                }
                Err(Unmet(why)) => {
                    self.note(number, step, json!({ "phase": "done", "unmet": why }));
                    break;
                }
            }
        }
        self.end_load().await.map(drop)
    }

    fn note(&self, number: u64, step: &Step, mut value: Json) {
        value["number"] = json!(number);
        value["step"] = json!(step.text);
        info!(target: "scenario", "step {value}");
        self.recorder.record(Draft::note(Process::Nemesis, "step", value));
    }

    async fn step(&mut self, step: &Step) -> Result<Json, Unmet> {
        match &step.action {
            Action::Let(names, who) => {
                let nodes = self.cast.nodes(who).await?;
                let found = json!(nodes);
                self.cast.name(names, nodes)?;
                Ok(found)
            }
            Action::Send { count, key, acks, limit, must } => {
                let sent = self.hand.send(key, *count, *acks, *limit).await;
                told_of(&sent.map_err(Unmet::because)?, must.then_some(*count))
            }
            Action::Read(key) => self
                .clients
                .read_once(key, READ_LIMIT, &Stop::new())
                .await
                .map(|()| Json::Null)
                .map_err(Unmet::because),
            Action::Load(true) => self.begin_load(),
            Action::Load(false) => self.end_load().await.map_err(Unmet::because),
            Action::Await(condition, limit) => self.wait_for(condition, *limit).await,
            Action::Expect(condition, limit) => self.owes(condition, *limit).await,
            Action::ExpectRecovery(limit) => Ok(self.owes_recovery(*limit).await),
            Action::Reassign(key, who) => {
                let replicas = self.cast.in_order(who).await?;
                self.operate(step, key, Operation::Reassign(replicas)).await
            }
            Action::Elect(key) => self.operate(step, key, Operation::ElectPreferred).await,
            Action::Sync(who) => {
                let nodes = self.cast.nodes(who).await?;
                let synced = nodes.iter().try_for_each(|node| self.cluster.sync(*node));
                synced.map(|()| Json::Null).map_err(Unmet::because)
            }
            Action::Release(who) => {
                let nodes = self.cast.nodes(who).await?;
                healed(&self.conductor.release(&nodes).await)
            }
            Action::LetThrough(None) => {
                healed(&self.conductor.heal_kind(FaultKind::Intercept).await)
            }
            Action::Repair(None) => healed(&self.conductor.heal_kind(FaultKind::Impair).await),
            Action::Reconnect(None) => {
                healed(&self.conductor.heal_kind(FaultKind::Partition).await)
            }
            Action::Reconnect(Some(words))
            | Action::Repair(Some(words))
            | Action::LetThrough(Some(words)) => match self.made.remove(words) {
                Some(id) => healed(self.conductor.heal(id).await.as_slice()),
                None => Err(Unmet(format!("no step above says {words}"))),
            },
            _ => self.break_something(step).await,
        }
    }

    async fn break_something(&mut self, step: &Step) -> Result<Json, Unmet> {
        let mut called = None;
        let strike = match &step.action {
            Action::Strike(blow, who) => {
                let nodes = self.cast.nodes(who).await?;
                match blow {
                    Blow::Kill => Strike::Kill(nodes),
                    Blow::Stop => Strike::Stop(nodes),
                    Blow::BeginStop => Strike::BeginStop(nodes),
                    Blow::Pause => Strike::Pause(nodes),
                    Blow::PowerOff => Strike::PowerOff(nodes),
                    Blow::FillDisk => Strike::DiskFull(nodes),
                    Blow::BreakDisk => Strike::DiskError(nodes),
                }
            }
            Action::Spoil(spoilage, key, who) => {
                Strike::Spoil(self.cast.nodes(who).await?, key.clone(), *spoilage)
            }
            Action::Slow(who, kbit_per_s) => Strike::Slow(self.cast.nodes(who).await?, *kbit_per_s),
            Action::Cut { from, to, both, words } => {
                called = Some(words.clone());
                Strike::Cut(self.cast.cuts(from, to, *both).await?)
            }
            Action::Impair { from, to, both, impairment, words } => {
                called = Some(words.clone());
                let links = self.cast.cuts(from, to, *both).await?;
                Strike::Impair(links, *impairment, self.seed)
            }
            Action::Intercept { deed, side, message, from, to, spared, words } => {
                called = Some(words.clone());
                let (from, to) = (self.cast.nodes(from).await?, self.cast.nodes(to).await?);
                let (deed, side, message, spared) = (*deed, *side, *message, *spared);
                Strike::Intercept(Rule { deed, side, message, from, to, spared })
            }
            _ => return Err(Unmet(format!("{step}: it breaks nothing"))),
        };
        let done = self.strike(step, strike).await;
        if let Some(words) = called {
            self.made.insert(words, self.faults);
        }
        done
    }

    /// Records what a look at the cluster showed, for the checkers.
    fn look(&self, value: Json) {
        self.recorder.record(Draft::note(Process::Observer, "recovery", value));
    }

    fn begin_load(&mut self) -> Result<Json, Unmet> {
        if self.load.is_some() {
            return Err(Unmet::because("the load is on already, or was"));
        }
        let stop = Stop::new();
        let work = tokio::spawn({
            let (clients, stop, seed) = (Arc::clone(self.clients), stop.clone(), self.seed);
            async move { clients.run(seed, &stop).await }
        });
        self.load = Some(Load { stop, work: Some(work) });
        Ok(Json::Null)
    }

    async fn end_load(&mut self) -> Result<Json, Failure> {
        let Some(load) = &mut self.load else {
            return Ok(Json::Null);
        };
        load.stop.stop();
        let Some(work) = load.work.take() else {
            return Ok(Json::Null);
        };
        let ended = work.await.map_err(|error| Failure::internal(error.to_string()))?;
        ended.map(|_| Json::Null).map_err(|error| Failure::internal(error.to_string()))
    }

    async fn strike(&mut self, step: &Step, strike: Strike) -> Result<Json, Unmet> {
        self.faults += 1;
        let outcome = self.conductor.strike(self.faults, &step.text, strike).await;
        let whole = outcome.status == Status::Installed && outcome.problems.is_empty();
        if whole { Ok(Json::Null) } else { Err(Unmet::because(json!(outcome))) }
    }

    async fn operate(&self, step: &Step, key: &Key, operation: Operation) -> Result<Json, Unmet> {
        let asked = operation.ask(self.cluster.nodes(), key, OPERATION_LIMIT).await;
        asked.map(|()| Json::Null).map_err(|why| Unmet(format!("{step}: {why}")))
    }

    async fn owes_recovery(&self, limit: Duration) -> Json {
        let report = await_recovery(self.cluster.nodes(), self.cluster.keys(), limit).await;
        let mut value = json!(report);
        value["expected"] = json!(true);
        self.look(value);
        json!({ "recovered": report.is_recovered() })
    }

    async fn wait_for(&self, condition: &Condition, limit: Duration) -> Result<Json, Unmet> {
        match self.holds(condition, limit).await? {
            Ok(waited) => Ok(json!({ "waited_ms": millis(waited) })),
            Err((lacking, _)) => Err(Unmet(format!("not within {limit:?}: {lacking}"))),
        }
    }

    async fn owes(&self, condition: &Condition, limit: Duration) -> Result<Json, Unmet> {
        match self.holds(condition, limit).await? {
            Ok(waited) => Ok(json!({ "waited_ms": millis(waited) })),
            Err((lacking, mut missing)) => {
                missing["expected"] = json!(true);
                missing["deadline_ms"] = json!(millis(limit));
                missing["waited_ms"] = json!(millis(limit));
                self.look(missing);
                Ok(json!({ "not": lacking }))
            }
        }
    }

    /// Waits until it holds, for how long; or what is lacking when time is over.
    async fn holds(
        &self,
        condition: &Condition,
        limit: Duration,
    ) -> Result<Result<Duration, (String, Json)>, Unmet> {
        let who = match condition {
            Condition::LeaderIs(_, who)
            | Condition::LeaderIsNot(_, who)
            | Condition::IsrIs(_, who)
            | Condition::IsrHas(_, who)
            | Condition::IsrLacks(_, who)
            | Condition::Answer(who)
            | Condition::Alive(who)
            | Condition::Gone(who)
            | Condition::Reached(_, _, who, _) => who.as_slice(),
            Condition::Stopped(_) | Condition::EpochIs(..) => &[],
        };
        let nodes = self.cast.nodes(who).await?;
        let begun = Instant::now();
        loop {
            let (view, marks, stopped) = match condition {
                Condition::Stopped(words) => {
                    (View::default(), BTreeMap::new(), self.stopped(words)?)
                }
                Condition::Reached(_, key, ..) => {
                    (View::default(), self.marks(&nodes, key).await, 0)
                }
                _ => (self.cluster.view().await, BTreeMap::new(), 0),
            };
            let seen = Seen { view: &view, marks: &marks, stopped };
            let Some(lacking) = lacking(condition, &nodes, &seen) else {
                return Ok(Ok(begun.elapsed()));
            };
            if begun.elapsed() >= limit {
                return Ok(Err((lacking, owed(condition, &nodes, &seen))));
            }
            sleep(BETWEEN_LOOKS).await;
        }
    }

    /// How many messages have been stopped by what was said in these words.
    fn stopped(&self, words: &str) -> Result<u64, Unmet> {
        let id =
            self.made.get(words).ok_or_else(|| Unmet(format!("no step above says {words}")))?;
        self.cluster.intercepted(*id).map(|met| met.stopped).map_err(Unmet::because)
    }

    async fn marks(
        &self,
        nodes: &BTreeSet<NodeName>,
        key: &Key,
    ) -> BTreeMap<(NodeName, Key), Marks> {
        let keys = std::slice::from_ref(key);
        let asked = self.cluster.nodes().iter().filter(|node| nodes.contains(&node.name));
        let answers = asked.map(|node| async {
            (node.name, replicas_by_protocol(node, keys, MARKS_LIMIT).await.unwrap_or_default())
        });
        let told = join_all(answers).await.into_iter().flat_map(|(node, replicas)| {
            replicas.into_iter().map(move |replica| {
                let marks = Marks {
                    log_end: replica.state.log_end,
                    high_watermark: replica.state.high_watermark,
                };
                ((node, Key::from(replica.key.as_str())), marks)
            })
        });
        told.collect()
    }
}

/// What became of sends; with `wanted`, so many must have been acknowledged.
fn told_of(sent: &Sent, wanted: Option<usize>) -> Result<Json, Unmet> {
    let mut told = json!({ "acknowledged": sent.acknowledged, "unanswered": sent.unanswered });
    if !sent.refused.is_empty() {
        told["refused"] = json!(sent.refused);
    }
    if wanted.is_some_and(|wanted| sent.acknowledged < wanted) {
        return Err(Unmet::because(told));
    }
    Ok(told)
}

/// Something must have been healed, and all of it.
fn healed(outcomes: &[Outcome]) -> Result<Json, Unmet> {
    if outcomes.is_empty() {
        return Err(Unmet::because("there is nothing to undo"));
    }
    match outcomes.iter().find(|outcome| outcome.status == Status::Failed) {
        Some(failed) => Err(Unmet::because(json!(failed))),
        None => Ok(Json::Null),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
