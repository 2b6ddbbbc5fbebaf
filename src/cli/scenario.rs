//! The command line of `highwater scenario`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{BackendChoice, Format, OutputArgs};

/// What can be done with scenarios.
#[derive(Debug, Subcommand)]
pub(crate) enum ScenarioCommand {
    /// List the scenarios and what must come out of each.
    List {
        /// How the list is printed.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Play scenarios. Exit code 0: each came out as expected; 1: one did not; 2: of one nothing was shown.
    Run(Box<ScenarioArgs>),
}

/// Arguments of `scenario run`.
#[derive(Debug, Args)]
pub(crate) struct ScenarioArgs {
    /// Scenarios: all, names, NAME/VARIANT, or files that end in .toml.
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// System under test: highwater (the in-repo broker), kafka, or kafka:VERSION.
    #[arg(long, default_value = "highwater", value_name = "NAME[:VERSION]")]
    pub(crate) system: String,
    /// Where the nodes live.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) backend: BackendChoice,
    /// Override a setting of every node, over those of the scenario. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) system_config: Vec<String>,
    /// Use this unpacked Kafka distribution (a folder with libs/) instead of resolving one.
    #[arg(long, env = "KAFKA_HOME", value_name = "DIR")]
    pub(crate) kafka_home: Option<PathBuf>,
    /// Every random choice derives from it; default: a fresh one, printed and recorded.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Where runs are stored, as scenario-NAME.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// How often, about, each node's replicas are looked at; 0s: never.
    #[arg(long, default_value = "500ms", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) probe_interval: Duration,
    /// Longest time the cluster may take to recover once all is healed.
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) recovery_limit: Duration,
    /// Keep the nodes' data folders; default: only when the verdict is not valid.
    #[arg(long)]
    pub(crate) keep_data: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
