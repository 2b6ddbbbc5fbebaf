//! Links made bad, and good again.

use std::collections::BTreeSet;

use async_trait::async_trait;
use cluster::Cluster;
use cluster::network::{Cut, Impairment};
use serde_json::json;

use super::{Fault, Outcome, Parts, Status};

/// Impairs `links` under the fault's id.
pub(crate) struct Impair {
    id: u64,
    links: BTreeSet<Cut>,
    impairment: Impairment,
    seed: u64,
}

impl Impair {
    pub(crate) fn new(id: u64, links: BTreeSet<Cut>, impairment: Impairment, seed: u64) -> Self {
        Self { id, links, impairment, seed }
    }
}

#[async_trait]
impl Fault for Impair {
    async fn inject(&mut self, cluster: &Cluster) -> Outcome {
        let network = cluster.network();
        let looks = match network.impair(self.id, &self.links, self.impairment, self.seed).await {
            Ok(looks) => looks,
            Err(error) => {
                // What was begun is undone by then.
                return Outcome::skipped(error.to_string());
            }
        };
        let mut parts = Parts::default();
        let mut blind = Vec::new();
        for (link, measured) in looks {
            match measured {
                None => blind.push(link.to_string()),
                Some(measured) => {
                    let told = match measured.differs(&self.impairment) {
                        None => Ok(json!(measured)),
                        Some(why) => Err(format!("{why}, measured {}", json!(measured))),
                    };
                    parts.add(&link, told);
                }
            }
        }
        let status = if !parts.evidence.is_empty() && parts.problems.is_empty() {
            Status::Installed
        } else {
            Status::Indeterminate
        };
        for link in blind {
            let told = json!("an end has no network now");
            parts.evidence.insert(link, told);
        }
        Outcome { status, evidence: parts.evidence, problems: parts.problems }
    }

    async fn heal(&mut self, cluster: &Cluster) -> Outcome {
        let mut parts = Parts::default();
        match cluster.network().repair(self.id).await {
            Ok(done) => {
                for (from, done) in done {
                    parts.add(&from, Ok::<_, String>(json!(done)));
                }
                Outcome::of_heal(parts)
            }
            Err(error) => Outcome { status: Status::Failed, ..Outcome::skipped(error.to_string()) },
        }
    }
}
