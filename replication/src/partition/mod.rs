//! One partition as its leader and its followers see it: R1 to R26, R31 to R34.
//!
//! | rule | function |
//! |---|---|
//! | R1 to R5 | [`eligibility`] |
//! | R6 | [`shrink::out_of_sync`] |
//! | R7, R8 | [`progress::FollowerProgress`] |
//! | R9 to R16 | [`isr_change`] |
//! | R17 to R19 | [`high_watermark`] |
//! | R20, R33 | [`high_watermark::follower_high_watermark`] |
//! | R23 to R26 | [`truncation`] |
//! | R31, R32 | [`leader_epoch`] |
//! | R34 | [`visibility`] |
//! | all of a leader, put together | [`Leader`] |

pub mod eligibility;
pub mod high_watermark;
pub mod isr_change;
pub mod leader;
pub mod leader_epoch;
pub mod progress;
pub mod shrink;
pub mod truncation;
pub mod visibility;

use std::collections::BTreeMap;

use crate::metadata::Broker;
use crate::types::{BrokerEpoch, NodeId};

pub use high_watermark::{FollowerHighWatermark, follower_high_watermark};
pub use isr_change::{AlterPartitionError, AlterPartitionOk, IsrProposal, ProposalKind};
pub use leader::{
    Acked, Assignment, Effects, FetchRefused, FollowerFetch, FollowerSnapshot, Leader,
    NotEnoughReplicas, Settings,
};
pub use leader_epoch::{EpochMismatch, Fenced, check_leader_epoch, on_fenced};
pub use truncation::{Truncation, diverging, on_becoming_follower, on_diverging};
pub use visibility::{OffsetNotAvailable, latest_offset, visible_end};

/// What this node knows of a broker from the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerState {
    /// In which life it is.
    pub epoch: BrokerEpoch,
    /// Not to serve.
    pub fenced: bool,
    /// On its way out (R28).
    pub in_controlled_shutdown: bool,
}

impl From<&Broker> for BrokerState {
    fn from(broker: &Broker) -> Self {
        let Broker { epoch, fenced, in_controlled_shutdown, .. } = *broker;
        Self { epoch, fenced, in_controlled_shutdown }
    }
}

/// What this node knows of brokers.
pub trait Brokers {
    /// Of `id`; `None`: not registered.
    fn broker(&self, id: NodeId) -> Option<BrokerState>;
}

impl Brokers for BTreeMap<NodeId, BrokerState> {
    fn broker(&self, id: NodeId) -> Option<BrokerState> {
        self.get(&id).copied()
    }
}
