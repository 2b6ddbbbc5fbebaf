//! What nodes send leaves them slowly.

use std::collections::BTreeSet;

use async_trait::async_trait;
use cluster::{BackendError, Cluster, NodeName};
use serde_json::json;

use super::{Fault, Outcome, Parts};

/// A link counts as slow up to this many times the rate asked for: measuring is not exact.
const TOLERANCE: f64 = 2.0;
/// A link on which that much passes again is not limited any more.
const FREE_KBIT: f64 = 20_000.0;

/// Limits what leaves `nodes`.
pub(crate) struct Slow {
    nodes: BTreeSet<NodeName>,
    kbit_per_s: u32,
    struck: BTreeSet<NodeName>,
}

impl Slow {
    pub(crate) fn new(nodes: BTreeSet<NodeName>, kbit_per_s: u32) -> Self {
        Self { nodes, kbit_per_s, struck: BTreeSet::new() }
    }
}

#[async_trait]
impl Fault for Slow {
    async fn inject(&mut self, cluster: &Cluster) -> Outcome {
        let mut parts = Parts::default();
        for node in &self.nodes {
            match cluster.network().limit(*node, self.kbit_per_s).await {
                Err(error) => {
                    // What could not be measured may be slow all the same, and must be healed.
                    if !matches!(error, BackendError::Unsupported { .. }) {
                        self.struck.insert(*node);
                    }
                    parts.problems.insert(node.to_string(), error.to_string());
                }
                Ok(measured) => {
                    self.struck.insert(*node);
                    let told = match measured {
                        Some(kbit) if kbit <= f64::from(self.kbit_per_s) * TOLERANCE => Ok(
                            json!({ "asked_kbit_per_s": self.kbit_per_s, "measured_kbit_per_s": kbit.round() }),
                        ),
                        Some(kbit) => Err(format!("{kbit:.0} kbit/s leave it still")),
                        None => Err("it has no network now".to_owned()),
                    };
                    parts.add(node, told);
                }
            }
        }
        Outcome::of_injection(parts, !self.struck.is_empty())
    }

    async fn heal(&mut self, cluster: &Cluster) -> Outcome {
        let mut parts = Parts::default();
        for node in &self.struck {
            let told = match cluster.network().unlimit(*node).await {
                Err(error) => Err(error.to_string()),
                Ok(Some(kbit)) if kbit < FREE_KBIT => {
                    Err(format!("only {kbit:.0} kbit/s leave it"))
                }
                Ok(kbit) => Ok(json!({ "measured_kbit_per_s": kbit.map(f64::round) })),
            };
            parts.add(node, told);
        }
        Outcome::of_heal(parts)
    }

    fn struck(&mut self) -> Option<&mut BTreeSet<NodeName>> {
        Some(&mut self.struck)
    }
}
