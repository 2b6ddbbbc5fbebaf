//! What happened in a run, in numbers. Never judged, only told.

mod lag;
mod measure;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use measure::measure;

/// The numbers of a history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    /// Lines read.
    pub events: u64,
    /// Invocations of clients.
    pub operations: u64,
    /// Time of the last event, nanoseconds since the run began.
    pub duration_ns: u64,
    /// Operations of clients by their `f`.
    pub by_f: BTreeMap<String, FunctionStats>,
    /// The longest time without an ok send; `None` where nobody sent anything.
    pub availability: Option<Availability>,
    /// How stale the stalest ok poll was, a lower bound; `None` where none was stale.
    pub realtime_lag: Option<RealtimeLag>,
    /// By partition.
    pub keys: BTreeMap<String, KeyStats>,
    /// Times in which a fault was in force, in the order in which they began.
    pub fault_windows: Vec<FaultWindow>,
    /// What a reader should know about the history itself, a sentence each.
    pub warnings: Vec<String>,
}

/// How operations ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcomes {
    /// Happened.
    pub ok: u64,
    /// Certainly did not happen.
    pub fail: u64,
    /// Nobody can know.
    pub info: u64,
}

/// The operations of one `f`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FunctionStats {
    /// Invocations.
    pub invoked: u64,
    /// Completions.
    #[serde(flatten)]
    pub outcomes: Outcomes,
    /// Invocations that have no completion.
    pub open: u64,
    /// Codes of errors on fail and info, how often each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, u64>,
    /// Of ok operations.
    pub latency: Option<Latency>,
}

/// Quantiles of the time from when an operation was scheduled, or else invoked, to its
/// completion. Within one part in a thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// How many were measured.
    pub count: u64,
    /// Half were at most this.
    pub p50_ns: u64,
    /// Nine of ten.
    pub p90_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1000.
    pub p99_9_ns: u64,
    /// All.
    pub max_ns: u64,
}

/// The longest time in which sends were asked for and none was ok.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Availability {
    /// Its length.
    pub longest_gap_ns: u64,
    /// Begin, nanoseconds since the run began.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
}

/// A poll that was certainly stale: a record beyond what it saw had been known for so long when
/// the poll was invoked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RealtimeLag {
    /// For how long, at least.
    pub max_ns: u64,
    /// The partition.
    pub key: String,
    /// Invocation of the poll.
    pub time_ns: u64,
    /// History indices: what showed the newer record, and the poll's invocation and completion.
    pub ops: Vec<u64>,
    /// One sentence.
    pub text: String,
}

/// One partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyStats {
    /// Values acknowledged.
    pub acked: u64,
    /// Distinct values in ok polls.
    pub read: u64,
    /// Values acknowledged that are in no ok poll.
    pub unread: u64,
    /// The highest offset seen, by send or poll.
    pub last_offset: Option<i64>,
}

/// A time in which a fault was in force: from the line that says it was installed to the line
/// that says it was healed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FaultWindow {
    /// Number of the fault in the history.
    pub id: u64,
    /// The injecting `f`: `kill`, `pause`, …
    pub fault: String,
    /// Whom it struck, as the history names it; what else the line says stays in the history.
    pub target: Option<String>,
    /// Installed, nanoseconds since the run began.
    pub start_ns: u64,
    /// Healed, or the end of the history.
    pub end_ns: u64,
    /// Does the history say that it was healed?
    pub healed: bool,
    /// History indices of both lines.
    pub ops: Vec<u64>,
    /// Completions within it.
    pub outcomes: Outcomes,
    /// Latency of ok operations that completed within it, by `f`.
    pub latency: BTreeMap<String, Latency>,
}

impl FaultWindow {
    /// Did clients feel it: did any operation fail, or end unknown?
    pub const fn bit(&self) -> bool {
        self.outcomes.fail + self.outcomes.info > 0
    }
}
