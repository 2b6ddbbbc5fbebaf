//! Doing and undoing: one file a fault.
//!
//! Every outcome is looked at before it is told: the process is gone, the threads stand still,
//! the packet does not arrive. What could not be seen to hold is not called installed.

mod bad_disk;
mod impair;
mod intercept;
mod kill;
mod partition;
mod pause;
mod power_off;
mod slow;
mod spoil;
mod stop;

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use cluster::{Cluster, NodeName};
use serde::Serialize;
use serde_json::Value;

pub(crate) use bad_disk::BadDisk;
pub(crate) use impair::Impair;
pub(crate) use intercept::Intercept;
pub(crate) use kill::Kill;
pub(crate) use partition::Partition;
pub(crate) use pause::Pause;
pub(crate) use power_off::PowerOff;
pub(crate) use slow::Slow;
pub(crate) use spoil::Spoil;
pub(crate) use stop::Stop;

/// How an injection or a heal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The fault holds, as the evidence shows.
    Installed,
    /// Nothing was done, for the reasons given.
    Skipped,
    /// Something was done, but its effect could not be seen.
    Indeterminate,
    /// The fault is gone, as the evidence shows.
    Healed,
    /// The fault could not be undone.
    Failed,
}

/// What was done, and what shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// In one word.
    #[serde(rename = "outcome")]
    pub status: Status,
    /// By node or link: what shows that it holds.
    pub evidence: BTreeMap<String, Value>,
    /// By node or link: why it does not.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub problems: BTreeMap<String, String>,
}

impl Outcome {
    /// Of a fault that names nobody, or that cannot be begun.
    pub fn skipped(reason: impl Into<String>) -> Self {
        Self {
            status: Status::Skipped,
            evidence: BTreeMap::new(),
            problems: BTreeMap::from([("all".to_owned(), reason.into())]),
        }
    }

    /// An injection is installed if it holds anywhere. If it was `delivered` but nowhere seen to
    /// hold, nobody can know.
    fn of_injection(parts: Parts, delivered: bool) -> Self {
        let status = match (parts.evidence.is_empty(), delivered) {
            (false, _) => Status::Installed,
            (true, true) => Status::Indeterminate,
            (true, false) => Status::Skipped,
        };
        Self { status, evidence: parts.evidence, problems: parts.problems }
    }

    /// A heal is complete or it has failed.
    fn of_heal(parts: Parts) -> Self {
        let status = if parts.problems.is_empty() { Status::Healed } else { Status::Failed };
        Self { status, evidence: parts.evidence, problems: parts.problems }
    }
}

/// Results by node or link, before they are summed up.
#[derive(Default)]
struct Parts {
    evidence: BTreeMap<String, Value>,
    problems: BTreeMap<String, String>,
}

impl Parts {
    fn add(&mut self, place: &impl ToString, result: Result<Value, impl ToString>) -> bool {
        match result {
            Ok(evidence) => {
                self.evidence.insert(place.to_string(), evidence);
                true
            }
            Err(problem) => {
                self.problems.insert(place.to_string(), problem.to_string());
                false
            }
        }
    }
}

/// One fault that strikes once and is healed once.
#[async_trait]
pub(crate) trait Fault: Send {
    /// Breaks it. What is struck is remembered for the heal.
    async fn inject(&mut self, cluster: &Cluster) -> Outcome;

    /// Undoes what [`Fault::inject`] did, no more.
    async fn heal(&mut self, cluster: &Cluster) -> Outcome;

    /// The nodes that [`Fault::heal`] would help, where each can be helped by itself.
    fn struck(&mut self) -> Option<&mut BTreeSet<NodeName>> {
        None
    }
}

/// Starts nodes again, side by side; for the faults that end processes.
async fn start_again(cluster: &Cluster, nodes: &BTreeSet<NodeName>) -> Outcome {
    let mut parts = Parts::default();
    for node in nodes {
        parts.add(node, cluster.start(*node).await);
    }
    Outcome::of_heal(parts)
}
