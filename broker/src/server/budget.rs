//! What all connections together may hold in memory.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of bytes that is shared out. Whoever wants more than is left, waits.
#[derive(Clone, Debug)]
pub struct Budget {
    kilobytes: Arc<Semaphore>,
    all: u32,
}

/// A share of a [`Budget`], given back when dropped.
#[derive(Debug)]
pub struct Share {
    _permit: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

impl Share {
    /// How many bytes it is.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Semaphores count in `u32` and below; kilobytes are fine enough.
const UNIT: usize = 1024;

impl Budget {
    /// A budget of `bytes`.
    pub fn new(bytes: usize) -> Self {
        let all = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX >> 3).clamp(1, u32::MAX >> 3);
        Self { kilobytes: Arc::new(Semaphore::new(all as usize)), all }
    }

    /// Waits for `bytes`. More than the whole budget is taken as the whole.
    pub async fn take(&self, bytes: usize) -> Share {
        let wanted = self.units(bytes);
        // The semaphore is never closed; without it nothing would be limited, but all would go on.
        let permit = Arc::clone(&self.kilobytes).acquire_many_owned(wanted).await.ok();
        Share { _permit: permit, bytes }
    }

    /// `bytes`, or half as much, and so on down to `least`, whatever is there at once.
    pub fn take_now(&self, bytes: usize, least: usize) -> Option<Share> {
        let mut wanted = bytes.max(least);
        loop {
            let units = self.units(wanted);
            if let Ok(permit) = Arc::clone(&self.kilobytes).try_acquire_many_owned(units) {
                return Some(Share { _permit: Some(permit), bytes: wanted });
            }
            if wanted <= least {
                return None;
            }
            wanted = (wanted / 2).max(least);
        }
    }

    fn units(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_shared_out_and_comes_back() {
        let budget = Budget::new(8 * UNIT);
        let six = budget.take_now(6 * UNIT, UNIT).unwrap();
        let rest = budget.take_now(6 * UNIT, UNIT).unwrap();
        assert_eq!(rest.bytes(), 3 * UNIT / 2);
        assert!(budget.take_now(UNIT, UNIT).is_none());
        drop(six);
        assert_eq!(budget.take_now(6 * UNIT, UNIT).unwrap().bytes(), 6 * UNIT);
    }

    #[tokio::test]
    async fn more_than_everything_is_everything() {
        let budget = Budget::new(8 * UNIT);
        let all = budget.take(1 << 40).await;
        assert!(budget.take_now(UNIT, UNIT).is_none());
        drop(all);
        assert!(budget.take_now(UNIT, UNIT).is_some());
    }
}
