//! Recording operations: process numbers, invocations, completions.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use history::{Draft, Function, Key, Kind, MicroOp, Process, Record, Value};

use crate::live::LiveStats;

/// Where every client of a run records what it does. Process numbers come from here alone, so
/// no two clients of a run share one.
pub(crate) struct Journal {
    recorder: Arc<dyn Record>,
    live: Arc<LiveStats>,
    next_process: AtomicU64,
    next_commit: AtomicU64,
}

impl Journal {
    pub(crate) fn new(recorder: Arc<dyn Record>, live: Arc<LiveStats>) -> Self {
        Self { recorder, live, next_process: AtomicU64::new(0), next_commit: AtomicU64::new(0) }
    }

    pub(crate) fn live(&self) -> &LiveStats {
        &self.live
    }

    /// Nanoseconds since the run began.
    pub(crate) fn now_ns(&self) -> u64 {
        self.recorder.now_ns()
    }

    /// A number that no process has had.
    pub(crate) fn fresh_process(&self) -> u64 {
        self.next_process.fetch_add(1, Ordering::Relaxed)
    }

    /// A number that no commit has had.
    pub(crate) fn fresh_commit(&self) -> u64 {
        self.next_commit.fetch_add(1, Ordering::Relaxed)
    }

    /// Has anybody committed anything?
    pub(crate) fn has_commits(&self) -> bool {
        self.next_commit.load(Ordering::Relaxed) > 0
    }

    /// Records what belongs to no process's operation.
    pub(crate) fn observe(&self, function: &str, value: serde_json::Value) {
        self.recorder.record(Draft::note(Process::Observer, function, value));
    }

    pub(crate) fn record(&self, event: Draft) {
        self.live.count(&event);
        self.recorder.record(event);
    }

    /// Records that `process` begins `function` with `value`.
    pub(crate) fn invoke(
        &self,
        process: u64,
        function: Function,
        value: Value,
        scheduled_ns: Option<u64>,
    ) {
        let mut event = Draft::new(Process::Client(process), Kind::Invoke, function, value);
        event.scheduled_ns = scheduled_ns;
        self.record(event);
    }
}

/// The value of a send that is begun, or whose result is not ok.
pub(crate) fn send_value(key: &Key, value: i64) -> Value {
    Value::Ops(vec![MicroOp::Send { key: key.clone(), value }])
}

/// The logical processes of one producer client. Each has at most one send open, so that the
/// client as a whole may have many.
pub(crate) struct ProcessPool {
    journal: Arc<Journal>,
    free: Mutex<BTreeSet<u64>>,
}

impl ProcessPool {
    pub(crate) fn new(journal: Arc<Journal>) -> Self {
        Self { journal, free: Mutex::default() }
    }

    /// The lowest free process, or a new one.
    pub(crate) fn take(&self) -> u64 {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.pop_first().unwrap_or_else(|| self.journal.fresh_process())
    }

    /// `process` has ended a send ok or fail, and may begin another. One whose send ended info
    /// is never given back.
    pub(crate) fn give_back(&self, process: u64) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.insert(process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Deaf;

    impl Record for Deaf {
        fn record(&self, _: Draft) -> u64 {
            0
        }

        fn now_ns(&self) -> u64 {
            0
        }
    }

    #[test]
    fn the_lowest_free_process_is_taken_and_retired_ones_never_return() {
        let live = Arc::new(LiveStats::new(&[]));
        let pool = ProcessPool::new(Arc::new(Journal::new(Arc::new(Deaf), live)));
        let (first, second, third) = (pool.take(), pool.take(), pool.take());
        pool.give_back(third);
        pool.give_back(first);
        assert_eq!(pool.take(), first);
        assert_eq!(pool.take(), third);
        assert!(pool.take() > third, "{second} is retired");
    }
}
