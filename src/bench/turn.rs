//! One turn: a cluster of its own, every step, and its end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use client::bench::{self as load, BenchTopic, Full, Pace, ReadBack};
use cluster::docker::Lifetime;
use cluster::probe::{self, TopicSpec};
use cluster::{Cluster, Status};
use history::Key;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{info, warn};

use super::failover::failover;
use super::metric::{
    ACK_P50_MS, ACK_P99_MS, ACK_P999_MS, END_TO_END_P50_MS, END_TO_END_P99_MS, MB_PER_S, METRICS,
    RECORDS_PER_S,
};
use super::plan::{BenchPlan, RecordSize, SystemPlan};
use super::record::{Measurement, Numbers, SystemFacts, Taken};
use super::schedule::{Moment, Step, Work, steps};
use super::{memory, start};
use crate::exit::Failure;
use crate::run::{BringUp, Prepared, bring_up};

/// How long a ready cluster is left alone before it counts as idle.
const IDLE_AFTER: Duration = Duration::from_secs(3);
/// Longest time that a topic may take to be made and to be at full ISR.
const TOPIC_LIMIT: Duration = Duration::from_secs(60);
/// What one size was produced with is read again and again until so much time was measured: little
/// of it can be read in a few dozen milliseconds.
const CONSUME_ENOUGH: Duration = Duration::from_secs(2);
/// Longest time for that, unless a single time takes longer.
const CONSUME_AT_MOST: Duration = Duration::from_secs(10);
/// Longest time to read it once.
const CONSUME_LIMIT: Duration = Duration::from_secs(120);
/// The topic of the cold start.
const START_TOPIC: &str = "bench-start";

/// One system in one round, as far as it has come.
pub(super) struct TurnOf<'a> {
    plan: &'a BenchPlan,
    system: &'a SystemPlan,
    round: u32,
    /// Where the nodes' folders lie, absolute.
    dir: &'a Path,
    made: OnceCell<Arc<Cluster>>,
    taken: Mutex<Vec<Measurement>>,
    facts: OnceCell<SystemFacts>,
}

impl<'a> TurnOf<'a> {
    /// A turn that has not begun.
    pub(super) fn new(
        plan: &'a BenchPlan,
        system: &'a SystemPlan,
        round: u32,
        dir: &'a Path,
    ) -> Self {
        Self {
            plan,
            system,
            round,
            dir,
            made: OnceCell::new(),
            taken: Mutex::default(),
            facts: OnceCell::new(),
        }
    }

    /// Does all steps until `stopped`; then takes the cluster down, whatever happened. What was
    /// measured, failures included, and what the system is.
    pub(super) async fn take(
        self,
        prepared: Prepared,
        stopped: impl Future<Output = ()>,
    ) -> (Vec<Measurement>, Option<SystemFacts>) {
        let reason = tokio::select! {
            biased;
            () = stopped => "interrupted".to_owned(),
            ended = self.all(prepared) => ended.err().unwrap_or_default(),
        };
        if !reason.is_empty() {
            warn!("the turn ends here: {reason}");
        }
        if let Some(cluster) = self.made.get()
            && let Err(error) = cluster.destroy().await
        {
            warn!("the cluster was not taken down cleanly: {error}");
        }
        let mut taken = self.taken.into_inner().unwrap_or_else(PoisonError::into_inner);
        for step in steps(self.plan).into_iter().filter(|step| step.reported) {
            for case in step.work.cases(self.plan) {
                let measure = step.work.measure();
                let known =
                    taken.iter().any(|known| known.measure == measure && known.case == case);
                if !known {
                    let failed = Taken::Failed { reason: reason.clone() };
                    taken.push(Measurement { measure, case, taken: failed });
                }
            }
        }
        (taken, self.facts.into_inner())
    }

    /// Every step. The error is what stands in the way of all that is left.
    async fn all(&self, prepared: Prepared) -> Result<(), String> {
        let all = steps(self.plan);
        let Some((first, steps)) = all.split_first() else {
            return Ok(());
        };
        let cluster = self.start(prepared, *first).await?;
        let mut produced = Produced::new();
        for step in steps {
            let work = self.work(&cluster, step.work, &mut produced);
            // Killing brokers is what a failover is about; in all else a broker that dies ends it.
            let results = if step.work == Work::Failover {
                work.await
            } else {
                tokio::select! {
                    biased;
                    results = work => results,
                    died = cluster.first_exit() => {
                        let cases = step.work.cases(self.plan);
                        self.keep(*step, cases.into_iter().map(|case| (case, Err(died.clone()))));
                        return Err(once("a broker had died before", step.reported, &died));
                    }
                }
            };
            self.keep(*step, results);
        }
        Ok(())
    }

    /// Brings the cluster up, and watches how long that takes if that is asked for.
    async fn start(&self, prepared: Prepared, step: Step) -> Result<Arc<Cluster>, String> {
        let limit = Duration::from_millis(self.system.cluster.ready_limit_ms);
        let mut watch = JoinSet::new();
        let topics = [self.topic_spec(START_TOPIC, 1)];
        let made = |cluster: &Arc<Cluster>| {
            let _ = self.made.set(Arc::clone(cluster));
            if step.reported {
                let topic = BenchTopic {
                    bootstrap: cluster.bootstrap(),
                    name: START_TOPIC.to_owned(),
                    partitions: 1,
                };
                watch.spawn(start::watch(Arc::clone(cluster), topic, limit));
            }
            Ok::<(), Failure>(())
        };
        let how = BringUp {
            plan: &self.system.cluster,
            // Another cluster id for each turn.
            seed: self.plan.seed.wrapping_add(self.round.into()),
            dir: self.dir,
            topics: if step.reported { &topics } else { &[] },
            lifetime: Lifetime::Driver,
        };
        let up = bring_up(&how, prepared, made).await;
        if up.is_err() {
            watch.abort_all();
        }
        let result = match (&up, watch.join_next().await) {
            (Err(failure), _) => Err(failure.message.clone()),
            (Ok(_), Some(Ok(result))) => result,
            (Ok(_), Some(Err(error))) => Err(error.to_string()),
            (Ok(_), None) => Ok(Numbers::default()),
        };
        self.keep(step, Work::Start.cases(self.plan).into_iter().zip([result]));
        let (cluster, _) = up.map_err(|failure| {
            once("the cluster was not ready in this turn", step.reported, &failure.message)
        })?;
        let _ = self.facts.set(facts(&cluster).await);
        Ok(cluster)
    }

    /// What one step measures, by case.
    async fn work(
        &self,
        cluster: &Cluster,
        work: Work,
        produced: &mut Produced,
    ) -> BTreeMap<String, Result<Numbers, String>> {
        let result = match work {
            Work::Start => Err("a cluster is started once".to_owned()),
            Work::Memory(moment) => {
                if moment == Moment::Idle {
                    sleep(IDLE_AFTER).await;
                }
                memory::of_brokers(cluster).await
            }
            Work::Produce(size) => self.produce(cluster, size, produced).await,
            Work::Consume(size) => {
                consume(self.size_topic(cluster, size), produced.get(&size)).await
            }
            Work::Latency => self.latency(cluster).await,
            Work::Failover => {
                let topic = self.topic(cluster, "bench-failover");
                match self.make(cluster, &topic).await {
                    Ok(()) => return failover(cluster, &topic, self.plan.kills).await,
                    Err(reason) => Err(reason),
                }
            }
        };
        work.cases(self.plan).into_iter().map(|case| (case, result.clone())).collect()
    }

    async fn produce(
        &self,
        cluster: &Cluster,
        size: RecordSize,
        produced: &mut Produced,
    ) -> Result<Numbers, String> {
        let topic = self.size_topic(cluster, size);
        self.make(cluster, &topic).await?;
        let how = Full {
            record_bytes: size.bytes() as usize,
            warm_up: self.plan.warm_up(),
            duration: self.plan.duration(),
            seed: self.plan.seed,
        };
        let result = load::produce(topic, how).await.map_err(|error| error.to_string())?;
        produced.insert(size, result.acked_records_in_all);
        let seconds = result.measured.as_secs_f64();
        Ok(Numbers::new([
            (MB_PER_S, result.acked_bytes as f64 / 1e6 / seconds),
            (RECORDS_PER_S, result.acked_records as f64 / seconds),
            (ACK_P50_MS, millis(result.ack.p50_us)),
            (ACK_P99_MS, millis(result.ack.p99_us)),
            (ACK_P999_MS, millis(result.ack.p999_us)),
        ])
        .with(json!({
            "acked_records": result.acked_records,
            "acked_records_in_all": result.acked_records_in_all,
            "ack_max_ms": millis(result.ack.max_us),
        })))
    }

    async fn latency(&self, cluster: &Cluster) -> Result<Numbers, String> {
        let topic = self.topic(cluster, "bench-latency");
        self.make(cluster, &topic).await?;
        let pace = Pace {
            rate_per_s: self.plan.latency_rate_per_s,
            record_bytes: self.plan.latency_record_bytes as usize,
            warm_up: self.plan.warm_up(),
            duration: self.plan.duration(),
            seed: self.plan.seed,
        };
        let result = load::latency(topic, pace).await.map_err(|error| error.to_string())?;
        Ok(Numbers::new([
            (ACK_P50_MS, millis(result.ack.p50_us)),
            (ACK_P99_MS, millis(result.ack.p99_us)),
            (ACK_P999_MS, millis(result.ack.p999_us)),
            (END_TO_END_P50_MS, millis(result.end_to_end.p50_us)),
            (END_TO_END_P99_MS, millis(result.end_to_end.p99_us)),
        ])
        .with(json!({
            "records": result.end_to_end.count,
            "ack_max_ms": millis(result.ack.max_us),
            "end_to_end_max_ms": millis(result.end_to_end.max_us),
        })))
    }

    fn size_topic(&self, cluster: &Cluster, size: RecordSize) -> BenchTopic {
        self.topic(cluster, &format!("bench-{}b", size.bytes()))
    }

    fn topic(&self, cluster: &Cluster, name: &str) -> BenchTopic {
        BenchTopic {
            bootstrap: cluster.bootstrap(),
            name: name.to_owned(),
            partitions: i32::try_from(self.plan.partitions).unwrap_or(i32::MAX),
        }
    }

    fn topic_spec(&self, name: &str, partitions: i32) -> TopicSpec {
        TopicSpec {
            name: name.to_owned(),
            partitions,
            replication_factor: self.plan.replication_factor,
            config: self.plan.topic_config.clone(),
        }
    }

    /// Makes a topic and waits until it is at full ISR.
    async fn make(&self, cluster: &Cluster, topic: &BenchTopic) -> Result<(), String> {
        let spec = self.topic_spec(&topic.name, topic.partitions);
        let keys: Vec<Key> = (0..topic.partitions).map(|n| Key::new(&topic.name, n)).collect();
        probe::create_topics(cluster.nodes(), &[spec], TOPIC_LIMIT).await?;
        probe::await_full_isr(cluster.nodes(), &keys, TOPIC_LIMIT).await
    }

    /// Keeps what a step that was asked for came to, and tells it.
    fn keep(
        &self,
        step: Step,
        results: impl IntoIterator<Item = (String, Result<Numbers, String>)>,
    ) {
        let measure = step.work.measure();
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        for (case, result) in results.into_iter().filter(|_| step.reported) {
            let whose = format!(
                "round {}/{}, {}: {} {case}",
                self.round,
                self.plan.rounds,
                self.system.label,
                measure.name()
            );
            match &result {
                Ok(numbers) => info!("{whose}: {}", told(numbers)),
                Err(reason) => warn!("{whose} failed: {reason}"),
            }
            taken.push(Measurement { measure, case, taken: result.into() });
        }
    }
}

/// Why all later steps failed: `said`, with the details where no step before told them.
fn once(said: &str, is_told: bool, details: &str) -> String {
    if is_told { said.to_owned() } else { format!("{said}: {details}") }
}

/// By size, how many records were acknowledged.
type Produced = BTreeMap<RecordSize, u64>;

async fn consume(topic: BenchTopic, acked: Option<&u64>) -> Result<Numbers, String> {
    let Some(at_least) = acked else {
        return Err("nothing was produced that could be read".to_owned());
    };
    let how = ReadBack {
        at_least: *at_least,
        enough: CONSUME_ENOUGH,
        at_most: CONSUME_AT_MOST,
        limit: CONSUME_LIMIT,
    };
    let read = load::consume(topic, how).await.map_err(|error| error.to_string())?;
    let seconds = read.took.as_secs_f64();
    if seconds <= 0.0 {
        return Err(format!("{} records are too few to tell a rate", read.records));
    }
    Ok(Numbers::new([
        (MB_PER_S, read.bytes as f64 / 1e6 / seconds),
        (RECORDS_PER_S, read.records as f64 / seconds),
    ])
    .with(json!({
        "records": read.records,
        "took_ms": seconds * 1000.0,
        "passes": read.passes,
    })))
}

/// The numbers in one line.
fn told(numbers: &Numbers) -> String {
    let mut seen = Vec::new();
    let names = METRICS.iter().map(|metric| metric.name);
    for name in names.filter(|name| numbers.values.contains_key(name)) {
        let text = format!("{name} {:.1}", numbers.values[name]);
        if !seen.contains(&text) {
            seen.push(text);
        }
    }
    seen.join(", ")
}

async fn facts(cluster: &Cluster) -> SystemFacts {
    let settings = json!(cluster.settings());
    let mut command_line = Vec::new();
    if let Some(node) = cluster.nodes().first()
        && let Ok(Status::Running { pid }) = cluster.backend().status(node.name).await
        && let Ok(line) = std::fs::read(format!("/proc/{pid}/cmdline"))
    {
        let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        command_line = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    }
    SystemFacts {
        version: cluster.system().version().to_owned(),
        settings: if settings.is_object() { settings } else { Value::Null },
        command_line,
    }
}

fn millis(us: u64) -> f64 {
    us as f64 / 1000.0
}
