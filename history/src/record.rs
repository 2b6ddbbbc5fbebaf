//! The seam between those who make events and the one who writes them.

use crate::Draft;

/// Takes events in the order in which they are seen and gives each its index and time.
///
/// An invocation must be recorded before the operation is begun, and a completion after its
/// outcome is known: checkers reason from the order of indices alone.
pub trait Record: Send + Sync {
    /// Appends `draft` to the history; returns the index it got.
    fn record(&self, draft: Draft) -> u64;

    /// Nanoseconds since the run began, on the clock that stamps the events.
    fn now_ns(&self) -> u64;
}
