//! The replication rules R1 to R36 as pure functions and state.
#![forbid(unsafe_code)]

pub mod controller;
pub mod epochs;
pub mod metadata;
pub mod partition;
pub mod seeded;
pub mod types;
