//! Disks that are full, and disks that fail. The process goes on until it meets them.

use std::collections::BTreeSet;

use async_trait::async_trait;
use cluster::{Ailment, Cluster, NodeName};
use serde_json::json;

use super::{Fault, Outcome, Parts};

/// Spoils the disks of `nodes`.
pub(crate) struct BadDisk {
    nodes: BTreeSet<NodeName>,
    ailment: Ailment,
    struck: BTreeSet<NodeName>,
}

impl BadDisk {
    pub(crate) fn new(nodes: BTreeSet<NodeName>, ailment: Ailment) -> Self {
        Self { nodes, ailment, struck: BTreeSet::new() }
    }
}

#[async_trait]
impl Fault for BadDisk {
    async fn inject(&mut self, cluster: &Cluster) -> Outcome {
        let mut parts = Parts::default();
        for node in &self.nodes {
            let spoilt = cluster.spoil_disk(*node, self.ailment);
            if spoilt.is_ok() {
                self.struck.insert(*node);
            }
            parts.add(node, spoilt.map(|seen| json!({ "writing": seen })));
        }
        Outcome::of_injection(parts, !self.struck.is_empty())
    }

    async fn heal(&mut self, cluster: &Cluster) -> Outcome {
        let mut parts = Parts::default();
        for node in &self.struck {
            parts.add(node, cluster.mend_disk(*node, self.ailment).await);
        }
        Outcome::of_heal(parts)
    }

    fn struck(&mut self) -> Option<&mut BTreeSet<NodeName>> {
        Some(&mut self.struck)
    }
}
