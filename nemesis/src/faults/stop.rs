//! SIGTERM, a controlled shutdown, and start again.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use cluster::{Cluster, NodeName, Signal};
use serde_json::json;

use super::{Fault, Outcome, Parts, start_again};

/// A shutdown that has not ended by then goes on beside the run; the heal waits for the rest.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// A node that has not stopped by then, counted from the heal, is killed.
const LAST_WAIT: Duration = Duration::from_secs(20);

/// Asks the processes of `nodes` to stop.
pub(crate) struct Stop {
    nodes: BTreeSet<NodeName>,
    struck: BTreeSet<NodeName>,
    waits: bool,
}

impl Stop {
    pub(crate) fn new(nodes: BTreeSet<NodeName>) -> Self {
        Self { nodes, struck: BTreeSet::new(), waits: true }
    }

    /// The same, but only the heal waits for their end.
    pub(crate) fn begun(nodes: BTreeSet<NodeName>) -> Self {
        Self { waits: false, ..Self::new(nodes) }
    }
}

#[async_trait]
impl Fault for Stop {
    async fn inject(&mut self, cluster: &Cluster) -> Outcome {
        let mut parts = Parts::default();
        for node in &self.nodes {
            match cluster.backend().signal(*node, Signal::Term).await {
                Ok(()) => drop(self.struck.insert(*node)),
                Err(error) => drop(parts.problems.insert(node.to_string(), error.to_string())),
            }
        }
        if !self.waits {
            for node in &self.struck {
                parts.evidence.insert(node.to_string(), json!({ "asked_to_stop": true }));
            }
            return Outcome::of_injection(parts, !self.struck.is_empty());
        }
        let begun = Instant::now();
        for node in &self.struck {
            let wait = FIRST_WAIT.saturating_sub(begun.elapsed());
            let gone = cluster.backend().wait_exit(*node, wait).await;
            let ended = gone.map(
                |code| json!({ "gone": true, "code": code, "took_ms": millis(begun.elapsed()) }),
            );
            parts.add(node, ended);
        }
        Outcome::of_injection(parts, !self.struck.is_empty())
    }

    async fn heal(&mut self, cluster: &Cluster) -> Outcome {
        let mut forced = Parts::default();
        for node in &self.struck {
            if cluster.backend().wait_exit(*node, LAST_WAIT).await.is_ok() {
                continue;
            }
            let killed = cluster.kill(*node).await;
            let told = killed.map(|_| {
                json!({ "killed": format!("it had not stopped {} s after the heal began", LAST_WAIT.as_secs()) })
            });
            forced.add(&format!("{node} shutdown"), told);
        }
        let mut outcome = start_again(cluster, &self.struck).await;
        outcome.evidence.extend(forced.evidence);
        outcome.problems.extend(forced.problems);
        outcome
    }

    fn struck(&mut self) -> Option<&mut BTreeSet<NodeName>> {
        Some(&mut self.struck)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
