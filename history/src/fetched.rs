//! What a raw consumer got from one node: the observer's events `fetch`.

use serde::{Deserialize, Serialize};

use crate::names::NameId;

/// The observer's `f` for one fetch of one key.
pub const FETCH: &str = "fetch";

/// A batch as its header tells of it; in a file `[first, last, epoch, crc]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(i64, i64, i32, u32)", into = "(i64, i64, i32, u32)")]
pub struct BatchMark {
    /// Offset of its first record.
    pub first: i64,
    /// Offset of its last record.
    pub last: i64,
    /// Epoch of the leader that appended it.
    pub epoch: i32,
    /// Checksum of all that it holds. It covers neither the offsets nor the epoch.
    pub crc: u32,
}

impl From<(i64, i64, i32, u32)> for BatchMark {
    fn from((first, last, epoch, crc): (i64, i64, i32, u32)) -> Self {
        Self { first, last, epoch, crc }
    }
}

impl From<BatchMark> for (i64, i64, i32, u32) {
    fn from(mark: BatchMark) -> Self {
        (mark.first, mark.last, mark.epoch, mark.crc)
    }
}

/// What stands among the names of errors for an answer without one.
pub const SERVED: &str = "NONE";

/// What questions at the edge got, each the name of an error, or [`SERVED`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edges {
    /// A fetch in the leader epoch before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_epoch: Option<String>,
    /// A fetch in a leader epoch that is still to come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newer_epoch: Option<String>,
    /// A fetch far beyond the log's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beyond_end: Option<String>,
}

/// The value of an event `fetch`: what one node served of one key. Recorded when the answer came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchValue {
    /// Who was asked: `n1`.
    pub node: String,
    /// The partition: `orders-0`.
    pub key: String,
    /// When it was asked, nanoseconds since the run began.
    pub asked_ns: u64,
    /// The leader epoch in which the node served.
    pub leader_epoch: i32,
    /// The offset that was asked for.
    pub from: i64,
    /// The high watermark beside the records.
    pub high_watermark: i64,
    /// The last stable offset beside them.
    pub last_stable: i64,
    /// The log start beside them.
    pub log_start: i64,
    /// The whole batches that came.
    pub batches: Vec<BatchMark>,
    /// What was asked at the edge right after.
    #[serde(default)]
    pub edges: Edges,
}

impl FetchValue {
    /// Does something in it stand above the high watermark beside it? It may have risen while the
    /// answer was made: only a second question tells.
    pub fn is_suspicious(&self) -> bool {
        let above = |batch: &BatchMark| batch.first >= self.high_watermark;
        self.last_stable > self.high_watermark || self.batches.iter().any(above)
    }
}

/// A fetch, as read from a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Index of the event.
    pub index: u64,
    /// When the answer came, nanoseconds since the run began.
    pub answered_ns: u64,
    /// Number of the node's name in [`crate::History::probed`].
    pub node: NameId,
    /// Number of the partition's name in [`crate::History::probed`].
    pub key: NameId,
    /// All that was recorded.
    pub value: FetchValue,
}
