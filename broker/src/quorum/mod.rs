//! The metadata log: openraft, with our log store, state machine and transport around it.
//!
//! | subject | module |
//! |---|---|
//! | types that openraft is told | `types` |
//! | the log on disk: entries, vote | [`store`], its lines `lines` |
//! | what the log adds up to, and snapshots of it | `machine` |
//! | messages between nodes | `network` |
//! | when to stand for election, decided | `elections` |
//! | and done; heartbeats | `pacer` |
//! | what was last heard from whom | `contacts` |
//! | one node's part of the quorum | [`Quorum`] |

mod contacts;
mod elections;
mod lines;
mod machine;
mod network;
mod node;
mod pacer;
pub mod store;
#[cfg(test)]
mod tests;
mod types;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use replication::types::NodeId;
use thiserror::Error;

use crate::controller::entry::Metadata;

pub use node::{Quorum, QuorumConfig};

/// Carries messages between the nodes of the quorum.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Brings `rpc` to node `to` at `address`; its answer, within `deadline`.
    ///
    /// # Errors
    /// No answer.
    async fn call(
        &self,
        to: NodeId,
        address: &str,
        rpc: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, TransportError>;
}

/// No answer came.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct TransportError(String);

impl TransportError {
    /// For this reason.
    pub const fn new(reason: String) -> Self {
        Self(reason)
    }
}

/// What a node has applied.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The metadata.
    pub state: Arc<Metadata>,
    /// The index of the last entry in it; -1: none.
    pub index: i64,
}

/// Who leads, as far as a node knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    /// Who, and where.
    pub leader: Option<(NodeId, String)>,
    /// In which term.
    pub term: u64,
    /// Is it this node?
    pub i_lead: bool,
}

/// Why an entry is not known to be in the log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WriteError {
    /// It is not: another node leads.
    #[error("another node leads the quorum: {leader:?}")]
    NotLeader {
        /// Who, if that is known.
        leader: Option<NodeId>,
    },
    /// It may be.
    #[error("the quorum did not take the entry in time")]
    Unknown,
    /// This node's part of the quorum has ended.
    #[error("the metadata log does not work any more: {0}")]
    Fatal(String),
}

/// Why this node takes no part in the quorum.
#[derive(Debug, Error)]
pub enum QuorumError {
    /// The disk, or what lies on it.
    #[error("{}: {reason}", path.display())]
    Disk {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Openraft does not start, or not any more.
    #[error("the metadata log does not work: {0}")]
    Raft(String),
}

/// The quorum as its leader sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuorumView {
    /// Who leads.
    pub leader: Option<NodeId>,
    /// In which term.
    pub leader_epoch: u64,
    /// The last entry that is committed.
    pub high_watermark: i64,
    /// Who votes.
    pub voters: Vec<QuorumNode>,
    /// Who only reads.
    pub observers: Vec<QuorumNode>,
}

/// A node of the quorum, as its leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuorumNode {
    /// Who.
    pub id: NodeId,
    /// The index after the last entry that it has.
    pub log_end: i64,
    /// When it was last heard of, in milliseconds since 1970.
    pub last_contact_ms: Option<i64>,
    /// When it last had everything.
    pub last_caught_up_ms: Option<i64>,
}
