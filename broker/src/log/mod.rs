//! A partition's log on disk, in Kafka's layout.
//!
//! | subject | module |
//! |---|---|
//! | v2 batches as bytes | [`batch`] |
//! | the records inside them | `records` |
//! | what a producer sent, checked | [`validate`] |
//! | one segment: records, offset index, time index | [`segment`] |
//! | all segments: append, roll, truncate, retention | [`log`] |
//! | reading | `read` |
//! | opening, and what is left after an unclean stop | `recover` |
//! | what of a compacted log stays | [`compaction`] |
//! | its segments exchanged | `swap` |
//! | checkpoints, written atomically | [`checkpoint`] |
//! | the folder of all logs | [`directory`] |

pub mod batch;
pub mod checkpoint;
pub mod compaction;
pub mod directory;
#[expect(clippy::module_inception, reason = "the log itself, among what belongs to it")]
pub mod log;
mod read;
mod records;
mod recover;
pub mod segment;
mod swap;
pub mod validate;

use std::io;
use std::path::PathBuf;

use kafka_protocol::ResponseError;
use replication::types::Offset;
use thiserror::Error;

pub use batch::{Batch, BatchError, batches};
pub use directory::LogDirectory;
pub use log::{Log, SyncTicket};
pub use recover::RecoveryReport;
pub use validate::{ValidationError, validate_from_producer};

/// What a log is told.
#[derive(Clone, Debug, PartialEq)]
pub struct LogSettings {
    /// `segment.bytes`.
    pub segment_bytes: u64,
    /// `segment.ms`.
    pub segment_ms: i64,
    /// `index.interval.bytes`.
    pub index_interval_bytes: u64,
    /// `max.message.bytes`.
    pub max_message_bytes: usize,
    /// `retention.ms`; `None`: for ever.
    pub retention_ms: Option<i64>,
    /// `retention.bytes`; `None`: whatever there is.
    pub retention_bytes: Option<u64>,
    /// `cleanup.policy` has delete.
    pub deletes: bool,
    /// `cleanup.policy` has compact.
    pub compacts: bool,
    /// `min.cleanable.dirty.ratio`.
    pub min_dirty_ratio: f64,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
    /// `message.timestamp.type` is LogAppendTime.
    pub log_append_time: bool,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600_000,
            index_interval_bytes: 4096,
            max_message_bytes: 1_048_588,
            retention_ms: Some(7 * 24 * 3_600_000),
            retention_bytes: None,
            deletes: true,
            compacts: false,
            min_dirty_ratio: 0.5,
            delete_retention_ms: 24 * 3_600_000,
            log_append_time: false,
        }
    }
}

/// Why a log does not do what it was asked.
#[derive(Debug, Error)]
pub enum LogError {
    /// The disk.
    #[error("{}: {reason}", path.display())]
    Disk {
        /// Which file.
        path: PathBuf,
        /// What it said.
        reason: io::Error,
    },
    /// What lies in a file is not what it must be.
    #[error("{} at byte {position}: {reason}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where.
        position: u64,
        /// What is wrong.
        reason: String,
    },
    /// Records that do not continue the log.
    #[error("records from {found} on do not continue a log that ends at {expected}")]
    Gap {
        /// The log's end.
        expected: Offset,
        /// Where they begin.
        found: Offset,
    },
    /// Records that cannot be read.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The log begins later, or ends earlier.
    #[error("offset {asked} is outside of {start} to {end}")]
    OutOfRange {
        /// What was asked for.
        asked: Offset,
        /// Where the log begins.
        start: Offset,
        /// Where it ends.
        end: Offset,
    },
}

impl LogError {
    pub(crate) fn disk(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |reason| Self::Disk { path, reason }
    }

    /// Kafka's code for it.
    pub const fn response(&self) -> ResponseError {
        match self {
            Self::Disk { .. } | Self::Damaged { .. } => ResponseError::KafkaStorageError,
            Self::Gap { .. } | Self::OutOfRange { .. } => ResponseError::OffsetOutOfRange,
            Self::Batch(_) => ResponseError::CorruptMessage,
        }
    }

    /// Is it the disk that failed, and not what it was given?
    pub const fn is_disk(&self) -> bool {
        matches!(self, Self::Disk { .. } | Self::Damaged { .. })
    }
}

#[cfg(test)]
mod tests;
