//! What time it is, for those parts that are told.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use replication::types::Millis;
use tokio::time::Instant;

/// Monotonic; its origin is the first call. It is tokio's clock, so a test can hold it.
pub fn now() -> Millis {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let origin = *ORIGIN.get_or_init(Instant::now);
    Millis(u64::try_from(origin.elapsed().as_millis()).unwrap_or(u64::MAX))
}

/// Milliseconds since 1970, as records carry them.
pub fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
