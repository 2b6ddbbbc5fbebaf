//! Which values have been used, so that no value is written twice to a key.

use std::sync::atomic::{AtomicI64, Ordering};

/// The next unused value of each key of a run.
#[derive(Debug)]
pub(crate) struct NextValues(Vec<AtomicI64>);

impl NextValues {
    /// Nothing used yet, for `keys` keys.
    pub(crate) fn new(keys: usize) -> Self {
        Self((0..keys).map(|_| AtomicI64::new(0)).collect())
    }

    /// `value` is being written to key number `key`.
    pub(crate) fn used(&self, key: usize, value: i64) {
        if let Some(next) = self.0.get(key) {
            next.fetch_max(value + 1, Ordering::Relaxed);
        }
    }

    /// A value for key number `key` that was never used.
    pub(crate) fn fresh(&self, key: usize) -> i64 {
        self.0.get(key).map_or(0, |next| next.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_value_follows_all_that_were_used() {
        let values = NextValues::new(2);
        values.used(0, 7);
        values.used(0, 3);
        assert_eq!((values.fresh(0), values.fresh(0)), (8, 9));
        assert_eq!(values.fresh(1), 0);
    }
}
