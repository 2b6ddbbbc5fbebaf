//! Chosen messages between nodes are held, lost or refused.

use async_trait::async_trait;
use cluster::Cluster;
use cluster::relay::Rule;
use serde_json::json;

use super::{Fault, Outcome, Parts};

/// Keeps `rule` in force.
pub(crate) struct Intercept {
    id: u64,
    rule: Rule,
}

impl Intercept {
    pub(crate) fn new(id: u64, rule: Rule) -> Self {
        Self { id, rule }
    }
}

#[async_trait]
impl Fault for Intercept {
    async fn inject(&mut self, cluster: &Cluster) -> Outcome {
        let mut parts = Parts::default();
        let told = cluster.intercept(self.id, self.rule.clone()).map(|()| json!("in force"));
        let installed = parts.add(&"relays", told);
        Outcome::of_injection(parts, installed)
    }

    /// What a rule was good for is known at its end: one that has met no message changed nothing.
    async fn heal(&mut self, cluster: &Cluster) -> Outcome {
        let mut parts = Parts::default();
        parts.add(&"relays", cluster.let_through(self.id).map(|stopped| json!(stopped)));
        Outcome::of_heal(parts)
    }
}
