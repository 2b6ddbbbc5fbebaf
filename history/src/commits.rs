//! What groups committed, and where they would go on: the observer's events `commit` and `committed`.
//! A consumer commits beside what its process does, so these are no operations of the process.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The observer's `f` for a commit: one event when it is sent, and one when it is answered.
pub const COMMIT: &str = "commit";
/// The observer's `f` for the question where a group would go on.
pub const COMMITTED: &str = "committed";

/// Where in its life a commit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommitPhase {
    /// Sent.
    Asked,
    /// Acknowledged for the keys that are named.
    Acknowledged,
    /// Refused, or nobody knows: it may take effect yet.
    Unknown,
}

/// The value of an event `commit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitValue {
    /// The same in all events of one commit.
    pub id: u64,
    /// The group.
    pub group: String,
    /// Where it is.
    pub phase: CommitPhase,
    /// By key: the offset after the last record that was read.
    pub offsets: BTreeMap<String, i64>,
}

/// The value of an event `committed`, recorded when the answer came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommittedValue {
    /// The group.
    pub group: String,
    /// When it was asked, nanoseconds since the run began.
    pub asked_ns: u64,
    /// By key: where the group would go on; null: it has committed nothing.
    pub offsets: BTreeMap<String, Option<i64>>,
}

/// An event of either kind, as read from a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At<T> {
    /// Index of the event.
    pub index: u64,
    /// Its time, nanoseconds since the run began.
    pub time_ns: u64,
    /// Its value.
    pub value: T,
}
