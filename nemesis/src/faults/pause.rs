//! SIGSTOP, and SIGCONT.

use std::collections::BTreeSet;

use async_trait::async_trait;
use cluster::{Cluster, NodeName};
use futures_util::future::join_all;
use serde_json::json;

use super::{Fault, Outcome, Parts};

/// Freezes the processes of `nodes`.
pub(crate) struct Pause {
    nodes: BTreeSet<NodeName>,
    struck: BTreeSet<NodeName>,
}

impl Pause {
    pub(crate) fn new(nodes: BTreeSet<NodeName>) -> Self {
        Self { nodes, struck: BTreeSet::new() }
    }
}

#[async_trait]
impl Fault for Pause {
    async fn inject(&mut self, cluster: &Cluster) -> Outcome {
        let mut parts = Parts::default();
        let pauses =
            self.nodes.iter().map(|node| async { (*node, cluster.backend().pause(*node).await) });
        for (node, paused) in join_all(pauses).await {
            if parts.add(&node, paused.map(|()| json!({ "frozen": true }))) {
                self.struck.insert(node);
            }
        }
        Outcome::of_injection(parts)
    }

    async fn heal(&mut self, cluster: &Cluster) -> Outcome {
        let mut parts = Parts::default();
        for node in &self.struck {
            let told = match cluster.backend().status(*node).await {
                // Another fault killed it meanwhile, and maybe started it again.
                Ok(cluster::Status::Paused { .. }) => {
                    cluster.backend().resume(*node).await.map(|()| json!({ "runs": true }))
                }
                Ok(status) => Ok(json!({ "not frozen any more": format!("{status:?}") })),
                Err(error) => Err(error),
            };
            parts.add(node, told);
        }
        Outcome::of_heal(parts)
    }
}
