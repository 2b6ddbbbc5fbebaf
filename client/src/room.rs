//! How many sends may be without an answer.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A bounded count of outstanding sends.
pub(crate) struct Room {
    limit: usize,
    taken: Mutex<usize>,
    freed: Condvar,
}

/// How a place was got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// At once.
    AtOnce,
    /// After waiting for others to end.
    Delayed,
    /// Not at all, for a while: all places are taken.
    Full,
}

impl Room {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, taken: Mutex::new(0), freed: Condvar::new() }
    }

    /// Takes a place, waiting a little for one.
    pub(crate) fn enter(&self) -> Entry {
        const A_WHILE: Duration = Duration::from_millis(50);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entry = Entry::AtOnce;
        if *taken >= self.limit {
            entry = Entry::Delayed;
            taken =
                self.freed.wait_timeout(taken, A_WHILE).unwrap_or_else(PoisonError::into_inner).0;
            if *taken >= self.limit {
                return Entry::Full;
            }
        }
        *taken += 1;
        entry
    }

    /// Gives a place back.
    pub(crate) fn leave(&self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let was_full = *taken >= self.limit;
        *taken = taken.saturating_sub(1);
        if was_full || *taken == 0 {
            self.freed.notify_all();
        }
    }

    /// Waits until nobody is left, but not longer than `limit`; how many are left.
    pub(crate) fn wait_empty(&self, limit: Duration) -> usize {
        let until = Instant::now() + limit;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if *taken == 0 || left.is_zero() {
                return *taken;
            }
            taken = self.freed.wait_timeout(taken, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_room_lets_nobody_in_until_somebody_leaves() {
        let room = Room::new(1);
        assert_eq!(room.enter(), Entry::AtOnce);
        assert_eq!(room.enter(), Entry::Full);
        assert_eq!(room.wait_empty(Duration::from_millis(1)), 1);
        room.leave();
        assert_eq!(room.wait_empty(Duration::from_secs(9)), 0);
        assert_eq!(room.enter(), Entry::AtOnce);
    }
}
