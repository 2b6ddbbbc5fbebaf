//! From a stored history to a verdict, the same way during a run and ever after.

use std::fs::File;
use std::path::Path;

use checkers::Verdict;

use crate::exit::Failure;

/// Judges the history in `path`, which may be compressed.
///
/// # Errors
/// Bad data, naming the file and, where it is broken, the line.
pub(crate) fn judge(path: &Path) -> Result<Verdict, Failure> {
    let broken = |reason: String| Failure::bad_data(format!("{}: {reason}", path.display()));
    let file = File::open(path).map_err(|error| broken(error.to_string()))?;
    checkers::check(file).map_err(|error| broken(error.to_string()))
}
