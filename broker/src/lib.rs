//! The in-repo broker: a replicated log that speaks Kafka's protocol.

pub mod coordinator;
pub mod log;
pub mod producers;
pub mod quorum;
pub mod wire;
