//! SIGSTOP, and SIGCONT.

use std::collections::BTreeSet;

use async_trait::async_trait;
use cluster::{BackendError, Cluster, NodeName, Status};
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
        let pauses = self.nodes.iter().map(|node| async { (*node, pause(cluster, *node).await) });
        for (node, paused) in join_all(pauses).await {
            // A freeze that could not be seen to hold everywhere must be thawed all the same.
            if !matches!(paused, Err(BackendError::State { .. })) {
                self.struck.insert(node);
            }
            parts.add(&node, paused.map(|()| json!({ "frozen": true })));
        }
        Outcome::of_injection(parts, !self.struck.is_empty())
    }

    async fn heal(&mut self, cluster: &Cluster) -> Outcome {
        let mut parts = Parts::default();
        for node in &self.struck {
            let told = match cluster.backend().status(*node).await {
                Ok(Status::Paused { .. }) => {
                    cluster.backend().resume(*node).await.map(|()| json!({ "runs": true }))
                }
                // Frozen in part only, or killed meanwhile and maybe started again.
                Ok(Status::Running { .. }) => {
                    let thawed = cluster.backend().resume(*node).await;
                    Ok(json!({ "runs": true, "was not frozen as a whole": thawed.is_ok() }))
                }
                Ok(status) => Ok(json!({ "not frozen any more": format!("{status:?}") })),
                Err(error) => Err(error),
            };
            parts.add(node, told);
        }
        Outcome::of_heal(parts)
    }

    fn struck(&mut self) -> Option<&mut BTreeSet<NodeName>> {
        Some(&mut self.struck)
    }
}

/// Freezes a node, unless another fault holds it frozen: that one will thaw it, in its own time.
async fn pause(cluster: &Cluster, node: NodeName) -> Result<(), BackendError> {
    if let Status::Paused { .. } = cluster.backend().status(node).await? {
        return Err(BackendError::State {
            node,
            action: "pause",
            reason: "another fault holds it frozen".into(),
        });
    }
    cluster.backend().pause(node).await
}
