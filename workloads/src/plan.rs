//! Everything that a run of the workload `queue` can set.

use std::collections::{BTreeMap, BTreeSet};

use history::Key;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The workload `queue`: who sends and reads what, how fast, and with which settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueuePlan {
    /// Topics. They must exist before the run. Default: `orders` and `payments`.
    pub topics: Vec<String>,
    /// Partitions of each topic. Default: 4.
    pub partitions_per_topic: u32,
    /// Producer clients. Each runs many logical processes. Default: 2.
    pub producers: u32,
    /// Consumer clients; each is one process. Default: 4.
    pub consumers: u32,
    /// Operations per second in all, sends and polls together, as an open-loop Poisson
    /// schedule. Default: 1000.
    pub rate_per_s: f64,
    /// Share of the operations that are polls, from 0 to below 1. Default: 0.1.
    pub poll_share: f64,
    /// How long operations are asked for, in milliseconds. Default: 60,000.
    pub time_limit_ms: u64,
    /// Most sends without an answer, over all producers; the schedule is delayed beyond it, and
    /// the delays are counted. Default: 20,000.
    pub max_outstanding: u32,
    /// How producers are set up.
    pub producer: ProducerPlan,
    /// How consumers are set up and what they do besides polling.
    pub consumer: ConsumerPlan,
}

impl Default for QueuePlan {
    fn default() -> Self {
        Self {
            topics: vec!["orders".to_owned(), "payments".to_owned()],
            partitions_per_topic: 4,
            producers: 2,
            consumers: 4,
            rate_per_s: 1000.0,
            poll_share: 0.1,
            time_limit_ms: 60_000,
            max_outstanding: 20_000,
            producer: ProducerPlan::default(),
            consumer: ConsumerPlan::default(),
        }
    }
}

/// When a broker answers a send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Acks {
    /// Never. Such sends end `info`: nobody can know.
    #[serde(rename = "0")]
    None,
    /// When the leader has it: lost with the leader.
    #[serde(rename = "1")]
    Leader,
    /// When the whole ISR has it.
    #[default]
    #[serde(rename = "all")]
    All,
}

/// How batches are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip.
    Gzip,
    /// snappy.
    Snappy,
    /// lz4.
    Lz4,
}

/// How producers are set up. The defaults are the safe ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProducerPlan {
    /// When a send counts as acknowledged. Default: all.
    pub acks: Acks,
    /// Does the broker drop duplicates that retries make? Default (`None`): yes where the other
    /// settings allow it, which is acks=all, at least one retry and at most five requests in
    /// flight.
    pub idempotence: Option<bool>,
    /// How long a batch waits to fill up, in milliseconds. Default: 5, Kafka's own. librdkafka
    /// spins through the last fraction of a millisecond of each wait, so small batches cost CPU;
    /// one request in flight makes them grow under load.
    pub linger_ms: u32,
    /// Largest batch, in bytes. Default: 1,000,000.
    pub batch_bytes: u32,
    /// Most records in a batch. Default: 10,000.
    pub batch_records: u32,
    /// Retries of a send. Default (`None`): as many as fit into the delivery time-out with
    /// idempotence, none without, where each could write the record again.
    pub retries: Option<u32>,
    /// Most requests in flight to one broker. Default: 1; librdkafka's own is 5 with
    /// idempotence. With more, a batch that overtakes one that failed makes librdkafka change
    /// its producer epoch, and what it then sends again may be written twice (librdkafka #4953):
    /// a duplicate that is not the cluster's.
    pub max_in_flight: u32,
    /// After this a send that has no answer ends `info`, in milliseconds. With idempotence its
    /// client is given up and replaced as a whole, since one that goes on without the record
    /// may write others twice. Default: 10,000; Kafka's own is 120,000.
    pub delivery_timeout_ms: u32,
    /// How long a broker may wait for its followers before it answers, in milliseconds.
    /// Default: 5,000; Kafka's own is 30,000.
    pub request_timeout_ms: u32,
    /// Compression of batches. Default: none.
    pub compression: Compression,
    /// Further librdkafka settings, applied last.
    pub extra: BTreeMap<String, String>,
}

impl Default for ProducerPlan {
    fn default() -> Self {
        Self {
            acks: Acks::All,
            idempotence: None,
            linger_ms: 5,
            batch_bytes: 1_000_000,
            batch_records: 10_000,
            retries: None,
            max_in_flight: 1,
            delivery_timeout_ms: 10_000,
            request_timeout_ms: 5_000,
            compression: Compression::None,
            extra: BTreeMap::new(),
        }
    }
}

impl ProducerPlan {
    /// Do the other settings allow idempotence?
    const fn allows_idempotence(&self) -> bool {
        matches!(self.acks, Acks::All)
            && !matches!(self.retries, Some(0))
            && self.max_in_flight <= 5
    }

    /// Whether idempotence is in force.
    pub fn is_idempotent(&self) -> bool {
        self.idempotence.unwrap_or(self.allows_idempotence())
    }
}

/// How consumers choose what they read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConsumerMode {
    /// Each picks its partitions itself.
    Assign,
    /// All are members of one group.
    Subscribe,
    /// Consumers 0, 2, 4, … assign, the others share one group.
    #[default]
    Mixed,
}

/// Which records of transactions consumers see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Those of committed ones.
    #[default]
    ReadCommitted,
    /// All.
    ReadUncommitted,
}

/// How consumers are set up and what they do besides polling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsumerPlan {
    /// How they choose what they read. Default: mixed.
    pub mode: ConsumerMode,
    /// Is what was polled committed, at the end of polls and without waiting for the answer?
    /// Default: yes.
    pub commits: bool,
    /// Shortest time between two commits of a consumer, in milliseconds; 0 = commit at the end
    /// of every poll, which costs a replicated write each. Default: 500.
    pub commit_every_ms: u64,
    /// The group; consumers that assign commit to groups of their own, named after it.
    /// Default: `highwater`.
    pub group: String,
    /// Do group members keep their place over a crash until the session ends, as a real crash
    /// does? Without it a dropped client tells the group that it leaves. Default: yes.
    pub static_membership: bool,
    /// After this a silent group member is dropped, in milliseconds. Default: 6,000; Kafka's
    /// own is 45,000.
    pub session_timeout_ms: u32,
    /// Which records of transactions they see. Default: `read_committed`.
    pub isolation: Isolation,
    /// Most records that one poll returns. Default: 500.
    pub max_poll_records: u32,
    /// How long a poll waits for its first record, in milliseconds. Default: 5.
    pub max_poll_wait_ms: u32,
    /// Fewest bytes for which a broker answers a fetch at once. Default: 16,384; Kafka's own is
    /// 1, which costs a request for each few records.
    pub fetch_min_bytes: u32,
    /// How long a broker waits for that many bytes, in milliseconds. Default: 50.
    pub fetch_wait_ms: u32,
    /// Mean time between two assign or subscribe operations of a consumer, in milliseconds;
    /// 0 = only the first. Default: 10,000.
    pub reassign_every_ms: u64,
    /// How many of the assign operations read from the beginning, from 0 to 1. Default: 0.25.
    pub seek_to_beginning_probability: f64,
    /// Mean time between two crashes of a consumer, in milliseconds; 0 = never.
    /// Default: 30,000.
    pub crash_every_ms: u64,
    /// Further librdkafka settings, applied last.
    pub extra: BTreeMap<String, String>,
}

impl Default for ConsumerPlan {
    fn default() -> Self {
        Self {
            mode: ConsumerMode::Mixed,
            commits: true,
            commit_every_ms: 500,
            group: "highwater".to_owned(),
            static_membership: true,
            session_timeout_ms: 6_000,
            isolation: Isolation::ReadCommitted,
            max_poll_records: 500,
            max_poll_wait_ms: 5,
            fetch_min_bytes: 16_384,
            fetch_wait_ms: 50,
            reassign_every_ms: 10_000,
            seek_to_beginning_probability: 0.25,
            crash_every_ms: 30_000,
            extra: BTreeMap::new(),
        }
    }
}

impl ConsumerPlan {
    /// The group to which consumer `number` (from 0) commits.
    pub fn group_of(&self, number: u32) -> String {
        if self.subscribes(number) {
            self.group.clone()
        } else {
            format!("{}-assign-{number}", self.group)
        }
    }

    /// Is consumer `number` (from 0) a member of the group?
    pub const fn subscribes(&self, number: u32) -> bool {
        match self.mode {
            ConsumerMode::Assign => false,
            ConsumerMode::Subscribe => true,
            ConsumerMode::Mixed => number % 2 == 1,
        }
    }
}

/// A setting that cannot be run; the message says which, and what would do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{setting}: {reason}")]
pub struct PlanError {
    /// The field.
    pub setting: &'static str,
    /// What is wrong, and what is allowed.
    pub reason: String,
}

impl PlanError {
    fn new(setting: &'static str, reason: impl Into<String>) -> Self {
        Self { setting, reason: reason.into() }
    }
}

/// Fails with `reason` unless `holds`.
fn require(
    holds: bool,
    setting: &'static str,
    reason: impl FnOnce() -> String,
) -> Result<(), PlanError> {
    if holds { Ok(()) } else { Err(PlanError::new(setting, reason())) }
}

/// Most clients of either kind: each costs several threads.
const MAX_CLIENTS: u32 = 256;
/// Most partitions in all.
const MAX_KEYS: u64 = 10_000;

impl QueuePlan {
    /// Every key, topic by topic.
    pub fn keys(&self) -> Vec<Key> {
        self.topics
            .iter()
            .flat_map(|topic| {
                (0..self.partitions_per_topic)
                    .filter_map(|partition| i32::try_from(partition).ok())
                    .map(|partition| Key::new(topic, partition))
            })
            .collect()
    }

    /// Sends per second.
    pub fn send_rate_per_s(&self) -> f64 {
        self.rate_per_s * (1.0 - self.poll_share)
    }

    /// Polls per second of one consumer; 0 without consumers.
    pub fn poll_rate_per_s(&self) -> f64 {
        if self.consumers == 0 {
            0.0
        } else {
            self.rate_per_s * self.poll_share / f64::from(self.consumers)
        }
    }

    /// Checks that the plan can be run.
    ///
    /// # Errors
    /// The first setting that is out of range or contradicts another.
    pub fn validate(&self) -> Result<(), PlanError> {
        self.validate_topics()?;
        self.validate_load()?;
        self.producer.validate()?;
        self.consumer.validate()
    }

    fn validate_topics(&self) -> Result<(), PlanError> {
        require(!self.topics.is_empty(), "topics", || "at least one is needed".to_owned())?;
        let mut seen = BTreeSet::new();
        for topic in &self.topics {
            let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            require(
                (1..=249).contains(&topic.len())
                    && topic.chars().all(legal)
                    && topic != "."
                    && topic != "..",
                "topics",
                || {
                    format!(
                        "`{topic}` is not a topic name; 1 to 249 letters, digits, `.`, `_` and `-`"
                    )
                },
            )?;
            require(seen.insert(topic), "topics", || format!("`{topic}` is named twice"))?;
        }
        let keys = self.topics.len() as u64 * u64::from(self.partitions_per_topic);
        require((1..=MAX_KEYS).contains(&keys), "partitions_per_topic", || {
            format!("1 to {MAX_KEYS} partitions in all are possible, not {keys}")
        })
    }

    fn validate_load(&self) -> Result<(), PlanError> {
        require(
            self.rate_per_s.is_finite() && self.rate_per_s > 0.0 && self.rate_per_s <= 1e6,
            "rate_per_s",
            || format!("must be above 0 and at most 1,000,000, not {}", self.rate_per_s),
        )?;
        require((0.0..1.0).contains(&self.poll_share), "poll_share", || {
            format!("must be from 0 to below 1, not {}", self.poll_share)
        })?;
        require((1..=MAX_CLIENTS).contains(&self.producers), "producers", || {
            format!("must be from 1 to {MAX_CLIENTS}, not {}", self.producers)
        })?;
        require(self.consumers <= MAX_CLIENTS, "consumers", || {
            format!("must be at most {MAX_CLIENTS}, not {}", self.consumers)
        })?;
        require(self.time_limit_ms > 0, "time_limit_ms", || "must be above 0".to_owned())?;
        require((1..=100_000).contains(&self.max_outstanding), "max_outstanding", || {
            format!(
                "must be from 1 to 100,000 (what one client can hold), not {}",
                self.max_outstanding
            )
        })
    }
}

impl ProducerPlan {
    fn validate(&self) -> Result<(), PlanError> {
        require(
            self.idempotence != Some(true) || self.allows_idempotence(),
            "producer.idempotence",
            || {
                "needs acks=all, at least one retry and at most 5 requests in flight; change \
                 these, or switch idempotence off"
                    .to_owned()
            },
        )?;
        require((1..=1_000_000).contains(&self.max_in_flight), "producer.max_in_flight", || {
            format!("must be from 1 to 1,000,000, not {}", self.max_in_flight)
        })?;
        require(self.linger_ms < self.delivery_timeout_ms, "producer.delivery_timeout_ms", || {
            format!(
                "must be longer than linger_ms ({}), not {}",
                self.linger_ms, self.delivery_timeout_ms
            )
        })?;
        require(
            (1..=900_000).contains(&self.request_timeout_ms),
            "producer.request_timeout_ms",
            || format!("must be from 1 to 900,000, not {}", self.request_timeout_ms),
        )
    }
}

impl ConsumerPlan {
    fn validate(&self) -> Result<(), PlanError> {
        require(!self.group.is_empty(), "consumer.group", || "must not be empty".to_owned())?;
        require(
            (0.0..=1.0).contains(&self.seek_to_beginning_probability),
            "consumer.seek_to_beginning_probability",
            || format!("must be from 0 to 1, not {}", self.seek_to_beginning_probability),
        )?;
        require(
            (1..=1_000_000).contains(&self.max_poll_records),
            "consumer.max_poll_records",
            || format!("must be from 1 to 1,000,000, not {}", self.max_poll_records),
        )?;
        require((1..=60_000).contains(&self.max_poll_wait_ms), "consumer.max_poll_wait_ms", || {
            format!("must be from 1 to 60,000, not {}", self.max_poll_wait_ms)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_plan_is_valid_and_survives_json() {
        let plan = QueuePlan::default();
        plan.validate().unwrap();
        assert!(plan.producer.is_idempotent());
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<QueuePlan>(&json).unwrap(), plan);
        assert_eq!(serde_json::from_str::<QueuePlan>("{}").unwrap(), plan);
    }

    #[test]
    fn idempotence_follows_the_other_settings_unless_it_is_set() {
        let mut producer = ProducerPlan { acks: Acks::Leader, ..ProducerPlan::default() };
        assert!(!producer.is_idempotent());
        producer.validate().unwrap();
        producer.idempotence = Some(true);
        assert_eq!(producer.validate().unwrap_err().setting, "producer.idempotence");
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let refused = |change: fn(&mut QueuePlan)| {
            let mut plan = QueuePlan::default();
            change(&mut plan);
            plan.validate().unwrap_err().setting
        };
        assert_eq!(refused(|p| p.topics.clear()), "topics");
        assert_eq!(refused(|p| p.topics = vec!["a b".into()]), "topics");
        assert_eq!(refused(|p| p.topics = vec!["a".into(), "a".into()]), "topics");
        assert_eq!(refused(|p| p.partitions_per_topic = 0), "partitions_per_topic");
        assert_eq!(refused(|p| p.rate_per_s = 0.0), "rate_per_s");
        assert_eq!(refused(|p| p.rate_per_s = f64::NAN), "rate_per_s");
        assert_eq!(refused(|p| p.poll_share = 1.0), "poll_share");
        assert_eq!(refused(|p| p.producers = 0), "producers");
        assert_eq!(refused(|p| p.consumers = 9999), "consumers");
        assert_eq!(refused(|p| p.time_limit_ms = 0), "time_limit_ms");
        assert_eq!(refused(|p| p.max_outstanding = 0), "max_outstanding");
        assert_eq!(refused(|p| p.producer.linger_ms = 10_000), "producer.delivery_timeout_ms");
        assert_eq!(refused(|p| p.consumer.group.clear()), "consumer.group");
    }

    #[test]
    fn keys_are_topics_times_partitions() {
        let plan = QueuePlan {
            topics: vec!["a".into(), "b-c".into()],
            partitions_per_topic: 2,
            ..QueuePlan::default()
        };
        let keys: Vec<String> = plan.keys().iter().map(ToString::to_string).collect();
        assert_eq!(keys, ["a-0", "a-1", "b-c-0", "b-c-1"]);
    }
}
