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
/// How many lines before that an error quotes, of those that tell of trouble.
const TROUBLE_LINES: usize = 4;

/// Waits until every broker holds every broker for registered.
///
/// # Errors
/// In words: which broker is missing, and the end of its log.
pub async fn await_brokers(nodes: &[NodeSpec], deadline: Duration) -> Result<(), String> {
    let brokers: BTreeSet<NodeName> =
        nodes.iter().filter(|node| node.role.is_broker()).map(|node| node.name).collect();
    await_view(nodes, &[], deadline, "every broker to be registered", |view| {
        let mut missing = BTreeSet::new();
        for (name, answer) in &view.answers {
            match answer {
                Ok(answer) => missing.extend(brokers.difference(&answer.brokers)),
                Err(_) => drop(missing.insert(*name)),
            }
        }
        missing.into_iter().map(|node| (node, "is not registered everywhere".into())).collect()
    })
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
    await_view(nodes, keys, deadline, "every partition to be at full ISR", |view| {
        lacking(view, keys)
    })
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
            let reasons: Vec<String> =
                lacking.iter().take(6).map(|(node, why)| format!("{node} {why}")).collect();
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
    format!("\nthe end of {}:\n  {}", path.display(), quote(&log).join("\n  "))
}

/// The last lines of a log, and what told of trouble shortly before.
fn quote(log: &str) -> Vec<&str> {
    let lines: Vec<&str> = log.lines().collect();
    let (before, tail) = lines.split_at(lines.len().saturating_sub(TAIL_LINES));
    let is_trouble =
        |line: &str| ["ERROR", "FATAL", "Exception", "Error:"].iter().any(|w| line.contains(w));
    let trouble: Vec<&str> = before.iter().copied().filter(|line| is_trouble(line)).collect();
    let mut quoted = trouble[trouble.len().saturating_sub(TROUBLE_LINES)..].to_vec();
    if !quoted.is_empty() {
        quoted.push("…");
    }
    quoted.extend(tail);
    quoted
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::node::Role;
    use crate::probe::{BrokerAnswer, PartitionView, ProbeError};

    fn answer(brokers: &[u32], isr: &[u32]) -> BrokerAnswer {
        let seen = PartitionView {
            leader: isr.first().copied().map(NodeName::new),
            isr: isr.iter().copied().map(NodeName::new).collect(),
            replicas: [1, 2].map(NodeName::new).into(),
            ..PartitionView::default()
        };
        BrokerAnswer {
            brokers: brokers.iter().copied().map(NodeName::new).collect(),
            keys: [(Key::from("t-0"), seen)].into(),
        }
    }

    #[test]
    fn what_lacks_is_told_by_node() {
        let silent = ProbeError::Deadline { address: "n3".into(), waited_ms: 9 };
        let view = View {
            answers: [Ok(answer(&[1], &[1])), Ok(answer(&[1, 2], &[])), Err(silent)]
                .into_iter()
                .zip(1..)
                .map(|(answer, id)| (NodeName::new(id), answer))
                .collect(),
            ..View::default()
        };
        let said: Vec<String> = lacking(&view, &[Key::from("t-0")])
            .into_iter()
            .map(|(node, why)| format!("{node} {why}"))
            .collect();
        assert_eq!(
            said,
            [
                "n2 is not in the ISR of t-0 (n1 says)",
                "n2 sees no leader of t-0",
                "n3 does not answer (n3: no answer within 9 ms)",
            ]
        );
    }

    #[tokio::test]
    async fn a_broker_that_is_not_there_is_named_with_the_end_of_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let node = NodeSpec {
            name: NodeName::new(1),
            role: Role::Combined,
            // Nobody listens at this address.
            address: Ipv4Addr::new(127, 201, 202, 203),
            dir: dir.path().to_owned(),
        };
        let deadline = Duration::from_millis(150);
        let bare = await_brokers(std::slice::from_ref(&node), deadline).await.unwrap_err();
        assert!(bare.contains("n1 is not registered everywhere"), "{bare}");
        assert!(bare.contains("n1 has no log"), "{bare}");
        fs::create_dir_all(node.logs_dir()).unwrap();
        fs::write(node.stdout_log(), "it began\nit ended\n").unwrap();
        let told = await_brokers(&[node], deadline).await.unwrap_err();
        assert!(told.ends_with("it began\n  it ended"), "{told}");
    }

    #[test]
    fn trouble_is_quoted_before_the_tail() {
        let mut log: Vec<String> = (0..40).map(|n| format!("line {n}")).collect();
        log[3] = "ERROR: the address is taken".into();
        let log = log.join("\n");
        let quoted = quote(&log);
        assert_eq!(&quoted[..3], ["ERROR: the address is taken", "…", "line 28"]);
        assert_eq!(quoted.len(), 14);
        assert_eq!(quote("one\ntwo"), ["one", "two"]);
    }
}
