//! Asking brokers what they know, over the port that no fault cuts off from the driver.

mod connection;
mod ready;
mod recovery;
mod topics;
mod view;

pub use connection::{ProbeError, ask};
pub use ready::{await_brokers, await_full_isr};
pub use recovery::{RecoveryReport, await_recovery};
pub use topics::{TopicSpec, create_topics};
pub use view::{BrokerAnswer, PartitionView, View, cluster_view};
