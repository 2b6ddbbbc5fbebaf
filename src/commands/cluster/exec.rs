//! `highwater cluster exec`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use cluster::NodeName;
use cluster::namespaces::sandbox;
use nix::unistd::geteuid;

use super::state::{ClusterState, NodeState};
use crate::cli::ClusterExecArgs;
use crate::exit::{Exit, Failure};

/// Runs a command inside the cluster that is up; ends as it ends.
///
/// # Errors
/// [`Failure`] when there is no cluster, no such node, or the command cannot be run.
pub(super) fn exec(args: &ClusterExecArgs) -> Result<Exit, Failure> {
    let state = super::current()?;
    let node = args.node.as_deref().map(|name| find(&state, name)).transpose()?;
    let inside = if state.backend == "docker" {
        in_docker(&state, node)
    } else {
        in_namespaces(&state, node)?
    };
    let mut words = inside.into_iter().chain(args.command.iter().map(OsString::from));
    let program = words.next().unwrap_or_default();
    // Becomes the command: its streams, signals and exit code are its own.
    let error = Command::new(&program).args(words).env("PATH", sandbox::search_path()).exec();
    Err(Failure::unavailable(format!("`{}` cannot be run: {error}", program.display())))
}

/// The start of a command line that runs the rest inside, beside the nodes.
pub(super) fn beside_nodes(state: &ClusterState) -> Result<Vec<OsString>, Failure> {
    let inner = state
        .holder
        .and_then(|holder| holder.inner_pid())
        .ok_or_else(|| Failure::unavailable("the process that holds the cluster is going down"))?;
    let mut argv = vec!["nsenter", "--mount", "--net", "--pid"];
    if !geteuid().is_root() {
        argv.extend(["--user", "--preserve-credentials"]);
    }
    let mut argv: Vec<OsString> = argv.into_iter().map(OsString::from).collect();
    argv.extend(["--target".into(), inner.to_string().into(), "--".into()]);
    Ok(argv)
}

fn in_namespaces(state: &ClusterState, node: Option<&NodeState>) -> Result<Vec<OsString>, Failure> {
    let mut argv = beside_nodes(state)?;
    if let Some(node) = node {
        let pid = node.pid.ok_or_else(|| {
            Failure::unavailable(format!("{} did not run when the cluster came up", node.spec.name))
        })?;
        argv.extend(["nsenter".into(), "--net".into(), "--target".into()]);
        argv.extend([pid.to_string().into(), "--".into()]);
    }
    Ok(argv)
}

/// Containers are reached from the host as they are; inside one, through the engine's own client.
fn in_docker(state: &ClusterState, node: Option<&NodeState>) -> Vec<OsString> {
    let Some(node) = node else { return Vec::new() };
    let container = format!("highwater-{}-{}", state.run, node.spec.name);
    ["docker", "exec", "--interactive", &container].into_iter().map(OsString::from).collect()
}

fn find<'a>(state: &'a ClusterState, name: &str) -> Result<&'a NodeState, Failure> {
    let wanted = NodeName::try_from(name.to_owned()).map_err(Failure::usage)?;
    state.nodes.iter().find(|node| node.spec.name == wanted).ok_or_else(|| {
        Failure::usage(format!(
            "there is no {wanted}; the cluster has n1 to n{}",
            state.nodes.len()
        ))
    })
}
