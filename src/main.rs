//! Highwater breaks Kafka-compatible clusters and says whether they kept their promises.

mod bench;
mod cli;
mod commands;
mod console;
mod exit;
mod interrupt;
mod plan;
mod preflight;
mod prove;
mod recorder;
mod report;
mod run;
mod scenario;
mod store;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::Cli;
use crate::exit::Exit;

/// A broker answers with megabytes now and then; its memory shall be what it needs now.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are errors to clap, but not to people.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Valid };
            let _ = error.print();
            return exit.into();
        }
    };
    match commands::dispatch(cli) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "highwater: {failure}");
            failure.exit.into()
        }
    }
}
