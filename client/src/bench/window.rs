//! How many records may be without an answer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Longest sleep of a sender before it looks at the clock again.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A bounded count of open sends, for one sender and one thread that serves the reports. A full
/// window lets the sender in again once a quarter of it is free: waking it for each single report
/// would cost more than the send.
pub(super) struct Window {
    limit: usize,
    low: usize,
    open: AtomicUsize,
    sender: Thread,
}

impl Window {
    /// A window of `limit` sends (at least 1) for the thread that calls this.
    pub(super) fn of_this_thread(limit: usize) -> Self {
        let limit = limit.max(1);
        Self { limit, low: limit * 3 / 4, open: AtomicUsize::new(0), sender: thread::current() }
    }

    /// Takes a place, waiting for one until `until`. False where there is none by then, or `over`
    /// says so.
    pub(super) fn enter(&self, until: Instant, over: impl Fn() -> bool) -> bool {
        if self.open.load(Ordering::Acquire) >= self.limit && !self.wait_for(self.low, until, over)
        {
            return false;
        }
        self.open.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Gives a place back.
    pub(super) fn leave(&self) {
        let before = self.open.fetch_sub(1, Ordering::AcqRel);
        if before == self.low + 1 || before == 1 {
            self.sender.unpark();
        }
    }

    /// Waits until nothing is open, or until `until`; how many are.
    pub(super) fn drain(&self, until: Instant, over: impl Fn() -> bool) -> usize {
        self.wait_for(0, until, over);
        self.open.load(Ordering::Acquire)
    }

    fn wait_for(&self, most: usize, until: Instant, over: impl Fn() -> bool) -> bool {
        while self.open.load(Ordering::Acquire) > most {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || over() {
                return false;
            }
            thread::park_timeout(left.min(LOOK_EVERY));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(1)
    }

    #[test]
    fn a_full_window_opens_again_when_a_quarter_is_free() {
        let window = Window::of_this_thread(4);
        for _ in 0..4 {
            assert!(window.enter(soon(), || false));
        }
        assert!(!window.enter(soon(), || false));
        window.leave();
        assert!(window.enter(soon(), || false), "3 of 4 are taken");
        assert_eq!(window.drain(soon(), || false), 4);
        assert!(!window.enter(Instant::now() + Duration::from_secs(60), || true), "it is over");
    }

    #[test]
    fn a_waiting_sender_is_woken_by_the_report_that_makes_room() {
        let window = Arc::new(Window::of_this_thread(1));
        assert!(window.enter(soon(), || false));
        let other = Arc::clone(&window);
        let reports = thread::spawn(move || other.leave());
        let long = Instant::now() + Duration::from_secs(60);
        assert!(window.enter(long, || false));
        reports.join().unwrap();
        window.leave();
        assert_eq!(window.drain(long, || false), 0);
    }
}
