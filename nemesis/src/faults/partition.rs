//! Links cut, and healed.

use std::collections::BTreeSet;

use async_trait::async_trait;
use cluster::Cluster;
use cluster::network::{Cut, LinkReport};
use serde_json::json;

use super::{Fault, Outcome, Parts, Status};

/// Cuts `cuts` under the fault's id.
pub(crate) struct Partition {
    id: u64,
    cuts: BTreeSet<Cut>,
}

impl Partition {
    pub(crate) fn new(id: u64, cuts: BTreeSet<Cut>) -> Self {
        Self { id, cuts }
    }
}

#[async_trait]
impl Fault for Partition {
    async fn inject(&mut self, cluster: &Cluster) -> Outcome {
        match cluster.network().cut(self.id, self.cuts.clone()).await {
            Ok(reports) => {
                let parts = parts_of(&reports);
                // A link that leaks makes the whole partition something else than what was asked, and
                // one whose end does not run now shows nothing.
                let seen = reports.iter().any(|report| report.holds() == Some(true));
                let status = if seen && parts.problems.is_empty() {
                    Status::Installed
                } else {
                    Status::Indeterminate
                };
                Outcome { status, evidence: parts.evidence, problems: parts.problems }
            }
            Err(error) => {
                Outcome { status: Status::Indeterminate, ..Outcome::skipped(error.to_string()) }
            }
        }
    }

    async fn heal(&mut self, cluster: &Cluster) -> Outcome {
        match cluster.network().heal(self.id).await {
            Ok(reports) => Outcome::of_heal(parts_of(&reports)),
            Err(error) => Outcome { status: Status::Failed, ..Outcome::skipped(error.to_string()) },
        }
    }
}

fn parts_of(reports: &[LinkReport]) -> Parts {
    let mut parts = Parts::default();
    for report in reports {
        let told = match report.holds() {
            Some(true) if report.shall_pass => Ok(json!("packets arrive")),
            Some(true) => Ok(json!("no packet arrives")),
            Some(false) if report.shall_pass => Err("packets do not arrive, though they should"),
            Some(false) => Err("packets still arrive, though they should not"),
            None => Ok(json!("an end does not run now; the rules are set before it starts")),
        };
        parts.add(&report.link, told);
    }
    parts
}
