//! What the controller decides: pure over the metadata image.
//!
//! | rule or subject | module |
//! |---|---|
//! | R27 fencing, and its reverse | [`fencing`] |
//! | R28 controlled shutdown | [`shutdown`] |
//! | R29, R30 elections | [`election`] |
//! | R35, R36 AlterPartition | [`alter_partition`] |
//! | registration, heartbeats, sessions | [`registration`], [`heartbeat`], [`sessions`] |
//! | topics and where their replicas go | [`topics`], [`placement`] |
//! | reassignment | [`reassignment`] |
//! | settings | [`configs`] |
//! | producer ids, features | [`producer_ids`], [`features`] |

pub mod alter_partition;
pub mod configs;
pub mod election;
pub mod features;
pub mod fencing;
pub mod heartbeat;
pub mod placement;
pub mod producer_ids;
pub mod reassignment;
pub mod registration;
pub mod sessions;
pub mod shutdown;
pub mod topics;

#[cfg(test)]
mod invariants;
#[cfg(test)]
mod testing;

use thiserror::Error;

use crate::metadata::Image;
use crate::metadata::settings::Defaults;

/// What decisions are made over.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    /// The metadata.
    pub image: &'a Image,
    /// What the controller's file says of topics.
    pub defaults: &'a Defaults,
}

/// Why something was not done; each is one of Kafka's errors.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind:?}: {reason}")]
pub struct ControllerError {
    /// Which.
    pub kind: ErrorKind,
    /// For people.
    pub reason: String,
}

/// Kafka's errors, as far as controllers give them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i16)]
#[expect(missing_docs, reason = "they are Kafka's, under Kafka's names and numbers")]
pub enum ErrorKind {
    UnknownTopicOrPartition = 3,
    InvalidTopicException = 17,
    TopicAlreadyExists = 36,
    InvalidPartitions = 37,
    InvalidReplicationFactor = 38,
    InvalidReplicaAssignment = 39,
    InvalidConfig = 40,
    NotController = 41,
    InvalidRequest = 42,
    FencedLeaderEpoch = 74,
    StaleBrokerEpoch = 77,
    PreferredLeaderNotAvailable = 80,
    EligibleLeadersNotAvailable = 83,
    ElectionNotNeeded = 84,
    NoReassignmentInProgress = 85,
    InvalidUpdateVersion = 95,
    UnknownTopicId = 100,
    DuplicateBrokerRegistration = 101,
    BrokerIdNotRegistered = 102,
    IneligibleReplica = 107,
    OperationNotAttempted = 55,
    NewLeaderElected = 108,
}

impl ControllerError {
    /// Of this kind, for this reason.
    pub fn new(kind: ErrorKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }

    /// Kafka's number for it.
    pub const fn code(&self) -> i16 {
        self.kind as i16
    }
}
