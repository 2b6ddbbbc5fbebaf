//! The command line of `highwater prove`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::OutputArgs;

/// Arguments of `prove`.
#[derive(Debug, Args)]
pub(crate) struct ProveArgs {
    /// Bugs to put to the proof, separated by commas; default: all.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) bugs: Vec<String>,
    /// Longest time until a bug is caught, all tries together.
    #[arg(long, default_value = "120s", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) budget: Duration,
    /// What only the observer sees does not count: how far clients alone can see.
    #[arg(long)]
    pub(crate) black_box_only: bool,
    /// How many bugs at the same time.
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub(crate) jobs: usize,
    /// Every random choice derives from it; default: a fresh one, printed and recorded.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Where runs are stored, under proof/; the table lies there as proof.json and proof.md.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// Write the table as a page of the book here, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) page: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
