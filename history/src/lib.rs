//! What a run did, as data: events, the history file, and the names both sides of the rig agree on.
//!
//! The shapes follow Jepsen's Kafka workload. This crate does no I/O of its own: readers take
//! `Read`, writers take `Write`, and time is handed in.
#![forbid(unsafe_code)]

mod commits;
mod error;
mod event;
mod fetched;
mod names;
mod on_disk;
mod operations;
mod probe;
mod promise;
mod read;
mod record;

pub use commits::{At, COMMIT, COMMITTED, CommitPhase, CommitValue, CommittedValue};
pub use error::ReadError;
pub use event::{
    Draft, Event, Function, Key, Kind, MicroOp, Pair, Process, Rebalance, RebalanceKind, Value,
};
pub use fetched::{BatchMark, Edges, FETCH, FetchValue, Fetched, SERVED};
pub use names::{NameId, Names};
pub use on_disk::{DISK, DiskValue, LOG, LogValue, OnDisk, Stored};
pub use operations::{
    Batch, Change, History, KeyLog, NEVER, Note, OpId, Operation, Outcome, RecordId, Run, Sent,
    Setup,
};
pub use probe::{PROBE, Probe, ProbeValue, ReplicaState};
pub use promise::{EXEMPT, ExemptValue, PROMISE, PromiseValue, TopicPromise};
pub use read::LineError;
pub use record::Record;
