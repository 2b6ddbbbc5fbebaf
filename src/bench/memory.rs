//! Memory of the brokers' processes.

use std::fs;

use cluster::{Cluster, NodeName, Status};
use serde::Serialize;
use serde_json::json;
use tokio::task::spawn_blocking;

use super::machine::{field, kib};
use super::metric::{PSS_MAX_MIB, PSS_SUM_MIB, RSS_MAX_MIB, RSS_SUM_MIB};
use super::record::Numbers;

/// Memory of one node's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct NodeMemory {
    node: NodeName,
    /// Pages in memory; those that processes share count for each.
    rss_kib: u64,
    /// The same, but a page that n processes share counts for an n-th.
    pss_kib: u64,
}

/// What the brokers hold now.
///
/// # Errors
/// In words: which node has no process, or what of it cannot be read.
pub(super) async fn of_brokers(cluster: &Cluster) -> Result<Numbers, String> {
    let mut nodes = Vec::new();
    for node in cluster.nodes().iter().filter(|node| node.role.is_broker()) {
        let name = node.name;
        let status = cluster.backend().status(name).await.map_err(|error| error.to_string())?;
        let (Status::Running { pid } | Status::Paused { pid }) = status else {
            return Err(format!("{name}: it has no process ({status:?})"));
        };
        // The kernel walks through all mappings for this.
        let read = spawn_blocking(move || of_node(name, pid)).await;
        nodes.push(read.map_err(|error| error.to_string())??);
    }
    Ok(numbers(&nodes))
}

fn numbers(nodes: &[NodeMemory]) -> Numbers {
    let mib = |kib: u64| kib as f64 / 1024.0;
    let sum = |pick: fn(&NodeMemory) -> u64| mib(nodes.iter().map(pick).sum());
    let max = |pick: fn(&NodeMemory) -> u64| mib(nodes.iter().map(pick).max().unwrap_or(0));
    Numbers::new([
        (RSS_SUM_MIB, sum(|node| node.rss_kib)),
        (RSS_MAX_MIB, max(|node| node.rss_kib)),
        (PSS_SUM_MIB, sum(|node| node.pss_kib)),
        (PSS_MAX_MIB, max(|node| node.pss_kib)),
    ])
    .with(json!({ "nodes": nodes }))
}

/// All processes of the node whose main one is `pid`: those in the same pid namespace.
fn of_node(node: NodeName, pid: i32) -> Result<NodeMemory, String> {
    let space_of = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let space = space_of(pid).ok_or_else(|| format!("{node}: process {pid} is gone"))?;
    let listed = fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?;
    let members = listed
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|other| space_of(*other).as_ref() == Some(&space));
    let mut memory = NodeMemory { node, rss_kib: 0, pss_kib: 0 };
    for member in members {
        match of_process(member) {
            Ok((rss_kib, pss_kib)) => {
                memory.rss_kib += rss_kib;
                memory.pss_kib += pss_kib;
            }
            // A child may have ended since it was listed; the main process may not.
            Err(reason) if member == pid => return Err(format!("{node}: {reason}")),
            Err(_) => {}
        }
    }
    Ok(memory)
}

fn of_process(pid: i32) -> Result<(u64, u64), String> {
    let read = |file: &str, name: &str| {
        let path = format!("/proc/{pid}/{file}");
        let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        field(&text, name).and_then(kib).ok_or_else(|| format!("{path} does not tell {name}"))
    };
    Ok((read("status", "VmRSS")?, read("smaps_rollup", "Pss")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_added_up_and_the_largest_is_told() {
        let node = |id: u32, rss_kib: u64, pss_kib: u64| NodeMemory {
            node: NodeName::new(id),
            rss_kib,
            pss_kib,
        };
        let numbers = numbers(&[node(1, 1024, 512), node(2, 3072, 2048)]);
        let told = [RSS_SUM_MIB, RSS_MAX_MIB, PSS_SUM_MIB, PSS_MAX_MIB]
            .map(|name| numbers.values[name].to_string());
        assert_eq!(told, ["4", "3", "2.5", "2"]);
        assert_eq!(numbers.details["nodes"][1]["node"], "n2");
    }

    #[test]
    fn a_process_tells_what_it_holds() {
        let (rss_kib, pss_kib) = of_process(std::process::id().cast_signed()).unwrap();
        assert!(rss_kib > 0 && pss_kib > 0);
        assert!(of_node(NodeName::new(7), i32::MAX).unwrap_err().starts_with("n7: process"));
    }
}
