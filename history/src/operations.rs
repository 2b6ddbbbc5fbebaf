//! A history in memory: operations instead of lines, and what they did by key.
//!
//! Laid out in columns and numbers, so that a million operations take some hundred bytes each at
//! most: an invocation and its completion are one operation, and the records of all polls of a
//! key lie one after the other.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::commits::{At, CommitValue, CommittedValue};
use crate::event::Pair;
use crate::fetched::Fetched;
use crate::names::{NameId, Names};
use crate::on_disk::{OnDisk, Stored};
use crate::probe::Probe;
use crate::promise::{ExemptValue, PromiseValue};

/// Number of an operation; they are numbered in the order in which they completed, and those
/// that never did come last, in the order of their invocations.
pub type OpId = u32;

/// Stands for the index of a completion that is not there: after every other.
pub const NEVER: u32 = u32::MAX;

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It happened.
    Ok,
    /// It certainly did not.
    Fail,
    /// Nobody can know.
    Info,
    /// The history ends before it did; as good as `Info`.
    Open,
}

/// One operation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Number of the process, counted from 0 in the order in which processes appear. The number
    /// in the file is in [`History::processes`].
    pub process: u32,
    /// Number of its `f` in [`History::functions`].
    pub function: NameId,
    /// How it ended.
    pub outcome: Outcome,
    /// How many values it sent, over all keys.
    pub sends: u32,
    /// Index of its invocation.
    pub invoked: u32,
    /// Index of its completion, or [`NEVER`].
    pub completed: u32,
    /// When the schedule wanted it, or else when it was invoked, nanoseconds since the run began.
    pub wanted_ns: u64,
    /// When it was invoked.
    pub invoked_ns: u64,
    /// When it completed; when it was invoked, if it never did.
    pub completed_ns: u64,
}

/// A value that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// By whom.
    pub op: OpId,
    pub(crate) offset: i64,
    /// What.
    pub value: i64,
}

impl Sent {
    pub(crate) const NOWHERE: i64 = -1;

    /// Where it landed, where the client could know. From 0 up.
    pub fn offset(&self) -> Option<i64> {
        (self.offset >= 0).then_some(self.offset)
    }
}

/// Number of a record among the distinct ones of its key, in the order in which they were first
/// polled.
pub type RecordId = u32;

/// Records that came one after the other, as they did before: a range of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub start: RecordId,
    /// One past the last.
    pub end: RecordId,
}

impl Run {
    /// Their numbers.
    pub const fn ids(&self) -> Range<RecordId> {
        self.start..self.end
    }
}

/// The records of one key that one poll returned, in their order. There is at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// By whom.
    pub op: OpId,
    pub(crate) runs: Run,
}

/// What was done with one key, in the order of completion.
///
/// However often a record is polled, it is kept once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyLog {
    /// Values sent.
    pub sends: Vec<Sent>,
    /// Polls that returned something.
    pub batches: Vec<Batch>,
    pub(crate) runs: Vec<Run>,
    /// Distinct pairs of offset and value that polls returned, by their numbers.
    pub records: Vec<Pair>,
}

impl KeyLog {
    /// Was it neither sent to nor polled?
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.batches.is_empty()
    }

    /// What `batch` returned.
    pub fn runs(&self, batch: &Batch) -> &[Run] {
        &self.runs[batch.runs.start as usize..batch.runs.end as usize]
    }

    /// The same, record by record.
    pub fn ids(&self, batch: &Batch) -> impl Iterator<Item = RecordId> + '_ {
        self.runs(batch).iter().flat_map(Run::ids)
    }
}

/// An operation after which a consumer may read elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Which operation: an assign, a subscribe, a crash, or a poll that saw a rebalance.
    pub op: OpId,
    /// What it did.
    pub change: Change,
}

/// How a consumer's reading changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// These keys and no others from now on.
    Assign {
        /// Numbers of the keys, ascending.
        keys: Vec<NameId>,
        /// Each from its beginning.
        seek_to_beginning: bool,
    },
    /// These topics, as their group decides.
    Subscribe {
        /// Each key from its beginning.
        seek_to_beginning: bool,
    },
    /// These keys were gained or lost.
    Rebalance {
        /// Numbers of the keys, ascending.
        keys: Vec<NameId>,
    },
    /// The client is gone.
    Crash,
}

/// An event of the nemesis, or of the observer.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// Its index.
    pub index: u64,
    /// Nanoseconds since the run began.
    pub time_ns: u64,
    /// Its `f`.
    pub function: String,
    /// Its value.
    pub value: serde_json::Value,
}

/// A whole history.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// What clients did.
    pub operations: Vec<Operation>,
    /// Numbers of processes as the file has them, by [`Operation::process`].
    pub processes: Vec<u64>,
    /// Names of operations.
    pub functions: Names,
    /// Names of keys and topics.
    pub names: Names,
    /// By the number of the key's name. Names of topics have an empty one.
    pub logs: Vec<KeyLog>,
    /// By [`Operation::process`], in the order of completion.
    pub setups: BTreeMap<u32, Vec<Setup>>,
    /// What the nemesis did, in order.
    pub nemesis: Vec<Note>,
    /// The observer's looks at the recovered cluster, in order: its events `recovery`.
    pub recovery: Vec<Note>,
    /// What the observer saw of replicas, in order: its events `probe`.
    pub probes: Vec<Probe>,
    /// What a raw consumer got of leaders, in order: the observer's events `fetch`.
    pub fetches: Vec<Fetched>,
    /// The replicas on the disks of stopped nodes: the observer's events `disk`.
    pub disks: Vec<OnDisk>,
    /// Their batches: the observer's events `log`.
    pub stored: Vec<Stored>,
    /// What groups committed, in order: the observer's events `commit`.
    pub commits: Vec<At<CommitValue>>,
    /// Where groups would go on, in order: the observer's events `committed`.
    pub committed: Vec<At<CommittedValue>>,
    /// What acknowledgements promise; none where the history does not say.
    pub promise: PromiseValue,
    /// Values whose acknowledgements promise less.
    pub exempt: Vec<ExemptValue>,
    /// Names of nodes and keys in `probes`, `fetches`, `disks` and `stored`.
    pub probed: Names,
    /// How often each error code came with each `f`.
    pub errors: BTreeMap<(NameId, String), u64>,
    /// How many lines were read.
    pub events: u64,
    /// Time of the last event.
    pub duration_ns: u64,
    /// What a reader should know about the file, a sentence each.
    pub warnings: Vec<String>,
}

impl History {
    /// The name of the key with number `key`.
    pub fn key(&self, key: NameId) -> &str {
        self.names.get(key)
    }

    /// The operation with number `op`.
    pub fn op(&self, op: OpId) -> &Operation {
        &self.operations[op as usize]
    }
}
