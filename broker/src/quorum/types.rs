//! Types that openraft is told.

use std::io::Cursor;

use serde::{Deserialize, Serialize};

use crate::controller::entry::Entry;

/// An entry, and the term in which it was decided. In the log of another term it does not count:
/// whoever decided it did not know what came between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Proposal {
    pub(super) term: u64,
    pub(super) entry: Entry,
}

/// What applying an entry says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Taken(pub(super) bool);

openraft::declare_raft_types!(
    /// Openraft's types, filled in.
    pub(super) Types:
        D = Proposal,
        R = Taken,
        NodeId = u64,
        Node = openraft::BasicNode,
        Entry = openraft::Entry<Types>,
        SnapshotData = Cursor<Vec<u8>>,
        AsyncRuntime = openraft::TokioRuntime,
);

pub(super) type LogId = openraft::LogId<u64>;
pub(super) type RaftEntry = openraft::Entry<Types>;
pub(super) type Vote = openraft::Vote<u64>;
pub(super) type StorageError = openraft::StorageError<u64>;
pub(super) type Membership = openraft::StoredMembership<u64, openraft::BasicNode>;
pub(super) type SnapshotMeta = openraft::SnapshotMeta<u64, openraft::BasicNode>;
