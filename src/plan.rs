//! What a run is going to do: one serialisable value, made from the command line and written
//! down before anything starts.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use cluster::{NodeName, Role};
use nemesis::{FaultKind, NemesisPlan, Step, StepAction, Target};
use serde::{Deserialize, Serialize};
use workloads::{Acks, Compression, ConsumerMode, ConsumerPlan, ProducerPlan, QueuePlan};

use crate::cli::{BackendChoice, ClusterArgs, NemesisArgs, TestArgs};
use crate::exit::Failure;
use crate::scenario::Expectation;

/// What is under test and where it lives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClusterPlan {
    /// `highwater` or `kafka`.
    pub(crate) system: String,
    /// Version of the system.
    pub(crate) version: String,
    /// `namespaces` or `docker`.
    pub(crate) backend: String,
    /// Nodes that hold replicas.
    pub(crate) brokers: u32,
    /// Controllers on nodes of their own; 0: the brokers are controllers too.
    pub(crate) controllers: u32,
    /// Settings that override what the rig would set.
    pub(crate) system_config: BTreeMap<String, String>,
    /// Keep the system's own time-outs.
    pub(crate) stock_timeouts: bool,
    /// An unpacked distribution to use.
    pub(crate) kafka_home: Option<PathBuf>,
    /// An image to use.
    pub(crate) kafka_image: Option<String>,
    /// Longest time to be ready in.
    pub(crate) ready_limit_ms: u64,
    /// Each node has a disk of its own, which can lose power.
    #[serde(default)]
    pub(crate) own_disks: bool,
    /// Relays between the nodes, so that single messages can be stopped.
    #[serde(default)]
    pub(crate) relays: bool,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Under which the run is stored.
    pub(crate) name: String,
    /// Every random choice derives from it.
    pub(crate) seed: u64,
    /// What is under test.
    pub(crate) cluster: ClusterPlan,
    /// `queue`.
    pub(crate) workload: String,
    /// What clients do.
    pub(crate) queue: QueuePlan,
    /// Replicas of each partition.
    pub(crate) replication_factor: u32,
    /// Settings of the test's topics.
    pub(crate) topic_config: BTreeMap<String, String>,
    /// What goes wrong.
    pub(crate) nemesis: NemesisPlan,
    /// How long clients run and faults strike.
    pub(crate) time_limit_ms: u64,
    /// How often each node's replicas are looked at; 0: never.
    #[serde(default)]
    pub(crate) probe_interval_ms: u64,
    /// How long the cluster may take to recover.
    pub(crate) recovery_limit_ms: u64,
    /// Keep data folders even when the verdict is valid.
    pub(crate) keep_data: bool,
    /// The incident that is played, in place of clients and nemesis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scenario: Option<ScenarioPlan>,
}

/// The scenario of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ScenarioPlan {
    /// Its name, with the variant's.
    pub(crate) name: String,
    /// Its steps.
    pub(crate) steps: String,
    /// What must come out.
    pub(crate) expected: Expectation,
}

impl ClusterPlan {
    /// The nodes: brokers first, then controllers on nodes of their own.
    pub(crate) fn roles(&self) -> Vec<(NodeName, Role)> {
        let broker = if self.controllers == 0 { Role::Combined } else { Role::Broker };
        let brokers = (1..=self.brokers).map(|id| (NodeName::new(id), broker));
        let controllers = (self.brokers + 1..=self.brokers + self.controllers)
            .map(|id| (NodeName::new(id), Role::Controller));
        brokers.chain(controllers).collect()
    }

    /// Reads the flags about the cluster.
    pub(crate) fn from_args(args: &ClusterArgs) -> Result<Self, Failure> {
        let (system, version) = parse_system(&args.system)?;
        for (name, value, least, most) in
            [("--brokers", args.brokers, 1, 60), ("--controllers", args.controllers, 0, 15)]
        {
            if !(least..=most).contains(&value) {
                return Err(Failure::usage(format!(
                    "{name} {value}: from {least} to {most} are possible"
                )));
            }
        }
        if system != "kafka" && args.kafka_image.is_some() {
            return Err(Failure::usage(
                "--kafka-image says where Kafka comes from; it needs --system kafka",
            ));
        }
        if args.kafka_image.is_some() && args.backend != BackendChoice::Docker {
            return Err(Failure::usage(
                "--kafka-image names a container image; it needs --backend docker",
            ));
        }
        Ok(Self {
            system,
            version,
            backend: args.backend.name().into(),
            brokers: args.brokers,
            controllers: args.controllers,
            system_config: pairs("--system-config", &args.system_config)?,
            stock_timeouts: args.stock_timeouts,
            kafka_home: args.kafka_home.clone(),
            kafka_image: args.kafka_image.clone(),
            ready_limit_ms: millis("--ready-limit", args.ready_limit)?,
            own_disks: false,
            relays: false,
        })
    }
}

impl Plan {
    /// Makes sense of the command line.
    ///
    /// # Errors
    /// A usage failure that names the flag and says what would do.
    pub(crate) fn from_args(args: &TestArgs) -> Result<Self, Failure> {
        let mut cluster = ClusterPlan::from_args(&args.cluster)?;
        if args.workload.workload != "queue" {
            return Err(Failure::usage(format!(
                "there is no workload `{}`; there is queue",
                args.workload.workload
            )));
        }
        let time_limit_ms = millis("--time-limit", args.workload.time_limit)?;
        let queue = queue_plan(args, time_limit_ms)?;
        let nemesis = nemesis_plan(&args.nemesis, &cluster, &queue, time_limit_ms)?;
        let of_disks = [FaultKind::PowerOff, FaultKind::DiskFull, FaultKind::DiskError];
        cluster.own_disks = of_disks.into_iter().any(|fault| nemesis.uses(fault));
        cluster.relays = nemesis.uses(FaultKind::Intercept);
        let brokers = cluster.brokers;
        let replication_factor = args.workload.replication_factor.unwrap_or(brokers.min(3));
        if !(1..=brokers).contains(&replication_factor) {
            return Err(Failure::usage(format!(
                "--replication-factor {replication_factor}: with {brokers} brokers, from 1 to {brokers} are possible"
            )));
        }
        let name = args.name.clone().unwrap_or_else(|| format!("{}-{}", cluster.system, "queue"));
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        // `latest` is a link in the store, and the way to say "the newest run".
        let taken = name == "latest";
        if taken || name.is_empty() || name.starts_with('.') || !name.chars().all(legal) {
            return Err(Failure::usage(format!(
                "--name `{name}`: use letters, digits, `.`, `_` and `-`, not beginning with `.`, and not `latest`"
            )));
        }
        Ok(Self {
            name,
            seed: args.seed.unwrap_or_else(fresh_seed),
            cluster,
            workload: args.workload.workload.clone(),
            queue,
            replication_factor,
            topic_config: pairs("--topic-config", &args.workload.topic_config)?,
            nemesis,
            time_limit_ms,
            probe_interval_ms: millis_or_zero("--probe-interval", args.probe_interval)?,
            recovery_limit_ms: millis("--recovery-limit", args.nemesis.recovery_limit)?,
            keep_data: args.keep_data,
            scenario: None,
        })
    }
}

/// A seed nobody chose; printed and recorded so that it can be chosen again.
pub(crate) fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // The standard library seeds this from the operating system. Kept below 2^53 so that any
    // JSON reader shows it exactly.
    RandomState::new().hash_one(std::process::id()) >> 11
}

/// `highwater`, `kafka` or `kafka:4.1.1`.
pub(crate) fn parse_system(text: &str) -> Result<(String, String), Failure> {
    let (name, version) = match text.split_once(':') {
        Some((name, version)) => (name, Some(version)),
        None => (text, None),
    };
    let version = match (name, version) {
        ("highwater", None) => env!("CARGO_PKG_VERSION"),
        ("highwater", Some(_)) => {
            return Err(Failure::usage(format!(
                "--system {text}: the in-repo broker is this very program and has no other version"
            )));
        }
        ("kafka", version) => version.unwrap_or(cluster::kafka::DEFAULT_VERSION),
        _ => {
            return Err(Failure::usage(format!(
                "there is no system `{name}`; there are highwater and kafka (or kafka:VERSION)"
            )));
        }
    };
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    if version.is_empty() || !version.chars().all(legal) {
        return Err(Failure::usage(format!(
            "--system {text}: `{version}` is not a version; write for example kafka:{}",
            cluster::kafka::DEFAULT_VERSION
        )));
    }
    Ok((name.to_owned(), version.to_owned()))
}

fn queue_plan(args: &TestArgs, time_limit_ms: u64) -> Result<QueuePlan, Failure> {
    let (workload, producer, consumer) = (&args.workload, &args.producer, &args.consumer);
    let plan = QueuePlan {
        topics: workload.topics.clone(),
        partitions_per_topic: workload.partitions,
        producers: workload.producers,
        consumers: workload.consumers,
        rate_per_s: workload.rate,
        poll_share: workload.poll_share,
        time_limit_ms,
        producer: ProducerPlan {
            acks: match producer.acks.as_str() {
                "0" => Acks::None,
                "1" => Acks::Leader,
                _ => Acks::All,
            },
            idempotence: producer.idempotence,
            linger_ms: small_millis("--linger", producer.linger)?,
            retries: producer.retries,
            max_in_flight: producer.max_in_flight,
            delivery_timeout_ms: small_millis("--delivery-timeout", producer.delivery_timeout)?,
            compression: match producer.compression.as_str() {
                "gzip" => Compression::Gzip,
                "snappy" => Compression::Snappy,
                "lz4" => Compression::Lz4,
                _ => Compression::None,
            },
            extra: pairs("--producer-config", &producer.producer_config)?,
            ..ProducerPlan::default()
        },
        consumer: ConsumerPlan {
            mode: match consumer.consumer_mode.as_str() {
                "assign" => ConsumerMode::Assign,
                "subscribe" => ConsumerMode::Subscribe,
                _ => ConsumerMode::Mixed,
            },
            commits: consumer.commits,
            reassign_every_ms: millis_or_zero("--reassign-every", consumer.reassign_every)?,
            crash_every_ms: millis_or_zero("--crash-every", consumer.crash_every)?,
            extra: pairs("--consumer-config", &consumer.consumer_config)?,
            ..ConsumerPlan::default()
        },
        ..QueuePlan::default()
    };
    plan.validate().map_err(|error| Failure::usage(error.to_string()))?;
    Ok(plan)
}

fn nemesis_plan(
    args: &NemesisArgs,
    cluster: &ClusterPlan,
    queue: &QueuePlan,
    time_limit_ms: u64,
) -> Result<NemesisPlan, Failure> {
    let usage = |message: String| Failure::usage(message);
    let mut plan = NemesisPlan {
        faults: Vec::new(),
        targets: parse_all(&args.target)?,
        partitions: parse_all(&args.partition)?,
        interval_ms: millis("--nemesis-interval", args.nemesis_interval)?,
        script: Vec::new(),
    };
    if let Some(script) = &args.nemesis_script {
        let text = match script.strip_prefix('@') {
            Some(path) => fs::read_to_string(path)
                .map_err(|error| usage(format!("--nemesis-script {script}: {error}")))?,
            None => script.clone(),
        };
        plan.script = nemesis::parse_script(&text)
            .map_err(|error| usage(format!("--nemesis-script: {error}")))?;
        if plan.script.is_empty() {
            return Err(usage(
                "--nemesis-script holds no step; for no faults say --nemesis none".into(),
            ));
        }
        check_script(&plan.script, cluster, queue)?;
        if let Some(late) = plan.script.iter().find(|step| step.at_ms > time_limit_ms) {
            return Err(usage(format!(
                "--nemesis-script: a step at {} ms lies beyond --time-limit ({time_limit_ms} ms)",
                late.at_ms
            )));
        }
    } else if args.nemesis != ["none"] {
        plan.faults = parse_all::<FaultKind>(&args.nemesis)?;
    }
    let needs_namespaces = [
        FaultKind::PowerOff,
        FaultKind::DiskFull,
        FaultKind::DiskError,
        FaultKind::Slow,
        FaultKind::Impair,
        FaultKind::Intercept,
    ];
    if cluster.backend != "namespaces"
        && let Some(fault) = needs_namespaces.into_iter().find(|fault| plan.uses(*fault))
    {
        return Err(usage(format!("{fault} needs --backend namespaces")));
    }
    let nodes = (cluster.brokers + cluster.controllers) as usize;
    if let Some(shape) = plan.partitions.iter().find(|shape| shape.min_nodes() > nodes) {
        return Err(usage(format!(
            "--partition {shape}: needs at least {} nodes, this cluster has {nodes}",
            shape.min_nodes()
        )));
    }
    if !plan.partitions.is_empty() && !plan.faults.contains(&FaultKind::Partition) {
        return Err(usage("--partition says how to cut, but partition is not in --nemesis".into()));
    }
    check_targets(&plan.targets, cluster, queue)?;
    let no_fault_fits = plan.interval_ms.saturating_mul(7) / 10 > time_limit_ms;
    if !plan.faults.is_empty() && no_fault_fits {
        return Err(usage(format!(
            "no fault fits into --time-limit {time_limit_ms} ms with --nemesis-interval {} ms; make the interval shorter, or say --nemesis none",
            plan.interval_ms
        )));
    }
    Ok(plan)
}

/// What a script names must be there, like what flags name.
fn check_script(script: &[Step], cluster: &ClusterPlan, queue: &QueuePlan) -> Result<(), Failure> {
    let nodes = cluster.roles().len();
    for step in script {
        let StepAction::Inject(inject) = &step.action else { continue };
        check_targets(inject.target.as_slice(), cluster, queue)?;
        if let Some(shape) = inject.partition.filter(|shape| shape.min_nodes() > nodes) {
            return Err(Failure::usage(format!(
                "--nemesis-script: {shape} needs at least {} nodes, this cluster has {nodes}",
                shape.min_nodes()
            )));
        }
    }
    Ok(())
}

fn check_targets(
    targets: &[Target],
    cluster: &ClusterPlan,
    queue: &QueuePlan,
) -> Result<(), Failure> {
    let keys = queue.keys();
    let nodes = cluster.roles();
    for target in targets {
        match target {
            Target::Leader(Some(key)) | Target::Followers(Some(key)) if !keys.contains(key) => {
                return Err(Failure::usage(format!(
                    "--target {target}: this run has no key `{key}`; its first is `{}`",
                    keys.first().map(ToString::to_string).unwrap_or_default()
                )));
            }
            Target::Nodes(named) => {
                let unknown =
                    named.iter().find(|node| !nodes.iter().any(|(name, _)| name == *node));
                if let Some(unknown) = unknown {
                    return Err(Failure::usage(format!(
                        "--target {target}: this cluster has no node {unknown}; it has n1 to n{}",
                        nodes.len()
                    )));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn parse_all<T: std::str::FromStr<Err = String>>(texts: &[String]) -> Result<Vec<T>, Failure> {
    texts
        .iter()
        .map(|text| text.trim().parse().map_err(|error: String| Failure::usage(error)))
        .collect::<Result<Vec<T>, _>>()
}

/// `key=value` flags, each key once.
pub(crate) fn pairs(flag: &str, texts: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let mut map = BTreeMap::new();
    for text in texts {
        let (key, value) = text
            .split_once('=')
            .filter(|(key, _)| !key.trim().is_empty())
            .ok_or_else(|| Failure::usage(format!("{flag} `{text}`: write KEY=VALUE")))?;
        if map.insert(key.trim().to_owned(), value.trim().to_owned()).is_some() {
            return Err(Failure::usage(format!("{flag}: `{}` is given twice", key.trim())));
        }
    }
    Ok(map)
}

pub(crate) fn millis(flag: &str, duration: Duration) -> Result<u64, Failure> {
    match millis_or_zero(flag, duration)? {
        0 => Err(Failure::usage(format!("{flag}: must be at least 1ms"))),
        ms => Ok(ms),
    }
}

pub(crate) fn millis_or_zero(flag: &str, duration: Duration) -> Result<u64, Failure> {
    /// A month; beyond it, nanoseconds and deadlines come near their limits.
    const MOST_MS: u128 = 31 * 24 * 3_600_000;
    match duration.as_millis() {
        ms if ms <= MOST_MS => Ok(u64::try_from(ms).unwrap_or(u64::MAX)),
        _ => Err(Failure::usage(format!("{flag}: must be at most 31 days"))),
    }
}

fn small_millis(flag: &str, duration: Duration) -> Result<u32, Failure> {
    u32::try_from(millis_or_zero(flag, duration)?)
        .map_err(|_| Failure::usage(format!("{flag}: is too long")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::exit::Exit;

    fn plan(flags: &str) -> Result<Plan, Failure> {
        let words = ["highwater", "test"].into_iter().chain(flags.split_whitespace());
        let Command::Test(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("not a test command")
        };
        Plan::from_args(&args)
    }

    fn refused(flags: &str) -> String {
        let failure = plan(flags).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        failure.message
    }

    #[test]
    fn the_plan_of_the_main_command_survives_json() {
        let plan = plan("--system kafka --workload queue --nemesis kill,pause,partition").unwrap();
        assert_eq!(plan.cluster.roles().len(), 3);
        assert_eq!(plan.replication_factor, 3);
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    }

    #[test]
    fn controllers_get_nodes_of_their_own() {
        let roles = plan("--brokers 2 --controllers 1").unwrap().cluster.roles();
        let seen: Vec<_> = roles.iter().map(|(name, role)| (name.to_string(), *role)).collect();
        assert_eq!(
            seen,
            [
                ("n1".into(), Role::Broker),
                ("n2".into(), Role::Broker),
                ("n3".into(), Role::Controller)
            ]
        );
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_would_do() {
        assert!(
            refused("--nemesis explode")
                .contains("kill, stop, pause, partition, slow, power-off, disk-full, disk-error, impair, intercept and none")
        );
        assert!(refused("--rate 0").contains("above 0"));
        assert!(refused("--replication-factor 4").contains("with 3 brokers, from 1 to 3"));
        assert!(refused("--brokers 0").contains("from 1 to 60"));
        assert!(refused("--system rabbit").contains("there are highwater and kafka"));
        assert!(refused("--system kafka:").contains("is not a version"));
        assert!(refused("--system highwater:1").contains("no other version"));
        assert!(refused("--kafka-image a/b:1").contains("needs --system kafka"));
        assert!(refused("--workload bank").contains("there is queue"));
        assert!(refused("--system-config acks").contains("write KEY=VALUE"));
        assert!(refused("--system-config a=1 --system-config a=2").contains("given twice"));
        assert!(refused("--target leader:nope-0").contains("its first is `orders-0`"));
        assert!(refused("--target n9").contains("it has n1 to n3"));
        assert!(refused("--partition majorities-ring").contains("at least 5 nodes"));
        assert!(refused("--nemesis kill --partition halves").contains("not in --nemesis"));
        assert!(refused("--time-limit 5s").contains("no fault fits"));
        assert!(refused("--time-limit 0s").contains("at least 1ms"));
        assert!(refused("--name ../x").contains("use letters"));
        assert!(refused("--name latest").contains("not `latest`"));
        assert!(refused("--nemesis-script ;").contains("holds no step"));
        assert!(refused("--system kafka --kafka-image a/b:1").contains("needs --backend docker"));
        assert!(refused("--idempotence true --acks 1").contains("acks=all"));
    }
}
