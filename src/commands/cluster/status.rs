//! `highwater cluster status`.

use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use cluster::NodeSpec;
use cluster::namespaces::sandbox;
use cluster::probe::cluster_view;

use super::exec::beside_nodes;
use super::state::ClusterState;
use crate::exit::{Exit, Failure};

/// Set when this is the invocation that was started beside the nodes.
const BESIDE: &str = "HIGHWATER_BESIDE_NODES";

/// Shows the cluster that is up, as its brokers see it.
///
/// # Errors
/// [`Failure`] when none is up.
pub(super) fn status() -> Result<Exit, Failure> {
    if let Ok(state) = std::env::var(BESIDE) {
        let state: ClusterState = serde_json::from_str(&state)
            .map_err(|error| Failure::internal(format!("the state is garbled: {error}")))?;
        return look(&state);
    }
    let state = super::current()?;
    if state.backend == "docker" {
        return look(&state);
    }
    let program = std::env::current_exe()
        .map_err(|error| Failure::internal(format!("cannot find myself: {error}")))?;
    let text = serde_json::to_string(&state)
        .map_err(|error| Failure::internal(format!("the state is garbled: {error}")))?;
    let mut argv = beside_nodes(&state)?.into_iter();
    let error = Command::new(argv.next().unwrap_or_default())
        .args(argv)
        .arg(program)
        .args(["cluster", "status"])
        .env(BESIDE, text)
        .env("PATH", sandbox::search_path())
        .exec();
    Err(Failure::unavailable(format!("`nsenter` cannot be run: {error}")))
}

fn look(state: &ClusterState) -> Result<Exit, Failure> {
    let nodes: Vec<NodeSpec> = state.nodes.iter().map(|node| node.spec.clone()).collect();
    let view = super::super::runtime()?.block_on(cluster_view(&nodes, &[]));
    let mut text = format!(
        "{} on {}\nbootstrap  {}\ncontroller {}\n",
        state.system,
        state.backend,
        state.bootstrap,
        view.controller.map_or("none".to_owned(), |node| node.to_string())
    );
    for node in &nodes {
        let told = match view.answers.get(&node.name) {
            None => "controller only".to_owned(),
            Some(Err(error)) => format!("does not answer: {error}"),
            Some(Ok(answer)) => {
                let alive: Vec<String> = answer.brokers.iter().map(ToString::to_string).collect();
                format!("answers; holds {} for alive", alive.join(" "))
            }
        };
        let _ = writeln!(text, "{:<10} {:<15} {told}", node.name.to_string(), node.address);
    }
    super::super::print(&text);
    Ok(Exit::Valid)
}
