//! What is going to be measured: one serialisable value, made from the command line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::metric::Measure;
use crate::cli::{BenchArgs, ClusterArgs};
use crate::exit::Failure;
use crate::plan::{ClusterPlan, fresh_seed};

/// Brokers of each cluster; all of them are controllers too.
const BROKERS: u32 = 3;
/// Replicas of each partition.
pub(crate) const REPLICATION_FACTOR: i16 = 3;
/// Payload of a record of the latency phase.
pub(crate) const LATENCY_RECORD_BYTES: u32 = 1024;
/// Largest payload: with its envelope it fits into the largest batch of brokers and clients.
const MOST_RECORD_BYTES: u32 = 900_000;
/// Longest of the times that a flag can set.
const LONGEST: Duration = Duration::from_secs(3600);

/// The payload of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordSize(u32);

impl RecordSize {
    /// Its bytes.
    pub(crate) const fn bytes(self) -> u32 {
        self.0
    }

    /// Reads `100B`, `1KiB` or a number of bytes.
    ///
    /// # Errors
    /// In words, what would do.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit: u32 = match &text[digits.len()..] {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            other => return Err(format!("`{other}` is not a unit; write 100B or 10KiB")),
        };
        let bytes = digits.parse::<u32>().ok().and_then(|number| number.checked_mul(unit));
        match bytes {
            Some(bytes) if (1..=MOST_RECORD_BYTES).contains(&bytes) => Ok(Self(bytes)),
            _ => Err(format!("from 1B to {MOST_RECORD_BYTES}B are possible")),
        }
    }
}

impl fmt::Display for RecordSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1 << 10) {
            write!(f, "{}KiB", self.0 >> 10)
        } else {
            write!(f, "{}B", self.0)
        }
    }
}

impl Serialize for RecordSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A system that takes part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct SystemPlan {
    /// As it was named on the command line.
    pub(crate) label: String,
    /// Its cluster.
    pub(crate) cluster: ClusterPlan,
}

/// A whole bench.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct BenchPlan {
    /// Of payloads and cluster ids.
    pub(crate) seed: u64,
    /// Who takes part. The first one is compared with the others.
    pub(crate) systems: Vec<SystemPlan>,
    /// Turns of each.
    pub(crate) rounds: u32,
    /// What is measured.
    pub(crate) measures: BTreeSet<Measure>,
    /// Records of the produce and consume phases, in the order given.
    pub(crate) sizes: Vec<RecordSize>,
    /// How long produce and latency are measured.
    pub(crate) duration_ms: u64,
    /// How long they run before that.
    pub(crate) warm_up_ms: u64,
    /// Of each topic.
    pub(crate) partitions: u32,
    /// Replicas of each partition.
    pub(crate) replication_factor: i16,
    /// Settings of each topic.
    pub(crate) topic_config: BTreeMap<String, String>,
    /// Records a second of the latency phase.
    pub(crate) latency_rate_per_s: u32,
    /// Their payload.
    pub(crate) latency_record_bytes: u32,
    /// Leaders killed in each turn.
    pub(crate) kills: u32,
}

impl BenchPlan {
    /// Makes sense of the command line.
    ///
    /// # Errors
    /// A usage failure that names the flag and says what would do.
    pub(crate) fn from_args(args: &BenchArgs) -> Result<Self, Failure> {
        for (flag, value, least, most) in [
            ("--rounds", args.rounds, 1, 1000),
            ("--partitions", args.partitions, 1, 1000),
            ("--latency-rate", args.latency_rate, 1, 20_000),
            ("--kills", args.kills, 1, 100),
        ] {
            if !(least..=most).contains(&value) {
                return Err(Failure::usage(format!(
                    "{flag} {value}: from {least} to {most} are possible"
                )));
            }
        }
        let systems = args
            .systems
            .iter()
            .map(|system| {
                let label = system.trim().to_owned();
                ClusterPlan::from_args(&cluster_args(args, &label))
                    .map(|cluster| SystemPlan { label, cluster })
            })
            .collect::<Result<Vec<_>, _>>()?;
        for (flag, twice) in [
            ("--systems", twice(systems.iter().map(|system| &system.label)).cloned()),
            ("--sizes", twice(&args.sizes).map(ToString::to_string)),
        ] {
            if let Some(twice) = twice {
                return Err(Failure::usage(format!("{flag}: {twice} is given twice")));
            }
        }
        Ok(Self {
            seed: args.seed.unwrap_or_else(fresh_seed),
            systems,
            rounds: args.rounds,
            measures: match args.only.as_slice() {
                [] => Measure::ALL.into(),
                only => only.iter().copied().collect(),
            },
            sizes: args.sizes.clone(),
            duration_ms: millis("--duration", args.duration, 100)?,
            warm_up_ms: millis("--warm-up", args.warm_up, 0)?,
            partitions: args.partitions,
            replication_factor: REPLICATION_FACTOR,
            topic_config: topic_config(),
            latency_rate_per_s: args.latency_rate,
            latency_record_bytes: LATENCY_RECORD_BYTES,
            kills: args.kills,
        })
    }

    /// As the clients want it.
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_millis(self.duration_ms)
    }

    /// As the clients want it.
    pub(crate) fn warm_up(&self) -> Duration {
        Duration::from_millis(self.warm_up_ms)
    }
}

/// The cluster that `highwater test` would have with these flags.
fn cluster_args(args: &BenchArgs, system: &str) -> ClusterArgs {
    ClusterArgs {
        system: system.to_owned(),
        backend: args.backend,
        brokers: BROKERS,
        controllers: 0,
        system_config: args.system_config.clone(),
        stock_timeouts: args.stock_timeouts,
        kafka_home: args.kafka_home.clone(),
        kafka_image: args.kafka_image.clone(),
        ready_limit: args.ready_limit,
    }
}

/// The rig lets segments roll every few seconds so that faults meet that; here it would be the
/// measurement, so they have Kafka's own size.
fn topic_config() -> BTreeMap<String, String> {
    [("min.insync.replicas", "2"), ("segment.bytes", "1073741824")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

fn twice<T: Ord>(items: impl IntoIterator<Item = T>) -> Option<T> {
    let mut seen = BTreeSet::new();
    items.into_iter().find_map(|item| seen.replace(item))
}

fn millis(flag: &str, time: Duration, least_ms: u64) -> Result<u64, Failure> {
    match u64::try_from(time.as_millis()) {
        Ok(ms) if ms >= least_ms && time <= LONGEST => Ok(ms),
        _ => Err(Failure::usage(format!(
            "{flag}: from {least_ms}ms to {} are possible",
            humantime::format_duration(LONGEST)
        ))),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::exit::Exit;

    pub(in crate::bench) fn plan(flags: &str) -> Result<BenchPlan, Failure> {
        let words = ["highwater", "bench"].into_iter().chain(flags.split_whitespace());
        let Command::Bench(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("not a bench command")
        };
        BenchPlan::from_args(&args)
    }

    #[test]
    fn sizes_are_read_as_they_are_written() {
        for (text, bytes, told) in
            [("100B", 100, "100B"), ("1KiB", 1024, "1KiB"), ("2048", 2048, "2KiB")]
        {
            let size = RecordSize::parse(text).unwrap();
            assert_eq!((size.bytes(), size.to_string().as_str()), (bytes, told));
        }
        for text in ["", "B", "0B", "1kb", "1MiB", "-1B", "901000B", "99999999KiB"] {
            assert!(RecordSize::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_system_gets_the_same_cluster() {
        let plan = plan("--systems kafka,kafka:4.1.1 --rounds 2 --only memory,produce").unwrap();
        let [one, other] = plan.systems.as_slice() else { panic!("two systems") };
        assert_eq!((one.label.as_str(), other.label.as_str()), ("kafka", "kafka:4.1.1"));
        let same = ClusterPlan { version: one.cluster.version.clone(), ..other.cluster.clone() };
        assert_eq!(one.cluster, same);
        assert_eq!((one.cluster.brokers, one.cluster.controllers), (3, 0));
        assert_eq!(plan.measures, [Measure::Memory, Measure::Produce].into());
        assert_eq!(plan.topic_config["min.insync.replicas"], "2");
        let json = serde_json::to_value(&plan).unwrap();
        assert_eq!(json["sizes"], serde_json::json!(["100B", "1KiB", "10KiB"]));
        assert_eq!(json["measures"], serde_json::json!(["memory", "produce"]));
    }

    #[test]
    fn without_only_all_is_measured() {
        let plan = plan("--systems kafka").unwrap();
        assert_eq!(plan.measures.len(), Measure::ALL.len());
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_would_do() {
        for (flags, said) in [
            ("--systems rabbit", "there is no system `rabbit`"),
            ("--systems kafka,kafka", "--systems: kafka is given twice"),
            ("--systems kafka --sizes 1KiB,1024B", "--sizes: 1KiB is given twice"),
            ("--systems kafka --rounds 0", "--rounds 0: from 1"),
            ("--systems kafka --duration 10ms", "--duration: from 100ms to 1h"),
            ("--systems kafka --kafka-image a/b:1", "needs --backend docker"),
        ] {
            let failure = plan(flags).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.message.contains(said), "{flags}: {}", failure.message);
        }
    }
}
