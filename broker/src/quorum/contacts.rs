//! What this node last heard, from whom and when.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// When another node was last heard of, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contact {
    /// It answered.
    pub(super) answered_ms: Option<i64>,
    /// It had the whole log.
    pub(super) caught_up_ms: Option<i64>,
}

impl Contact {
    /// A node knows that of itself.
    pub(super) fn now() -> Self {
        Self { answered_ms: Some(now_ms()), caught_up_ms: Some(now_ms()) }
    }
}

/// What was heard; clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Contacts(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    /// When this node last heard a leader, voted or stood for election; or when it began.
    heard: Instant,
    nodes: BTreeMap<u64, Contact>,
    is_silent: bool,
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

impl Contacts {
    /// Nothing was heard yet.
    pub(super) fn new() -> Self {
        let heard = Instant::now();
        Self(Arc::new(Mutex::new(Inner { heard, nodes: BTreeMap::new(), is_silent: false })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A leader was heard `ago`, or this node voted or stood then.
    pub(super) fn heard(&self, ago: Duration) {
        let mut inner = self.lock();
        let at = Instant::now().checked_sub(ago);
        inner.heard = at.map_or(inner.heard, |at| at.max(inner.heard));
    }

    /// How long ago that was.
    pub(super) fn since_heard(&self) -> Duration {
        self.lock().heard.elapsed()
    }

    /// Whether a leader keeps from speaking (see [`super::elections::Pace::may_speak`]).
    pub(super) fn set_silent(&self, is_silent: bool) {
        self.lock().is_silent = is_silent;
    }

    pub(super) fn is_silent(&self) -> bool {
        self.lock().is_silent
    }

    /// Node `id` answered just now.
    pub(super) fn answered(&self, id: u64) {
        self.lock().nodes.entry(id).or_default().answered_ms = Some(now_ms());
    }

    /// Node `id` has the whole log now.
    pub(super) fn caught_up(&self, id: u64) {
        self.lock().nodes.entry(id).or_default().caught_up_ms = Some(now_ms());
    }

    pub(super) fn of(&self, id: u64) -> Contact {
        self.lock().nodes.get(&id).copied().unwrap_or_default()
    }
}
