//! A node's configuration: Java properties under Kafka's names, so that both systems of a
//! comparison read the same lines.
//!
//! | subject | module |
//! |---|---|
//! | what can be set, typed | [`Config`] |
//! | reading a file, all errors at once | `reader` |
//! | listeners and voters | [`listeners`] |

pub mod listeners;
mod reader;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use replication::types::NodeId;
use thiserror::Error;

use crate::coordinator::GroupSettings;

pub use listeners::{HostPort, Listener};
use reader::Reader;

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Holds replicas and serves clients.
    pub broker: bool,
    /// Votes on the metadata log.
    pub controller: bool,
}

/// When a write counts as held by a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When the operating system has it (Kafka's default): it survives the process, not the
    /// machine's power.
    PageCache,
    /// When the disk has it: an fsync before the replica's log end counts, for leader and
    /// followers alike; writes that arrive meanwhile share the next one.
    Fsync,
}

/// Everything that a node is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// `node.id`.
    pub node: NodeId,
    /// `process.roles`.
    pub roles: Roles,
    /// `cluster.id`: all nodes of a cluster have the same one.
    pub cluster_id: String,
    /// `controller.quorum.voters`.
    pub voters: BTreeMap<NodeId, HostPort>,
    /// `listeners`.
    pub listeners: Vec<Listener>,
    /// `advertised.listeners`, by default the listeners.
    pub advertised: Vec<Listener>,
    /// `inter.broker.listener.name`.
    pub inter_broker_listener: String,
    /// `controller.listener.names`: one name.
    pub controller_listener: String,
    /// `log.dirs`: one folder.
    pub log_dir: PathBuf,
    /// `log.durability`: `page-cache` or `fsync`.
    pub durability: Durability,
    /// `admin.listener`: where HTTP is served; absent: nowhere.
    pub admin: Option<SocketAddr>,
    /// Threads that serve requests, `num.io.threads`.
    pub threads: usize,
    /// Time-outs and intervals.
    pub times: Times,
    /// Limits that protect memory.
    pub limits: Limits,
    /// Replication between brokers.
    pub fetching: Fetching,
    /// `offsets.topic.num.partitions`.
    pub offsets_topic_partitions: i32,
    /// `offsets.topic.replication.factor`.
    pub offsets_topic_replication_factor: i16,
    /// `default.replication.factor`.
    pub default_replication_factor: i16,
    /// `num.partitions`.
    pub default_partitions: i32,
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
    /// `auto.leader.rebalance.enable`.
    pub auto_leader_rebalance: bool,
    /// `eligible.leader.replicas.enable`: KIP-966 in a new cluster.
    pub eligible_leader_replicas: bool,
    /// Settings of the group coordinator.
    pub groups: GroupSettings,
    /// `offsets.commit.timeout.ms`.
    pub offsets_commit_limit: Duration,
    /// `seeded.bugs`: mistakes on purpose, in builds that have them.
    #[cfg(feature = "seeded-bugs")]
    pub seeded_bugs: Vec<replication::seeded::Bug>,
    /// Everything in its file, as it stands there.
    pub told: BTreeMap<String, String>,
    /// Defaults of settings that topics may override, under their broker-level names.
    pub topic_defaults: BTreeMap<String, String>,
}

/// Time-outs and intervals.
#[derive(Clone, Debug)]
pub struct Times {
    /// `broker.session.timeout.ms`.
    pub session: Duration,
    /// `broker.heartbeat.interval.ms`.
    pub heartbeat: Duration,
    /// `replica.lag.time.max.ms`.
    pub replica_lag_max: Duration,
    /// `controller.quorum.election.timeout.ms`: the least time without a leader before a voter
    /// stands for election.
    pub election: Duration,
    /// `controller.quorum.request.timeout.ms`.
    pub quorum_request: Duration,
    /// `controller.socket.timeout.ms`: longest wait for a controller's answer.
    pub controller_request: Duration,
    /// `request.timeout.ms`: longest wait for an answer between brokers.
    pub request: Duration,
    /// `replica.high.watermark.checkpoint.interval.ms`.
    pub high_watermark_checkpoint: Duration,
    /// `log.flush.offset.checkpoint.interval.ms`.
    pub recovery_point_checkpoint: Duration,
    /// `log.cleaner.backoff.ms`: how often compacted logs are looked at.
    pub compaction_check: Duration,
    /// `log.retention.check.interval.ms`.
    pub retention_check: Duration,
    /// `leader.imbalance.check.interval.seconds`.
    pub imbalance_check: Duration,
    /// `controlled.shutdown.timeout.ms`: longest wait for the controller to let a broker go.
    pub controlled_shutdown: Duration,
    /// `connections.max.idle.ms`.
    pub connection_idle: Duration,
    /// `connection.write.timeout.ms`: a reader that takes nothing for so long is cut off.
    pub connection_write: Duration,
    /// `producer.id.expiration.ms`.
    pub producer_id_expiration: Duration,
}

/// Limits that protect memory.
#[derive(Clone, Debug)]
pub struct Limits {
    /// `socket.request.max.bytes`: the longest request.
    pub request_bytes: u32,
    /// `queued.max.request.bytes`: requests held in memory by all connections together.
    pub all_requests_bytes: usize,
    /// `response.memory.bytes`: records read for responses that are not yet sent, all together.
    pub all_responses_bytes: usize,
    /// `max.connections`: of all listeners together.
    pub connections: usize,
    /// `fetch.max.bytes`: the most that one fetch gets.
    pub fetch_bytes: usize,
}

/// Replication between brokers.
#[derive(Clone, Debug)]
pub struct Fetching {
    /// `replica.fetch.wait.max.ms`.
    pub wait_max: Duration,
    /// `replica.fetch.min.bytes`.
    pub min_bytes: i32,
    /// `replica.fetch.max.bytes`: of a partition in one fetch.
    pub partition_bytes: i32,
    /// `replica.fetch.response.max.bytes`.
    pub response_bytes: i32,
    /// `replica.fetch.backoff.ms`.
    pub backoff: Duration,
    /// `replica.socket.timeout.ms`.
    pub socket_timeout: Duration,
}

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {reason}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Settings that are wrong, all of them.
    #[error("the configuration cannot be used:\n  {}", .0.join("\n  "))]
    Wrong(Vec<String>),
}

impl Config {
    /// Reads the properties file at `path`.
    ///
    /// # Errors
    /// [`ConfigError`] naming the file, or every setting that is wrong.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |reason: String| ConfigError::Read { path: path.to_owned(), reason };
        let file = std::fs::File::open(path).map_err(|error| unreadable(error.to_string()))?;
        let settings =
            java_properties::read(file).map_err(|error| unreadable(error.to_string()))?;
        Self::from_settings(settings.into_iter().collect())
    }

    /// Makes sense of `settings`. Every name must be known: a setting that would silently do
    /// nothing is an error.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] with one line for each setting that is wrong.
    pub fn from_settings(settings: BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let told = settings.clone();
        let mut reader = Reader::new(settings);
        let Some(mut config) = Self::take(&mut reader) else {
            return Err(ConfigError::Wrong(reader.into_problems()));
        };
        config.topic_defaults =
            reader.take_where(replication::metadata::settings::is_broker_level_name);
        config.told = told;
        config.check(&mut reader);
        reader.refuse_the_rest();
        let problems = reader.into_problems();
        if problems.is_empty() { Ok(config) } else { Err(ConfigError::Wrong(problems)) }
    }

    fn take(reader: &mut Reader) -> Option<Self> {
        let node = reader.required("node.id", |text| {
            text.parse().ok().filter(|id| *id >= 0).map(NodeId).ok_or("a number from 0 on")
        });
        let roles = reader.or("process.roles", Roles { broker: true, controller: true }, roles);
        let voters = reader.required("controller.quorum.voters", listeners::voters);
        let listeners = reader.required("listeners", listeners::listeners);
        let advertised = reader.optional("advertised.listeners", listeners::listeners);
        reader.optional("listener.security.protocol.map", plaintext_only);
        let log_dir = reader.required("log.dirs", one_folder);
        let inter_broker_listener = reader.text("inter.broker.listener.name", "BROKER");
        let controller_listener = reader.text("controller.listener.names", "CONTROLLER");
        let listeners = listeners?;
        Some(Self {
            node: node?,
            roles,
            cluster_id: reader.text("cluster.id", "highwater"),
            voters: voters?,
            advertised: advertised.unwrap_or_else(|| listeners.clone()),
            listeners,
            inter_broker_listener,
            controller_listener,
            log_dir: log_dir?,
            durability: reader.or("log.durability", Durability::PageCache, durability),
            admin: reader.optional("admin.listener", |text| {
                text.parse().map_err(|_| "an address and a port, as 127.0.0.1:9644")
            }),
            threads: reader.number("num.io.threads", 4, 1),
            times: Times::take(reader),
            limits: Limits::take(reader),
            fetching: Fetching::take(reader),
            offsets_topic_partitions: reader.number("offsets.topic.num.partitions", 50, 1),
            offsets_topic_replication_factor: reader.number(
                "offsets.topic.replication.factor",
                3,
                1,
            ),
            default_replication_factor: reader.number("default.replication.factor", 1, 1),
            default_partitions: reader.number("num.partitions", 1, 1),
            auto_create_topics: reader.flag("auto.create.topics.enable", true),
            auto_leader_rebalance: reader.flag("auto.leader.rebalance.enable", true),
            eligible_leader_replicas: reader.flag("eligible.leader.replicas.enable", true),
            groups: groups(reader),
            offsets_commit_limit: reader.millis("offsets.commit.timeout.ms", 5_000),
            #[cfg(feature = "seeded-bugs")]
            seeded_bugs: reader.or("seeded.bugs", Vec::new(), seeded_bugs),
            told: BTreeMap::new(),
            topic_defaults: BTreeMap::new(),
        })
    }

    fn check(&self, reader: &mut Reader) {
        let names: BTreeSet<&str> = self.listeners.iter().map(|l| l.name.as_str()).collect();
        if self.roles.broker && !names.contains(self.inter_broker_listener.as_str()) {
            reader.problem(format!(
                "inter.broker.listener.name is {}, and listeners has no such name",
                self.inter_broker_listener
            ));
        }
        if self.roles.controller && !names.contains(self.controller_listener.as_str()) {
            reader.problem(format!(
                "controller.listener.names is {}, and listeners has no such name",
                self.controller_listener
            ));
        }
        if self.roles.controller != self.voters.contains_key(&self.node) {
            reader.problem(format!(
                "node {} {} in controller.quorum.voters, and process.roles says otherwise",
                self.node,
                if self.roles.controller { "is not" } else { "is" }
            ));
        }
        if self.times.heartbeat * 2 > self.times.session {
            reader.problem(
                "broker.heartbeat.interval.ms must be at most half of broker.session.timeout.ms"
                    .to_owned(),
            );
        }
    }

    /// Where other nodes reach this one's metadata log: controllers on their own listener, pure
    /// brokers on the brokers' one.
    pub fn quorum_address(&self) -> String {
        let name = if self.roles.controller {
            &self.controller_listener
        } else {
            &self.inter_broker_listener
        };
        self.advertised
            .iter()
            .find(|listener| listener.name == *name)
            .map_or_else(String::new, |listener| listener.address.to_string())
    }

    /// What clients and brokers may connect to, as told to the controller.
    pub fn broker_listeners(&self) -> impl Iterator<Item = &Listener> {
        self.advertised.iter().filter(|listener| listener.name != self.controller_listener)
    }
}

#[cfg(feature = "seeded-bugs")]
fn seeded_bugs(text: &str) -> Result<Vec<replication::seeded::Bug>, &'static str> {
    let named = |name: &str| replication::seeded::Bug::named(name.trim());
    text.split(',').map(|name| named(name).ok_or("names of seeded bugs, with commas")).collect()
}

impl Times {
    fn take(reader: &mut Reader) -> Self {
        Self {
            session: reader.millis("broker.session.timeout.ms", 9_000),
            heartbeat: reader.millis("broker.heartbeat.interval.ms", 2_000),
            replica_lag_max: reader.millis("replica.lag.time.max.ms", 30_000),
            election: reader.millis("controller.quorum.election.timeout.ms", 1_000),
            quorum_request: reader.millis("controller.quorum.request.timeout.ms", 2_000),
            controller_request: reader.millis("controller.socket.timeout.ms", 30_000),
            request: reader.millis("request.timeout.ms", 30_000),
            high_watermark_checkpoint: reader
                .millis("replica.high.watermark.checkpoint.interval.ms", 5_000),
            recovery_point_checkpoint: reader
                .millis("log.flush.offset.checkpoint.interval.ms", 60_000),
            compaction_check: reader.millis("log.cleaner.backoff.ms", 15_000),
            retention_check: reader.millis("log.retention.check.interval.ms", 300_000),
            imbalance_check: Duration::from_secs(reader.number(
                "leader.imbalance.check.interval.seconds",
                300,
                1,
            )),
            controlled_shutdown: reader.millis("controlled.shutdown.timeout.ms", 30_000),
            connection_idle: reader.millis("connections.max.idle.ms", 600_000),
            connection_write: reader.millis("connection.write.timeout.ms", 30_000),
            producer_id_expiration: reader.millis("producer.id.expiration.ms", 86_400_000),
        }
    }
}

impl Limits {
    fn take(reader: &mut Reader) -> Self {
        Self {
            request_bytes: reader.number("socket.request.max.bytes", 100 * 1024 * 1024, 1024),
            all_requests_bytes: reader.number(
                "queued.max.request.bytes",
                256 * 1024 * 1024,
                1024 * 1024,
            ),
            all_responses_bytes: reader.number(
                "response.memory.bytes",
                256 * 1024 * 1024,
                1024 * 1024,
            ),
            connections: reader.number("max.connections", 10_000, 1),
            fetch_bytes: reader.number("fetch.max.bytes", 55 * 1024 * 1024, 1024),
        }
    }
}

impl Fetching {
    fn take(reader: &mut Reader) -> Self {
        Self {
            wait_max: reader.millis("replica.fetch.wait.max.ms", 500),
            min_bytes: reader.number("replica.fetch.min.bytes", 1, 1),
            partition_bytes: reader.number("replica.fetch.max.bytes", 1024 * 1024, 1),
            response_bytes: reader.number("replica.fetch.response.max.bytes", 10 * 1024 * 1024, 1),
            backoff: reader.millis("replica.fetch.backoff.ms", 1_000),
            socket_timeout: reader.millis("replica.socket.timeout.ms", 30_000),
        }
    }
}

fn groups(reader: &mut Reader) -> GroupSettings {
    let defaults = GroupSettings::default();
    let delay_ms = reader.number("group.initial.rebalance.delay.ms", 3_000, 0);
    GroupSettings {
        initial_rebalance_delay: Duration::from_millis(delay_ms),
        min_session: reader.millis("group.min.session.timeout.ms", 6_000),
        max_session: reader.millis("group.max.session.timeout.ms", 1_800_000),
        max_size: reader.number("group.max.size", defaults.max_size, 1),
        metadata_max_bytes: reader.number("offset.metadata.max.bytes", 4096, 0),
        offsets_retention: Duration::from_secs(
            60 * reader.number::<u64>("offsets.retention.minutes", 7 * 24 * 60, 1),
        ),
        retention_check: reader.millis("offsets.retention.check.interval.ms", 600_000),
    }
}

fn roles(text: &str) -> Result<Roles, &'static str> {
    let names: BTreeSet<&str> = text.split(',').map(str::trim).collect();
    if names.iter().any(|name| !["broker", "controller"].contains(name)) {
        return Err("broker, controller, or both separated by a comma");
    }
    Ok(Roles { broker: names.contains("broker"), controller: names.contains("controller") })
}

fn durability(text: &str) -> Result<Durability, &'static str> {
    match text {
        "page-cache" => Ok(Durability::PageCache),
        "fsync" => Ok(Durability::Fsync),
        _ => Err("page-cache or fsync"),
    }
}

fn plaintext_only(text: &str) -> Result<(), &'static str> {
    let plain = text.split(',').all(|pair| pair.trim().ends_with(":PLAINTEXT"));
    if plain { Ok(()) } else { Err("NAME:PLAINTEXT for each listener; nothing else is spoken") }
}

fn one_folder(text: &str) -> Result<PathBuf, &'static str> {
    if text.contains(',') {
        return Err("one folder; several are not supported");
    }
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err("an absolute path") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(more: &[(&str, &str)]) -> BTreeMap<String, String> {
        [
            ("node.id", "2"),
            ("controller.quorum.voters", "1@10.0.0.11:9093,2@10.0.0.12:9093"),
            (
                "listeners",
                "CLIENT://10.0.0.12:9092,BROKER://10.0.0.12:9091,CONTROLLER://10.0.0.12:9093",
            ),
            ("log.dirs", "/data"),
        ]
        .iter()
        .chain(more)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
    }

    fn problems(more: &[(&str, &str)]) -> String {
        Config::from_settings(settings(more)).unwrap_err().to_string()
    }

    #[test]
    fn the_least_that_must_be_said_is_enough() {
        let config = Config::from_settings(settings(&[])).unwrap();
        assert_eq!(config.node, NodeId(2));
        assert_eq!(config.times.session, Duration::from_secs(9));
        assert_eq!(config.quorum_address(), "10.0.0.12:9093");
        assert_eq!(config.broker_listeners().count(), 2);
        assert_eq!(config.durability, Durability::PageCache);
    }

    #[test]
    fn topic_defaults_and_group_settings_go_to_whom_they_concern() {
        let config = Config::from_settings(settings(&[
            ("min.insync.replicas", "2"),
            ("log.segment.bytes", "1048576"),
            ("group.initial.rebalance.delay.ms", "0"),
        ]))
        .unwrap();
        assert_eq!(config.topic_defaults["min.insync.replicas"], "2");
        assert_eq!(config.topic_defaults["log.segment.bytes"], "1048576");
        assert_eq!(config.groups.initial_rebalance_delay, Duration::ZERO);
    }

    #[test]
    fn every_problem_is_named_at_once() {
        let text = problems(&[
            ("log.durability", "maybe"),
            ("broker.heartbeat.interval.ms", "-3"),
            ("process.roles", "broker,king"),
        ]);
        for part in ["log.durability", "broker.heartbeat.interval.ms", "process.roles"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(problems(&[("listners", "x")]).contains("listners"));
        assert!(problems(&[("process.roles", "broker")]).contains("controller.quorum.voters"));
        assert!(problems(&[("inter.broker.listener.name", "INSIDE")]).contains("INSIDE"));
    }
}
