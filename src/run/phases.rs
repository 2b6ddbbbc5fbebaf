//! The phases of a run.
//!
//! 1. bring the cluster up
//! 2. clients and nemesis, until the time limit
//! 3. heal
//! 4. wait for recovery
//! 5. closing writes
//! 6. final reads
//! 7. stop the nodes and read their disks
//! 8. take the cluster down
//! 9. judge the history from disk

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use checkers::Verdict;
use client::{QueueClients, Stop};
use cluster::Cluster;
use cluster::docker::Lifetime;
use cluster::probe::{self, TopicSpec, await_recovery};
use futures_util::future::join_all;
use history::{Draft, Key, PROMISE, Process, PromiseValue, Record, TopicPromise};
use nemesis::{ActiveFaults, Conductor};
use serde_json::json;
use tokio::sync::{OnceCell, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};
use workloads::Acks;

use super::bring_up::{BringUp, Prepared, bring_up};
use super::disks;
use super::judge::judge;
use super::observer::{Observer, Way};
use crate::console::{Console, Watched};
use crate::exit::Failure;
use crate::interrupt::Interrupts;
use crate::plan::Plan;
use crate::recorder::Recorder;
use crate::scenario::{Player, parse_steps};
use crate::store::{RunDir, TestFile};

/// Writing one value to each key of a healed cluster, retries included.
const CLOSING_LIMIT: Duration = Duration::from_secs(60);
/// Asking a node that is ready for its settings.
const SETTINGS_LIMIT: Duration = Duration::from_secs(5);
/// Reading everything back.
const FINAL_READS_LIMIT: Duration = Duration::from_secs(120);

/// How a run came to its end.
#[derive(Debug)]
pub(crate) enum Ended {
    /// With a verdict.
    Judged(Box<Verdict>),
    /// At once, because the user wanted it so. The history is kept.
    Aborted,
}

/// Runs `plan` and judges what happened.
///
/// # Errors
/// [`Failure`] when there was no cluster to test, or the rig failed; never for what the cluster
/// did.
pub(crate) async fn run_test(
    plan: &Plan,
    prepared: Prepared,
    run_dir: &RunDir,
    test: &mut TestFile,
    console: &Console,
    interrupts: &Interrupts,
) -> Result<Ended, Failure> {
    let recorder = Recorder::create(run_dir.path())
        .map_err(|error| Failure::internal(format!("{}: {error}", run_dir.path().display())))?;
    let run = Run {
        plan,
        stored: run_dir,
        recorder: Arc::new(recorder),
        interrupts,
        cluster: OnceCell::new(),
    };
    let outcome = tokio::select! {
        biased;
        () = interrupts.aborted() => None,
        () = run.history_lost() => Some(Ok(())),
        result = run.all(prepared, test, console) => Some(result),
    };
    if let Some(cluster) = run.cluster.get()
        && let Err(error) = cluster.destroy().await
    {
        warn!("the cluster was not taken down cleanly: {error}");
    }
    let closed = run.recorder.close();
    match outcome {
        None => return Ok(Ended::Aborted),
        Some(result) => result?,
    }
    closed.map_err(|error| {
        Failure::internal(format!("{error}; free some space and run again with the same --seed"))
    })?;
    let verdict = judge(&run_dir.history())?;
    Ok(Ended::Judged(Box::new(verdict)))
}

struct Run<'a> {
    plan: &'a Plan,
    stored: &'a RunDir,
    recorder: Arc<Recorder>,
    interrupts: &'a Interrupts,
    cluster: OnceCell<Arc<Cluster>>,
}

impl Run<'_> {
    async fn all(
        &self,
        prepared: Prepared,
        test: &mut TestFile,
        console: &Console,
    ) -> Result<(), Failure> {
        let cluster = tokio::select! {
            biased;
            () = self.stopped() => {
                return Err(Failure {
                    exit: crate::exit::Exit::Unknown,
                    message: "interrupted before the cluster was ready: nothing to judge".into(),
                });
            }
            cluster = self.bring_up(prepared, test) => cluster?,
        };
        let recorder: Arc<dyn Record> = Arc::clone(&self.recorder) as Arc<dyn Record>;
        let clients =
            QueueClients::new(self.plan.queue.clone(), &cluster.bootstrap(), Arc::clone(&recorder))
                .map_err(|error| Failure::usage(error.to_string()))?;
        let clients = Arc::new(clients);
        let faults = Arc::new(ActiveFaults::default());
        let (phase, watched_phase) = watch::channel("running");
        let progress = console.watch(Watched {
            live: Arc::clone(clients.live()),
            faults: Arc::clone(&faults),
            phase: watched_phase,
        });
        if let Some(promise) = promise(self.plan, &cluster) {
            recorder.record(Draft::note(Process::Observer, PROMISE, json!(promise)));
        }
        let mut conductor = Conductor::new(Arc::clone(&cluster), recorder, faults);
        let watching = self.observe(&cluster)?;
        match &self.plan.scenario {
            None => self.disturb(&clients, &mut conductor).await?,
            Some(scenario) => {
                let steps = parse_steps(&scenario.steps).map_err(Failure::bad_data)?;
                let recorder: Arc<dyn Record> = Arc::clone(&self.recorder) as Arc<dyn Record>;
                let seed = self.plan.seed;
                let player = Player::new(&cluster, &clients, recorder, &mut conductor, seed);
                player.play(&steps, self.stopped()).await?;
            }
        }
        phase.send_replace("healing");
        for problem in conductor.heal_all().await.problems {
            warn!("a fault could not be healed: {problem}");
        }
        phase.send_replace("recovering");
        self.recover(&cluster).await;
        phase.send_replace("reading back");
        let result = self.read_back(&clients, cluster.keys()).await;
        drop(watching);
        phase.send_replace("reading disks");
        self.read_disks(&cluster).await;
        drop(progress);
        result
    }

    async fn bring_up(
        &self,
        prepared: Prepared,
        test: &mut TestFile,
    ) -> Result<Arc<Cluster>, Failure> {
        let topics = topics(self.plan);
        let dir: &Path = self.stored.path();
        let written = |cluster: &Arc<Cluster>| {
            let _ = self.cluster.set(Arc::clone(cluster));
            test.settings = json!(cluster.settings());
            self.stored.write_test(test).map_err(Failure::from)
        };
        let how = BringUp {
            plan: &self.plan.cluster,
            seed: self.plan.seed,
            dir,
            topics: &topics,
            lifetime: Lifetime::Driver,
        };
        let (cluster, took) = bring_up(&how, prepared, written).await?;
        test.ready_ms = u64::try_from(took.as_millis()).ok();
        test.effective_settings = effective_settings(&cluster).await;
        self.stored.write_test(test)?;
        Ok(cluster)
    }

    /// Looks at replicas until what is returned is dropped.
    fn observe(&self, cluster: &Arc<Cluster>) -> Result<JoinSet<()>, Failure> {
        let mut watching = JoinSet::new();
        let interval = Duration::from_millis(self.plan.probe_interval_ms);
        if interval.is_zero() {
            return Ok(watching);
        }
        let way = Way::of(&self.plan.cluster.system)
            .map_err(|error| Failure::internal(format!("no HTTP client: {error}")))?;
        let keys: Arc<[Key]> = cluster.keys().into();
        for node in cluster.nodes().iter().filter(|node| node.role.is_broker()) {
            let (node, way, keys) = (node.clone(), way.clone(), Arc::clone(&keys));
            let observer = Observer::new(node, interval, way, keys, self.plan.seed);
            let recorder: Arc<dyn Record> = Arc::clone(&self.recorder) as Arc<dyn Record>;
            watching.spawn(observer.observe(recorder));
        }
        Ok(watching)
    }

    /// Clients and nemesis side by side. The nemesis ends with the clients at the latest.
    async fn disturb(
        &self,
        clients: &QueueClients,
        conductor: &mut Conductor,
    ) -> Result<(), Failure> {
        let plan = self.plan;
        let steps = nemesis::schedule(
            &plan.nemesis,
            plan.cluster.roles().len(),
            plan.time_limit_ms,
            &mut workloads::rng::stream(plan.seed, "nemesis"),
        );
        let stop = Stop::new();
        let (nemesis_stop, nemesis_stopped) = watch::channel(false);
        let work = async {
            let summary = clients.run(plan.seed, &stop).await;
            nemesis_stop.send_replace(true);
            summary
        };
        let both = async { tokio::join!(work, conductor.run(&steps, nemesis_stopped)).0 };
        tokio::pin!(both);
        let summary = tokio::select! {
            biased;
            () = self.stopped() => {
                stop.stop();
                nemesis_stop.send_replace(true);
                both.await
            }
            summary = &mut both => summary,
        };
        let summary = summary.map_err(|error| Failure::internal(error.to_string()))?;
        if summary.given_up_sends > 0 {
            info!(
                "{} sends had no answer when the time for answers was over",
                summary.given_up_sends
            );
        }
        if summary.lost_consumers > 0 {
            warn!(
                "{} consumers did not come back from their last operation",
                summary.lost_consumers
            );
        }
        Ok(())
    }

    /// Waits for the healed cluster and records what it found, in the history, as a finding.
    async fn recover(&self, cluster: &Cluster) {
        let limit = Duration::from_millis(self.plan.recovery_limit_ms);
        let report = await_recovery(cluster.nodes(), cluster.keys(), limit).await;
        if report.is_recovered() {
            info!("recovered after {:.1} s", report.waited_ms as f64 / 1000.0);
        } else {
            warn!(
                "the cluster did not recover within {} ms: {}",
                report.deadline_ms,
                json!(report)
            );
        }
        self.recorder.record(Draft::note(Process::Observer, "recovery", json!(report)));
    }

    async fn read_back(&self, clients: &QueueClients, keys: &[Key]) -> Result<(), Failure> {
        let stop = Stop::new();
        let failed = |error: client::ClientError| Failure::internal(error.to_string());
        // Who wants to know soon whether a cluster recovers does not wait longer for the rest.
        let recovery_limit = Duration::from_millis(self.plan.recovery_limit_ms);
        let closing_limit = CLOSING_LIMIT.min(recovery_limit);
        let reads_limit = FINAL_READS_LIMIT.min(2 * recovery_limit);
        let closing = clients.closing_writes(keys, closing_limit, &stop).await.map_err(failed)?;
        for (key, result) in &closing {
            if let Err(reason) = result {
                warn!("{key}: no closing write was acknowledged: {reason}");
            }
        }
        let unread =
            clients.final_reads(keys, &closing, reads_limit, &stop).await.map_err(failed)?;
        for (key, reason) in &unread {
            warn!("{key}: not read to its end: {reason}");
        }
        info!("read {} of {} keys to their end", keys.len() - unread.len(), keys.len());
        let silent = clients.committed(closing_limit, &stop).await.map_err(failed)?;
        for (group, reason) in &silent {
            warn!("group {group} does not say where it would go on: {reason}");
        }
        Ok(())
    }

    /// Stops the nodes and records what their disks hold.
    async fn read_disks(&self, cluster: &Arc<Cluster>) {
        disks::stop_all(cluster).await;
        let (cluster, recorder) = (Arc::clone(cluster), Arc::clone(&self.recorder));
        let reading = move || disks::record(cluster.nodes(), cluster.keys(), &*recorder);
        if let Err(error) = tokio::task::spawn_blocking(reading).await {
            warn!("the disks were not read: {error}");
        }
    }

    async fn stopped(&self) {
        let mut stop = self.interrupts.stop.clone();
        if stop.wait_for(|stopped| *stopped).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    async fn history_lost(&self) {
        loop {
            if self.recorder.trouble().is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// Every setting in force, as the nodes themselves say, or why one does not say.
async fn effective_settings(cluster: &Cluster) -> serde_json::Value {
    let asked = cluster.nodes().iter().map(|node| async move {
        let told = match probe::effective_settings(node, SETTINGS_LIMIT).await {
            Ok(settings) => json!(settings),
            Err(error) => json!({ "unknown": error.to_string() }),
        };
        (node.name.to_string(), told)
    });
    join_all(asked).await.into_iter().collect::<serde_json::Map<_, _>>().into()
}

/// What acknowledgements promise; none where not all wait for the whole ISR.
fn promise(plan: &Plan, cluster: &Cluster) -> Option<PromiseValue> {
    let producer = &plan.queue.producer;
    let said = ["acks", "request.required.acks"].iter().find_map(|name| producer.extra.get(*name));
    if producer.acks != Acks::All || said.is_some_and(|acks| !["all", "-1"].contains(&&**acks)) {
        return None;
    }
    let settings = cluster.settings();
    let broker = cluster.nodes().iter().find(|node| node.role.is_broker())?;
    let broker = settings.get(&broker.name)?;
    let said = |name: &str| plan.topic_config.get(name).or_else(|| broker.get(name));
    let replicas = usize::try_from(plan.replication_factor).ok()?;
    let min_isr = said("min.insync.replicas").map_or(Some(1), |text| text.parse().ok())?;
    let promise = TopicPromise {
        replicas,
        min_isr: replicas.min(min_isr),
        unclean: said("unclean.leader.election.enable").is_some_and(|text| text == "true"),
    };
    Some(PromiseValue {
        topics: plan.queue.topics.iter().map(|topic| (topic.clone(), promise)).collect(),
    })
}

fn topics(plan: &Plan) -> Vec<TopicSpec> {
    plan.queue
        .topics
        .iter()
        .map(|name| TopicSpec {
            name: name.clone(),
            partitions: i32::try_from(plan.queue.partitions_per_topic).unwrap_or(i32::MAX),
            replication_factor: i16::try_from(plan.replication_factor).unwrap_or(i16::MAX),
            config: plan.topic_config.clone(),
        })
        .collect()
}
