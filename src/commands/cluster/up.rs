//! `highwater cluster up`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use chrono::Utc;

use super::hold;
use super::state::ClusterState;
use crate::cli::ClusterUpArgs;
use crate::exit::{Exit, Failure};
use crate::plan::ClusterPlan;
use crate::run::prepare;

/// What the holder may take besides the time that the cluster may take.
const HOLDER_SLACK: Duration = Duration::from_secs(60);

/// Brings a cluster up and leaves it running.
///
/// # Errors
/// [`Failure`]: one is up already, bad flags, or it does not come up.
pub(super) fn up(args: &ClusterUpArgs) -> Result<Exit, Failure> {
    if let Some(state) = ClusterState::read()? {
        return Err(Failure::usage(format!(
            "a cluster is up already ({} on {}); `highwater cluster down` takes it down",
            state.system, state.backend
        )));
    }
    let plan = ClusterPlan::from_args(&args.cluster)?;
    if plan.backend == "docker" {
        crate::preflight::docker()?;
    }
    prepare(&plan)?;
    let dir = fresh_dir(&args.dir)?;
    if plan.backend == "docker" {
        hold::keep_in_docker(args, &plan, &dir)?;
    } else {
        start_holder(&dir, Duration::from_millis(plan.ready_limit_ms) + HOLDER_SLACK)?;
    }
    let state = super::current()?;
    super::super::print(&describe(&state, &dir));
    Ok(Exit::Valid)
}

fn describe(state: &ClusterState, dir: &Path) -> String {
    let reach = if state.backend == "docker" {
        "clients on this host connect to the bootstrap addresses"
    } else {
        "run clients inside: `highwater cluster exec -- CMD`"
    };
    format!(
        "{} is up on {} ({} nodes)\nbootstrap {}\nfiles     {}\n{reach}",
        state.system,
        state.backend,
        state.nodes.len(),
        state.bootstrap,
        dir.display()
    )
}

fn fresh_dir(parent: &Path) -> Result<PathBuf, Failure> {
    let dir = parent.join(Utc::now().format("%Y%m%dT%H%M%S%.3fZ").to_string());
    fs::create_dir_all(&dir)
        .and_then(|()| dir.canonicalize())
        .map_err(|error| Failure::internal(format!("cannot make {}: {error}", dir.display())))
}

/// Starts this program again, in the background and in a session of its own, with the same flags.
fn start_holder(dir: &Path, limit: Duration) -> Result<(), Failure> {
    let failed = |what: &str, error: std::io::Error| Failure::internal(format!("{what}: {error}"));
    let program = std::env::current_exe().map_err(|error| failed("cannot find myself", error))?;
    let log = dir.join("driver.log");
    let output =
        fs::File::create(&log).map_err(|error| failed("cannot write driver.log", error))?;
    let errors = output.try_clone().map_err(|error| failed("cannot write driver.log", error))?;
    let flags =
        std::env::args_os().skip(1).map(|flag| if flag == "up" { "hold".into() } else { flag });
    let mut holder = Command::new("setsid")
        .arg(program)
        .args(flags)
        .arg("--dir")
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(|error| failed("`setsid` (Debian package util-linux) cannot be run", error))?;
    await_ready(&mut holder, &log, limit)
}

fn await_ready(holder: &mut Child, log: &Path, limit: Duration) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        if ClusterState::read()?.is_some() {
            return Ok(());
        }
        let ended = holder.try_wait().ok().flatten();
        if ended.is_some() || begun.elapsed() > limit {
            let said = fs::read_to_string(log).unwrap_or_default();
            let lines: Vec<&str> = said.lines().collect();
            let tail = &lines[lines.len().saturating_sub(20)..];
            if ended.is_none() {
                let _ = holder.kill();
            }
            return Err(Failure::unavailable(format!(
                "the cluster did not come up; the end of {}:\n  {}",
                log.display(),
                tail.join("\n  ")
            )));
        }
        thread::sleep(Duration::from_millis(100));
    }
}
