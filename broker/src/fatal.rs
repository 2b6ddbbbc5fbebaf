//! What a node cannot go on after: told once, and the node stops.

use std::sync::Arc;

use tokio::sync::watch;
use tracing::error;

/// Tells the node to stop, from wherever it was found that it cannot go on.
#[derive(Clone, Debug)]
pub struct Fatal(Arc<watch::Sender<Option<String>>>);

impl Default for Fatal {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl Fatal {
    /// The node stops, for this reason. The first one counts.
    pub fn stop(&self, reason: impl Into<String>) {
        let reason = reason.into();
        self.0.send_if_modified(|told| {
            if told.is_some() {
                return false;
            }
            error!(reason, "this node cannot go on");
            *told = Some(reason);
            true
        });
    }

    /// Waits for a reason.
    pub async fn told(&self) -> String {
        let mut told = self.0.subscribe();
        loop {
            if let Some(reason) = told.borrow_and_update().clone() {
                return reason;
            }
            // The sender lives as long as `self`.
            if told.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
