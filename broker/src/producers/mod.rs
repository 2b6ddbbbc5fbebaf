//! What a partition knows of idempotent producers (KIP-98), and where their ids come from.
//!
//! | subject | module |
//! |---|---|
//! | epochs, sequences, the last five batches | [`states`] |
//! | ids, block by block | [`ids`] |

pub mod ids;
pub mod states;

pub use states::{BatchFacts, ProducerStates, ProducerSummary, SequenceError, Verdict};
