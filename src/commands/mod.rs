//! What each command does.

mod bench;
mod broker;
mod cluster;
mod image;
mod lists;
mod prove;
mod scenario;
mod stored;
mod test;

use std::io::{self, Write as _};
use std::process::ExitStatus;

use ::cluster::namespaces::sandbox;

use crate::cli::{Cli, Command};
use crate::exit::{Exit, Failure};

/// Does what was asked.
///
/// # Errors
/// [`Failure`], which says how the program ends.
pub(crate) fn dispatch(cli: Cli) -> Result<Exit, Failure> {
    match cli.command {
        Command::Test(args) => test::test(&args),
        Command::Broker(args) => broker::broker(&args),
        Command::Cluster(command) => cluster::dispatch(command),
        Command::Image(command) => image::dispatch(&command),
        Command::Prove(args) => prove::prove(&args),
        Command::Scenario(command) => scenario::dispatch(&command),
        Command::Bench(args) => bench::bench(&args),
        Command::Nemeses => Ok(lists::nemeses()),
        Command::Workloads => Ok(lists::workloads()),
        Command::Check(args) => stored::check(&args),
        Command::Runs(args) => stored::runs(&args),
        Command::Show(args) => stored::show(&args),
    }
}

/// Runs this program again inside namespaces of its own, and ends as it ends.
fn in_sandbox() -> Result<Exit, Failure> {
    sandbox::run_inside().map_err(Failure::from).and_then(exit_of)
}

/// Makes ready for clusters: inside the namespaces, or with the engine.
fn settle(in_namespaces: bool) -> Result<(), Failure> {
    if in_namespaces {
        return sandbox::settle_inside().map_err(Failure::from);
    }
    crate::preflight::docker()
}

fn exit_of(status: ExitStatus) -> Result<Exit, Failure> {
    let exits = [
        Exit::Valid,
        Exit::Invalid,
        Exit::Unknown,
        Exit::Usage,
        Exit::BadData,
        Exit::Unavailable,
        Exit::Internal,
    ];
    status.code().and_then(|code| exits.into_iter().find(|exit| *exit as i32 == code)).ok_or_else(
        || Failure::internal(format!("the driver inside the namespaces ended: {status}")),
    )
}

/// The runtime that commands run on.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("no threads can be started: {error}")))
}

/// Prints a result on standard output.
fn print(text: &str) {
    // Whoever closed our output does not want to read on.
    let _ = writeln!(io::stdout().lock(), "{}", text.trim_end());
}

/// Tells, on standard error, what takes time before anything is logged.
fn tell(text: &str) {
    let _ = writeln!(io::stderr().lock(), "highwater: {text}");
}
