//! Why a history cannot be read.

use std::io;

use thiserror::Error;

/// Why a history cannot be read. The caller knows which file it was and says so.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The bytes did not come, or could not be decompressed.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A line is not what the format says.
    #[error("line {line}: expected {expected}, found {found}")]
    Line {
        /// 1, 2, 3, …
        line: u64,
        /// What should have been there.
        expected: String,
        /// What was there instead.
        found: String,
    },
}
