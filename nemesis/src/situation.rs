//! What a fault must know of the cluster at the moment it fires.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{NodeName, Role};
use history::Key;
use serde::Serialize;

/// Who leads a key and who holds replicas of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Leadership {
    /// None while there is no leader.
    pub leader: Option<NodeName>,
    /// Every replica, the leader included.
    pub replicas: BTreeSet<NodeName>,
}

/// The cluster as far as it could be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Situation {
    /// Every node and what it does.
    pub nodes: BTreeMap<NodeName, Role>,
    /// Nodes whose process runs and is not frozen: only they can be struck once more.
    pub alive: BTreeSet<NodeName>,
    /// The active controller, if anyone knows.
    pub controller: Option<NodeName>,
    /// The keys of the run.
    pub keys: BTreeMap<Key, Leadership>,
}

impl Situation {
    /// Nodes that hold replicas.
    pub fn brokers(&self) -> Vec<NodeName> {
        self.nodes.iter().filter(|(_, role)| role.is_broker()).map(|(name, _)| *name).collect()
    }

    /// Nodes that vote on the metadata log.
    pub fn controllers(&self) -> Vec<NodeName> {
        self.nodes.iter().filter(|(_, role)| role.is_controller()).map(|(name, _)| *name).collect()
    }
}
