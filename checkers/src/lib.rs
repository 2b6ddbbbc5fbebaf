//! From a history to a verdict.
#![forbid(unsafe_code)]

mod checks;
mod cursor;
mod faults;
mod findings;
mod order;
mod parallel;
mod passes;
mod ranks;
mod stats;
mod verdict;

pub use stats::{
    Availability, FaultWindow, FunctionStats, KeyStats, Latency, Outcomes, RealtimeLag, Stats,
};
pub use verdict::{Anomaly, CheckerReport, Example, MAX_EXAMPLES, Validity, Verdict};

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};

use history::{History, ReadError};

use order::Orders;

/// Judges the history that `reader` gives, compressed by zstd or not. Everything that it depends
/// on is in the history.
///
/// # Errors
/// The bytes do not come, or they are no history; an empty one is judged, as unknown.
pub fn check(reader: impl Read) -> Result<Verdict, ReadError> {
    History::read(reader).map(|history| judge(&history))
}

/// Judges a history that has been read.
pub fn judge(history: &History) -> Verdict {
    let orders = match catch_unwind(AssertUnwindSafe(|| Orders::new(history))) {
        Ok(orders) => orders,
        Err(panic) => return checks::crashed(Verdict::default(), "version-order", &*panic),
    };
    let mut verdict = checks::run(&orders, history);
    match catch_unwind(AssertUnwindSafe(|| stats::measure(&orders, history))) {
        Ok(stats) => {
            verdict.stats = stats;
            verdict
        }
        Err(panic) => checks::crashed(verdict, "stats", &*panic),
    }
}
