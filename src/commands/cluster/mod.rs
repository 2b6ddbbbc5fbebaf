//! `highwater cluster`: a cluster to work with by hand.
//!
//! With namespaces a process of ours must stay, since they live as long as it does: `up` starts
//! one in the background (`hold`). With docker the engine keeps the containers.

mod exec;
mod hold;
mod state;
mod status;
mod up;

use std::thread;
use std::time::{Duration, Instant};

use cluster::docker::{Engine, Sweep, remove_leftovers};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use self::state::ClusterState;
use crate::cli::ClusterCommand;
use crate::exit::{Exit, Failure};

/// From SIGTERM until the holder has taken its cluster down.
const DOWN_LIMIT: Duration = Duration::from_secs(60);

/// Does what was asked.
///
/// # Errors
/// [`Failure`].
pub(super) fn dispatch(command: ClusterCommand) -> Result<Exit, Failure> {
    match command {
        ClusterCommand::Up(args) => up::up(&args),
        ClusterCommand::Hold(args) => hold::hold(&args),
        ClusterCommand::Status => status::status(),
        ClusterCommand::Exec(args) => exec::exec(&args),
        ClusterCommand::Down => down(),
    }
}

/// The cluster that is up.
fn current() -> Result<ClusterState, Failure> {
    ClusterState::read()?.ok_or_else(|| {
        Failure::unavailable("no cluster is up; `highwater cluster up` brings one up")
    })
}

/// Takes the cluster down, and removes what killed runs left behind.
fn down() -> Result<Exit, Failure> {
    let mut told = Vec::new();
    if let Some(state) = ClusterState::read()? {
        if let Some(holder) = state.holder {
            end(holder)?;
        }
        told.push(format!("took down {} on {}", state.system, state.backend));
    }
    let swept = super::runtime()?.block_on(async {
        // Without an engine there are no containers to remove.
        let Ok(engine) = Engine::connect().await else {
            return Ok(None);
        };
        remove_leftovers(&engine, Sweep::KeptToo).await.map(Some)
    })?;
    if let Some(removed) = swept.filter(|removed| !removed.is_empty()) {
        let names = [removed.containers, removed.networks].concat();
        told.push(format!("removed {}", names.join(", ")));
    }
    ClusterState::remove()?;
    if told.is_empty() {
        told.push("nothing was up, and nothing was left behind".into());
    }
    super::print(&told.join("\n"));
    Ok(Exit::Valid)
}

fn end(holder: state::Holder) -> Result<(), Failure> {
    let failed = |error: nix::Error| {
        Failure::internal(format!("cannot signal the holder (pid {}): {error}", holder.pid))
    };
    let pid = Pid::from_raw(holder.pid);
    kill(pid, Signal::SIGTERM).map_err(failed)?;
    let begun = Instant::now();
    while holder.is_alive() {
        if begun.elapsed() > DOWN_LIMIT {
            // The kernel removes everything in its namespaces.
            kill(pid, Signal::SIGKILL).map_err(failed)?;
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
