//! What each command does.

mod test;

use std::process::ExitStatus;

use cluster::namespaces::sandbox;

use crate::cli::{Cli, Command};
use crate::exit::{Exit, Failure};

/// Does what was asked.
///
/// # Errors
/// [`Failure`], which says how the program ends.
pub(crate) fn dispatch(cli: Cli) -> Result<Exit, Failure> {
    match cli.command {
        Command::Test(args) => test::test(&args),
        _ => Err(Failure::internal("not yet")),
    }
}

/// Runs this program again inside namespaces of its own, and ends as it ends.
fn in_sandbox() -> Result<Exit, Failure> {
    sandbox::run_inside()
        .map_err(Failure::from)
        .and_then(exit_of)
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
    status
        .code()
        .and_then(|code| exits.into_iter().find(|exit| *exit as i32 == code))
        .ok_or_else(|| {
            Failure::internal(format!("the driver inside the namespaces ended: {status}"))
        })
}

/// The runtime that commands run on.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("no threads can be started: {error}")))
}
