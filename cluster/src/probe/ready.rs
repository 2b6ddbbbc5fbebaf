//! Waiting until a cluster is ready.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use history::Key;
use tokio::time::sleep;

use super::view::{View, cluster_view};
use crate::node::{NodeName, NodeSpec};

const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// How much of a node's log an error shows.
const TAIL_LINES: usize = 12;

/// Waits until every broker holds every broker for registered.
///
/// # Errors
/// In words: which broker is missing, and the end of its log.
pub async fn await_brokers(nodes: &[NodeSpec], deadline: Duration) -> Result<(), String> {
    let brokers: BTreeSet<NodeName> = nodes
        .iter()
        .filter(|node| node.role.is_broker())
        .map(|node| node.name)
        .collect();
    await_view(
        nodes,
        &[],
        deadline,
        "every broker to be registered",
        |view| {
            let mut missing = BTreeSet::new();
            for (name, answer) in &view.answers {
                match answer {
                    Ok(answer) => missing.extend(brokers.difference(&answer.brokers)),
                    Err(_) => drop(missing.insert(*name)),
                }
            }
            missing
                .into_iter()
                .map(|node| (node, "is not registered everywhere".into()))
                .collect()
        },
    )
    .await
}

/// Waits until every broker holds every replica of `keys` for in sync.
///
/// # Errors
/// In words: which partition lacks which replica, and the end of that node's log.
pub async fn await_full_isr(
    nodes: &[NodeSpec],
    keys: &[Key],
    deadline: Duration,
) -> Result<(), String> {
    await_view(
        nodes,
        keys,
        deadline,
        "every partition to be at full ISR",
        |view| lacking(view, keys),
    )
    .await
}

/// Nodes that are not where they should be, each with a reason. Empty: every broker that answers
/// sees every key led and at full ISR, and every broker answers.
pub(super) fn lacking(view: &View, keys: &[Key]) -> Vec<(NodeName, String)> {
    let mut lacking = Vec::new();
    for (name, answer) in &view.answers {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                lacking.push((*name, format!("does not answer ({error})")));
                continue;
            }
        };
        for key in keys {
            match answer.keys.get(key) {
                None => lacking.push((*name, format!("does not know {key}"))),
                Some(seen) if seen.leader.is_none() => {
                    lacking.push((*name, format!("sees no leader of {key}")));
                }
                Some(seen) => lacking.extend(
                    seen.replicas
                        .difference(&seen.isr)
                        .map(|node| (*node, format!("is not in the ISR of {key} ({name} says)"))),
                ),
            }
        }
    }
    lacking
}

async fn await_view(
    nodes: &[NodeSpec],
    keys: &[Key],
    deadline: Duration,
    awaited: &str,
    missing: impl Fn(&View) -> Vec<(NodeName, String)>,
) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let lacking = missing(&cluster_view(nodes, keys).await);
        let Some((first, _)) = lacking.first() else {
            return Ok(());
        };
        if begun.elapsed() > deadline {
            let reasons: Vec<String> = lacking
                .iter()
                .take(6)
                .map(|(node, why)| format!("{node} {why}"))
                .collect();
            return Err(format!(
                "gave up after {} ms waiting for {awaited}: {}{}",
                begun.elapsed().as_millis(),
                reasons.join("; "),
                log_tail(nodes, *first)
            ));
        }
        sleep(BETWEEN_LOOKS).await;
    }
}

/// The end of a node's log, as part of an error message.
pub(crate) fn log_tail(nodes: &[NodeSpec], node: NodeName) -> String {
    let Some(spec) = nodes.iter().find(|spec| spec.name == node) else {
        return String::new();
    };
    let path = spec.stdout_log();
    let log = match fs::read(&path) {
        Ok(log) => String::from_utf8_lossy(&log).into_owned(),
        Err(error) => return format!("\n{node} has no log ({}: {error})", path.display()),
    };
    let lines: Vec<&str> = log.lines().collect();
    let tail = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    format!("\nthe end of {}:\n  {}", path.display(), tail.join("\n  "))
}
