//! The power goes: what was not synced is gone with the process.

use std::collections::BTreeSet;

use async_trait::async_trait;
use cluster::{Cluster, NodeName};
use serde_json::json;

use super::{Fault, Outcome, Parts, start_again};

/// Cuts the power of `nodes`, all at the same moment.
pub(crate) struct PowerOff {
    nodes: BTreeSet<NodeName>,
    struck: BTreeSet<NodeName>,
}

impl PowerOff {
    pub(crate) fn new(nodes: BTreeSet<NodeName>) -> Self {
        Self { nodes, struck: BTreeSet::new() }
    }
}

#[async_trait]
impl Fault for PowerOff {
    async fn inject(&mut self, cluster: &Cluster) -> Outcome {
        let mut parts = Parts::default();
        for (node, lost) in cluster.power_off(&self.nodes).await {
            if lost.is_ok() {
                self.struck.insert(node);
            }
            let told =
                lost.map(|code| json!({ "gone": true, "code": code, "unsynced": "dropped" }));
            parts.add(&node, told);
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
