//! The disk of a stopped node does something to a replica.

use std::collections::BTreeSet;

use async_trait::async_trait;
use cluster::{Cluster, NodeName, Spoilage};
use history::Key;
use serde_json::json;

use super::{Fault, Outcome, Parts};

/// Spoils the replicas of `key` on `nodes`.
pub(crate) struct Spoil {
    nodes: BTreeSet<NodeName>,
    key: Key,
    spoilage: Spoilage,
}

impl Spoil {
    pub(crate) fn new(nodes: BTreeSet<NodeName>, key: Key, spoilage: Spoilage) -> Self {
        Self { nodes, key, spoilage }
    }
}

#[async_trait]
impl Fault for Spoil {
    async fn inject(&mut self, cluster: &Cluster) -> Outcome {
        let mut parts = Parts::default();
        for node in &self.nodes {
            parts.add(node, cluster.spoil(*node, &self.key, self.spoilage).await);
        }
        Outcome::of_injection(parts, false)
    }

    /// What is spoilt stays so: it is the system's to mend it.
    async fn heal(&mut self, _: &Cluster) -> Outcome {
        let mut parts = Parts::default();
        for node in &self.nodes {
            parts.evidence.insert(node.to_string(), json!("left as it is"));
        }
        Outcome::of_heal(parts)
    }
}
