//! What the disks of stopped nodes held after a run: the observer's events `disk` and `log`.

use serde::{Deserialize, Serialize};

use crate::fetched::BatchMark;
use crate::names::NameId;

/// The observer's `f` for a replica on a disk.
pub const DISK: &str = "disk";
/// The observer's `f` for batches, and the nodes on whose disks they are.
pub const LOG: &str = "log";

/// The value of an event `disk`: one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskValue {
    /// Whose disk: `n1`.
    pub node: String,
    /// The partition: `orders-0`.
    pub key: String,
    /// Where its log begins.
    pub log_start: i64,
    /// The offset after its last whole batch.
    pub log_end: i64,
    /// Its high watermark as written down last; absent: none is.
    pub high_watermark: Option<i64>,
    /// Its epoch vector as written down: epoch and first offset.
    pub epochs: Vec<(i32, i64)>,
    /// Bytes behind the last whole batch: a write that was not finished.
    pub torn_bytes: u64,
    /// First offsets of batches whose content does not fit their checksum.
    pub damaged: Vec<i64>,
    /// First offsets of batches that do not follow what their producer sent before, by its own numbers.
    #[serde(default)]
    pub misnumbered: Vec<i64>,
}

/// The value of an event `log`: batches of a key one after the other, all on the same disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogValue {
    /// The partition.
    pub key: String,
    /// On whose disks.
    pub nodes: Vec<String>,
    /// In the order of their offsets.
    pub batches: Vec<BatchMark>,
}

/// A replica on a disk, as read from a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDisk {
    /// Index of the event.
    pub index: u64,
    /// Number of the node's name in [`crate::History::probed`].
    pub node: NameId,
    /// Number of the partition's name in [`crate::History::probed`].
    pub key: NameId,
    /// All that was recorded.
    pub value: DiskValue,
}

/// Batches on disks, as read from a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Index of the event.
    pub index: u64,
    /// Number of the partition's name in [`crate::History::probed`].
    pub key: NameId,
    /// Numbers of the nodes' names in [`crate::History::probed`].
    pub nodes: Vec<NameId>,
    /// In the order of their offsets.
    pub batches: Vec<BatchMark>,
}
