//! Dropping clients without waiting for them.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Closing a librdkafka client talks to brokers and may take long when they do not answer.
/// Here clients are dropped by threads of their own. Clones share one count.
#[derive(Clone, Default)]
pub(crate) struct Graveyard(Arc<(Mutex<usize>, Condvar)>);

impl Graveyard {
    /// Drops `client` on another thread.
    pub(crate) fn bury<T: Send + 'static>(&self, client: T) {
        self.change(1);
        let shared = self.clone();
        let digger = thread::Builder::new().name("client-drop".to_owned()).spawn(move || {
            drop(client);
            shared.change(-1);
        });
        if let Err(error) = digger {
            // The closure, and the client in it, is dropped by the failed spawn.
            tracing::warn!(%error, "no thread to drop a client on; it was dropped in place");
            self.change(-1);
        }
    }

    fn change(&self, by: isize) {
        let mut open = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        *open = open.saturating_add_signed(by);
        self.0.1.notify_all();
    }

    /// Waits until all are gone, but not longer than `limit`; how many are left.
    pub(crate) fn wait(&self, limit: Duration) -> usize {
        let until = Instant::now() + limit;
        let mut open = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if *open == 0 || left.is_zero() {
                return *open;
            }
            open = self.0.1.wait_timeout(open, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_are_counted_until_they_are_gone() {
        struct Slow(std::sync::mpsc::Receiver<()>);
        impl Drop for Slow {
            fn drop(&mut self) {
                let _ended = self.0.recv();
            }
        }
        let (release, wait) = std::sync::mpsc::channel();
        let graveyard = Graveyard::default();
        graveyard.bury(Slow(wait));
        assert_eq!(graveyard.wait(Duration::from_millis(1)), 1);
        drop(release);
        assert_eq!(graveyard.wait(Duration::from_secs(30)), 0);
    }
}
