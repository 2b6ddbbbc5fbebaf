//! What the clients have done so far, for whoever watches the run.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use history::{Draft, Function, Key, Kind, MicroOp, Value};

/// How operations of one function ended.
#[derive(Debug, Default)]
pub struct Counts {
    /// Begun.
    pub invoked: AtomicU64,
    /// Ended ok.
    pub ok: AtomicU64,
    /// Ended fail.
    pub fail: AtomicU64,
    /// Ended info.
    pub info: AtomicU64,
}

impl Counts {
    fn of(&self, kind: Kind) -> &AtomicU64 {
        match kind {
            Kind::Invoke => &self.invoked,
            Kind::Ok => &self.ok,
            Kind::Fail => &self.fail,
            Kind::Info => &self.info,
        }
    }
}

/// How far one key is written and read.
#[derive(Debug)]
pub struct KeyProgress {
    /// The key.
    pub key: Key,
    /// One past the greatest acknowledged offset.
    pub acked_end: AtomicI64,
    /// One past the greatest offset read.
    pub read_end: AtomicI64,
}

/// Counters that the clients keep up to date; read them at any time.
#[derive(Debug)]
pub struct LiveStats {
    /// Sends.
    pub send: Counts,
    /// Polls.
    pub poll: Counts,
    /// Assigns.
    pub assign: Counts,
    /// Subscribes.
    pub subscribe: Counts,
    /// Crashes.
    pub crash: Counts,
    /// Records that polls returned.
    pub records: AtomicU64,
    /// Sends begun and not ended.
    pub outstanding: AtomicU64,
    /// Sends begun more than 10 ms after their scheduled time.
    pub late_sends: AtomicU64,
    /// Sends that had to wait because too many were outstanding.
    pub delayed_sends: AtomicU64,
    /// Polls left out: their consumer was busy for more than a second past their time, or had
    /// just lost its position.
    pub skipped_polls: AtomicU64,
    /// Offset commits that were not acknowledged.
    pub failed_commits: AtomicU64,
    keys: Vec<KeyProgress>,
    by_key: HashMap<Key, usize>,
}

impl LiveStats {
    /// All zero, for a run over `keys`.
    pub fn new(keys: &[Key]) -> Self {
        Self {
            send: Counts::default(),
            poll: Counts::default(),
            assign: Counts::default(),
            subscribe: Counts::default(),
            crash: Counts::default(),
            records: AtomicU64::new(0),
            outstanding: AtomicU64::new(0),
            late_sends: AtomicU64::new(0),
            delayed_sends: AtomicU64::new(0),
            skipped_polls: AtomicU64::new(0),
            failed_commits: AtomicU64::new(0),
            keys: keys
                .iter()
                .map(|key| KeyProgress {
                    key: key.clone(),
                    acked_end: AtomicI64::new(0),
                    read_end: AtomicI64::new(0),
                })
                .collect(),
            by_key: keys.iter().enumerate().map(|(index, key)| (key.clone(), index)).collect(),
        }
    }

    /// How far each key is written and read.
    pub fn keys(&self) -> &[KeyProgress] {
        &self.keys
    }

    fn counts(&self, function: &Function) -> Option<&Counts> {
        match function {
            Function::Send => Some(&self.send),
            Function::Poll => Some(&self.poll),
            Function::Assign => Some(&self.assign),
            Function::Subscribe => Some(&self.subscribe),
            Function::Crash => Some(&self.crash),
            Function::Txn | Function::Other(_) => None,
        }
    }

    fn progress(&self, key: &Key) -> Option<&KeyProgress> {
        self.by_key.get(key).and_then(|index| self.keys.get(*index))
    }

    /// Counts an event that is about to be recorded.
    pub(crate) fn count(&self, event: &Draft) {
        let Some(counts) = self.counts(&event.function) else {
            return;
        };
        counts.of(event.kind).fetch_add(1, Relaxed);
        if event.function == Function::Send {
            if event.kind == Kind::Invoke {
                self.outstanding.fetch_add(1, Relaxed);
            } else {
                self.outstanding.fetch_sub(1, Relaxed);
            }
        }
        let Value::Ops(ops) = &event.value else {
            return;
        };
        for op in ops {
            self.advance(op);
        }
    }

    fn advance(&self, op: &MicroOp) {
        match op {
            MicroOp::Sent { key, offset: Some(offset), .. } => {
                if let Some(progress) = self.progress(key) {
                    progress.acked_end.fetch_max(offset + 1, Relaxed);
                }
            }
            MicroOp::Polled(records) => {
                for (key, pairs) in records {
                    self.records.fetch_add(pairs.len() as u64, Relaxed);
                    if let (Some(progress), Some((offset, _))) = (self.progress(key), pairs.last())
                    {
                        progress.read_end.fetch_max(offset + 1, Relaxed);
                    }
                }
            }
            _ => {}
        }
    }
}
