//! SIGKILL, and start again.

use std::collections::BTreeSet;

use async_trait::async_trait;
use cluster::{Cluster, NodeName, Signal};
use serde_json::json;

use super::{Fault, Outcome, Parts, start_again};

/// Ends the processes of `nodes` without a word.
pub(crate) struct Kill {
    nodes: BTreeSet<NodeName>,
    struck: BTreeSet<NodeName>,
}

impl Kill {
    pub(crate) fn new(nodes: BTreeSet<NodeName>) -> Self {
        Self { nodes, struck: BTreeSet::new() }
    }
}

#[async_trait]
impl Fault for Kill {
    async fn inject(&mut self, cluster: &Cluster) -> Outcome {
        let mut parts = Parts::default();
        // All are killed before any is waited for: nobody has time to hear of the others.
        for node in &self.nodes {
            match cluster.backend().signal(*node, Signal::Kill).await {
                Ok(()) => drop(self.struck.insert(*node)),
                Err(error) => drop(parts.problems.insert(node.to_string(), error.to_string())),
            }
        }
        for node in &self.struck {
            let gone = cluster.backend().wait_exit(*node, cluster::KILL_DEADLINE).await;
            parts.add(node, gone.map(|code| json!({ "gone": true, "code": code })));
        }
        Outcome::of_injection(parts, !self.struck.is_empty())
    }

    async fn heal(&mut self, cluster: &Cluster) -> Outcome {
        start_again(cluster, &self.struck).await
    }

    fn struck(&mut self) -> Option<&mut BTreeSet<NodeName>> {
        Some(&mut self.struck)
    }
}
