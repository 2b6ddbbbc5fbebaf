//! What the observer saw of replicas while a run went on: its events `probe`.

use serde::{Deserialize, Serialize};

use crate::names::NameId;

/// The observer's `f` for a look at one replica.
pub const PROBE: &str = "probe";

/// What a replica says of itself, in the names that its page and the history share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaState {
    /// Its leader epoch; -1: none yet.
    pub leader_epoch: i32,
    /// Its partition epoch; -1: none yet, or not told.
    pub partition_epoch: i32,
    /// The ISR as it knows it.
    pub isr: Vec<i32>,
    /// Its high watermark.
    pub high_watermark: i64,
    /// Its log end offset.
    pub log_end: i64,
    /// Where its log begins.
    pub log_start: i64,
}

/// The value of an event `probe`: a replica as it saw itself. Recorded when the answer came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeValue {
    /// Whose replica: `n1`.
    pub node: String,
    /// The same, as an ISR names it.
    pub id: i32,
    /// The partition: `orders-0`.
    pub key: String,
    /// The topic's id; empty where it is not known.
    #[serde(default)]
    pub topic_id: String,
    /// When it was asked, nanoseconds since the run began: it saw itself between then and the time of
    /// the event.
    pub asked_ns: u64,
    /// Does it lead?
    pub leads: bool,
    /// What it says of its epochs and its log.
    #[serde(flatten)]
    pub state: ReplicaState,
    /// Its epoch vector: epoch and first offset; empty where it is not told.
    pub epochs: Vec<(i32, i64)>,
}

/// A look at one replica, as read from a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Index of the event.
    pub index: u64,
    /// When the answer came, nanoseconds since the run began.
    pub answered_ns: u64,
    /// When it was asked, the same.
    pub asked_ns: u64,
    /// Number of the node's name in [`crate::History::probed`].
    pub node: NameId,
    /// The node, as an ISR names it.
    pub id: i32,
    /// Number of the partition's name in [`crate::History::probed`].
    pub key: NameId,
    /// Number of the topic's id in [`crate::History::probed`].
    pub topic_id: NameId,
    /// Does it lead?
    pub leads: bool,
    /// What it says of its epochs and its log.
    pub state: ReplicaState,
}
