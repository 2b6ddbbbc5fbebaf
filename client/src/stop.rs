//! Telling threads that wait to stop.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A request to stop that threads can wait for. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Not requested yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests it. Doing so twice changes nothing.
    pub fn stop(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// Was it requested?
    pub fn is_stopped(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `time` unless it is requested before. Returns whether it was.
    pub fn wait(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut stopped = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if *stopped || left.is_zero() {
                return *stopped;
            }
            stopped =
                self.0.1.wait_timeout(stopped, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_when_the_time_is_over_or_stop_is_requested() {
        let stop = Stop::new();
        assert!(!stop.wait(Duration::from_millis(1)));
        let other = stop.clone();
        let waiter = std::thread::spawn(move || other.wait(Duration::from_secs(60)));
        stop.stop();
        assert!(waiter.join().unwrap());
        assert!(stop.is_stopped());
    }
}
