//! Asking brokers what they know, over the port that no fault cuts off from the driver.

mod by_protocol;
mod connection;
mod fetches;
mod offsets;
mod quorum;
mod raw_consumer;
mod ready;
mod recovery;
mod replicas;
mod settings;
mod topics;
mod view;

pub use by_protocol::replicas_by_protocol;
pub use connection::{ProbeError, ask};
pub use offsets::{End, Offsets, offsets};
pub use quorum::{QuorumView, quorum_view};
pub use raw_consumer::RawConsumer;
pub(crate) use ready::log_tail;
pub use ready::{await_brokers, await_full_isr};
pub use recovery::{RecoveryReport, StuckHw, await_recovery};
pub use replicas::{EpochStart, Replica, replicas};
pub use settings::{Setting, effective_settings};
pub use topics::{TopicSpec, create_topics};
pub(crate) use view::topic_name;
pub use view::{BrokerAnswer, PartitionView, View, cluster_view};
