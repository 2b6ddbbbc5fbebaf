//! The command line, in the low form in which it is written. `plan.rs` makes sense of it.

mod prove;
mod scenario;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::prove::ProveArgs;
pub(crate) use self::scenario::{ScenarioArgs, ScenarioCommand};
use crate::bench::{Measure, RecordSize};

/// Breaks Kafka-compatible clusters and says whether they kept their promises.
#[derive(Debug, Parser)]
#[command(name = "highwater", version, about, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 valid, 1 invalid, 2 unknown, 64 usage, 65 bad input data, \
                        69 cluster not available, 70 internal error.")]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a workload against a cluster, break the cluster, and judge what happened.
    Test(Box<TestArgs>),
    /// Judge a stored history: the same verdict as the run gave, from the file alone.
    Check(CheckArgs),
    /// List stored runs with their verdicts.
    Runs(RunsArgs),
    /// Print one stored run.
    Show(ShowArgs),
    /// Bring a cluster up to work with by hand, look at it, and take it down.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Run one node of the in-repo broker, until it is told to stop.
    Broker(BrokerArgs),
    /// Build the images of the docker backend.
    #[command(subcommand)]
    Image(ImageCommand),
    /// Play named incidents step by step, and compare the verdict with the expected one.
    #[command(subcommand)]
    Scenario(ScenarioCommand),
    /// Switch bugs on in the in-repo broker, one by one, and show that each is caught. Exit code 0: all
    /// were, and every control was clean; 1: otherwise.
    Prove(Box<ProveArgs>),
    /// Measure systems against each other: same machine, same settings, in turn within one run.
    Bench(Box<BenchArgs>),
    /// List the faults, and whether each can run here.
    Nemeses,
    /// List the workloads, and whether each can run here.
    Workloads,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Human,
    /// For machines: one JSON document on standard output.
    Json,
}

/// Where nodes live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendChoice {
    /// Processes in namespaces of their own; needs no daemon and no root.
    #[default]
    Namespaces,
    /// Containers of a Docker engine.
    Docker,
}

impl BackendChoice {
    /// Its name in plans.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Docker => "docker",
        }
    }
}

/// What is under test and where it lives.
#[derive(Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ClusterArgs {
    /// System under test: highwater (the in-repo broker), kafka, or kafka:VERSION.
    #[arg(long, default_value = "highwater", value_name = "NAME[:VERSION]")]
    pub(crate) system: String,
    /// Where the nodes live.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) backend: BackendChoice,
    /// Number of brokers.
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub(crate) brokers: u32,
    /// Number of controllers on nodes of their own; 0: the first brokers are controllers too.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) controllers: u32,
    /// Override a setting of every node, e.g. unclean.leader.election.enable=true. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) system_config: Vec<String>,
    /// Keep the system's own time-outs instead of shorter, fault-friendly ones.
    #[arg(long)]
    pub(crate) stock_timeouts: bool,
    /// Use this unpacked Kafka distribution (a folder with libs/) instead of resolving one.
    #[arg(long, env = "KAFKA_HOME", value_name = "DIR")]
    pub(crate) kafka_home: Option<PathBuf>,
    /// Use this image (docker backend), e.g. apache/kafka:4.1.1.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) kafka_image: Option<String>,
    /// Longest time the cluster may take until every broker is registered and every partition
    /// of the test is at full ISR.
    #[arg(long, default_value = "120s", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) ready_limit: Duration,
}

/// What clients do.
#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct WorkloadArgs {
    /// What clients do; see `highwater workloads`.
    #[arg(long, default_value = "queue", value_name = "NAME")]
    pub(crate) workload: String,
    /// How long clients run and faults strike.
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) time_limit: Duration,
    /// Operations a second in all, asked for whether or not earlier ones are answered.
    #[arg(long, default_value_t = 1000.0, value_name = "N")]
    pub(crate) rate: f64,
    /// Share of the operations that are polls.
    #[arg(long, default_value_t = 0.1, value_name = "0..1")]
    pub(crate) poll_share: f64,
    /// Topics, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "orders,payments", value_name = "NAMES")]
    pub(crate) topics: Vec<String>,
    /// Partitions of each topic.
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub(crate) partitions: u32,
    /// Replicas of each partition; default: 3, or the number of brokers if that is less.
    #[arg(long, value_name = "N")]
    pub(crate) replication_factor: Option<u32>,
    /// Override a setting of the test's topics, e.g. min.insync.replicas=1. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) topic_config: Vec<String>,
    /// Producer clients; each sends for many processes at once.
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub(crate) producers: u32,
    /// Consumer clients.
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub(crate) consumers: u32,
}

/// How producers are set up.
#[derive(Debug, Args)]
#[command(next_help_heading = "Producers")]
pub(crate) struct ProducerArgs {
    /// When a send counts as acknowledged.
    #[arg(long, default_value = "all", value_parser = ["0", "1", "all"])]
    pub(crate) acks: String,
    /// Idempotent producers; default: on where the other settings allow it.
    #[arg(long, value_name = "BOOL")]
    pub(crate) idempotence: Option<bool>,
    /// How long a batch waits to fill up.
    #[arg(long, default_value = "5ms", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) linger: Duration,
    /// Retries of a send; default: with idempotence as many as fit into the delivery time-out,
    /// without it none, since each could write the record again.
    #[arg(long, value_name = "N")]
    pub(crate) retries: Option<u32>,
    /// Requests in flight to one broker. With more than one, librdkafka's own recovery from a failed
    /// batch may write records twice.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) max_in_flight: u32,
    /// After this a send without an answer ends `info`.
    #[arg(long, default_value = "3s", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) delivery_timeout: Duration,
    /// none, gzip, snappy or lz4.
    #[arg(long, default_value = "none", value_parser = ["none", "gzip", "snappy", "lz4"])]
    pub(crate) compression: String,
    /// Any other librdkafka setting of producers. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) producer_config: Vec<String>,
}

/// How consumers are set up.
#[derive(Debug, Args)]
#[command(next_help_heading = "Consumers")]
pub(crate) struct ConsumerArgs {
    /// assign: each picks its partitions; subscribe: one group; mixed: half of each.
    #[arg(long, default_value = "mixed", value_parser = ["assign", "subscribe", "mixed"])]
    pub(crate) consumer_mode: String,
    /// Commit what was polled at the end of each poll.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub(crate) commits: bool,
    /// Mean time between two re-assignments of a consumer; 0s: never.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) reassign_every: Duration,
    /// Mean time between two crashes of a consumer; 0s: never.
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) crash_every: Duration,
    /// Any other librdkafka setting of consumers. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) consumer_config: Vec<String>,
}

/// What goes wrong.
#[derive(Debug, Args)]
#[command(next_help_heading = "Nemesis")]
pub(crate) struct NemesisArgs {
    /// Faults to rotate through, separated by commas, or none; see `highwater nemeses`.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "kill,pause,partition",
        value_name = "FAULTS"
    )]
    pub(crate) nemesis: Vec<String>,
    /// From one fault's beginning to the next one's.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) nemesis_interval: Duration,
    /// Whom to strike, separated by commas: one, minority, majority, all, random, leader[:KEY],
    /// followers[:KEY], controller, or nodes such as n1+n3. Default: any of these.
    #[arg(long, value_delimiter = ',', value_name = "TARGETS")]
    pub(crate) target: Vec<String>,
    /// Shapes of partitions, separated by commas: isolate-one, halves, majorities-ring, bridge,
    /// one-way, leader-from-followers, leader-from-controllers, clients-from-leader. Default:
    /// all that fit the cluster.
    #[arg(long, value_delimiter = ',', value_name = "SHAPES")]
    pub(crate) partition: Vec<String>,
    /// Steps by hand instead of a rotation: `5s kill followers:orders-0 as f; 15s heal f`, or
    /// @FILE to read them from a file.
    #[arg(long, value_name = "STEPS|@FILE", conflicts_with_all = ["nemesis", "nemesis_interval", "target", "partition"])]
    pub(crate) nemesis_script: Option<String>,
    /// Longest time the cluster may take to recover once all is healed.
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) recovery_limit: Duration,
}

/// Arguments of `test`.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    pub(crate) workload: WorkloadArgs,
    #[command(flatten)]
    pub(crate) producer: ProducerArgs,
    #[command(flatten)]
    pub(crate) consumer: ConsumerArgs,
    #[command(flatten)]
    pub(crate) nemesis: NemesisArgs,
    /// Every random choice derives from it; default: a fresh one, printed and recorded.
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub(crate) seed: Option<u64>,
    /// Name under which the run is stored; default: SYSTEM-WORKLOAD.
    #[arg(long, value_name = "NAME", help_heading = "Run")]
    pub(crate) name: Option<String>,
    /// Where runs are stored.
    #[arg(long, default_value = "results", value_name = "DIR", help_heading = "Run")]
    pub(crate) results: PathBuf,
    /// How often, about, each node's replicas are looked at, for the checkers that judge what replicas
    /// say of themselves; 0s: never.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Run")]
    pub(crate) probe_interval: Duration,
    /// Keep the nodes' data folders; default: only when the verdict is not valid.
    #[arg(long, help_heading = "Run")]
    pub(crate) keep_data: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What is printed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print the verdict and nothing else.
    #[arg(long, short, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print more of what is going on; twice: everything.
    #[arg(long, short, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A run's folder, or a history.jsonl or history.jsonl.zst.
    pub(crate) path: PathBuf,
    /// How the verdict is printed.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

/// Arguments of `runs`.
#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// Where runs are stored.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// How the list is printed.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

/// Arguments of `show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// A run: its folder, NAME/TIMESTAMP, NAME for its latest, or `latest`.
    #[arg(default_value = "latest")]
    pub(crate) run: String,
    /// Where runs are stored.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// How the run is printed.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(after_help = "Each turn of a system has a cluster of its own: three brokers that are \
                        controllers too, replication factor 3, min.insync.replicas 2. Close other \
                        programs, and build with --release.")]
pub(crate) struct BenchArgs {
    /// Systems to measure, separated by commas, each NAME or NAME:VERSION; the first one is
    /// compared with the others.
    #[arg(long, value_delimiter = ',', default_value = "highwater,kafka", value_name = "NAMES")]
    pub(crate) systems: Vec<String>,
    /// How often each system has its turn.
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub(crate) rounds: u32,
    /// Record sizes of the produce and consume phases, separated by commas.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "100B,1KiB,10KiB",
        value_name = "SIZES",
        value_parser = RecordSize::parse
    )]
    pub(crate) sizes: Vec<RecordSize>,
    /// How long each of produce and latency is measured.
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) duration: Duration,
    /// How long each of them runs before that.
    #[arg(long, default_value = "3s", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) warm_up: Duration,
    /// Measure these only, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MEASURES")]
    pub(crate) only: Vec<Measure>,
    /// Partitions of each topic.
    #[arg(long, default_value_t = 6, value_name = "N")]
    pub(crate) partitions: u32,
    /// Records a second of the latency phase, of 1 KiB each.
    #[arg(long, default_value_t = 500, value_name = "N")]
    pub(crate) latency_rate: u32,
    /// Leaders killed in each turn, one after the other; the last one, if there are several, leads
    /// the metadata quorum too.
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub(crate) kills: u32,
    /// Where the nodes live.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) backend: BackendChoice,
    /// Override a setting of every node of every system. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) system_config: Vec<String>,
    /// Keep the systems' own time-outs instead of shorter, fault-friendly ones.
    #[arg(long)]
    pub(crate) stock_timeouts: bool,
    /// Use this unpacked Kafka distribution (a folder with libs/) instead of resolving one.
    #[arg(long, env = "KAFKA_HOME", value_name = "DIR")]
    pub(crate) kafka_home: Option<PathBuf>,
    /// Use this image (docker backend), e.g. apache/kafka:4.1.1.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) kafka_image: Option<String>,
    /// Longest time a cluster may take to be ready.
    #[arg(long, default_value = "120s", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) ready_limit: Duration,
    /// Seed of payloads and cluster ids; default: a fresh one, recorded.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Where the folder of the bench is made: DIR/bench/TIMESTAMP.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// Write the JSON document to this file too.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Commands for working with a cluster by hand.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Start a cluster and leave it running.
    Up(ClusterUpArgs),
    /// Keep a cluster up; what `up` starts in the background.
    #[command(hide = true)]
    Hold(ClusterUpArgs),
    /// Show the cluster that is up.
    Status,
    /// Run a command inside: on a node, or beside the nodes.
    Exec(ClusterExecArgs),
    /// Take the cluster down, and remove what killed runs left behind.
    Down,
}

/// Arguments of `cluster up`.
#[derive(Debug, Args)]
pub(crate) struct ClusterUpArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Seed of the cluster's id.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Where the nodes' folders lie.
    #[arg(long, default_value = "results/cluster", value_name = "DIR", overrides_with = "dir")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `cluster exec`.
#[derive(Debug, Args)]
pub(crate) struct ClusterExecArgs {
    /// Run it in this node's namespaces (n1, n2, …); default: beside the nodes, where they can
    /// be reached.
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// The command.
    #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<String>,
}

/// Commands for images.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Build the base image and the image of the system.
    Build(ImageBuildArgs),
}

/// Arguments of `broker`.
#[derive(Debug, Args)]
pub(crate) struct BrokerArgs {
    /// Its configuration: Java properties under Kafka's names; see docs/broker.md.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
}

/// Arguments of `image build`.
#[derive(Debug, Args)]
pub(crate) struct ImageBuildArgs {
    /// System to build for: highwater, kafka, or kafka:VERSION.
    #[arg(long, default_value = "kafka", value_name = "NAME[:VERSION]")]
    pub(crate) system: String,
    /// Use this unpacked Kafka distribution (a folder with libs/) instead of resolving one.
    #[arg(long, env = "KAFKA_HOME", value_name = "DIR")]
    pub(crate) kafka_home: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
