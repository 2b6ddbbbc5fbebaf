//! Replicas: drives the pure state of `replication` with logs, requests and time.
//!
//! | subject | module |
//! |---|---|
//! | all replicas of this node, kept in step with the metadata | [`replicas`] |
//! | one replica: its log, its role, who waits for it | [`partition`] |
//! | a log and what it knows of producers, cut and grown together | [`store`] |
//! | a leader appends (R19, R21) and its writers wait | `append` |
//! | a leader, or any replica, is read (R7, R23, R31, R34) | `read` |
//! | a replica follows (R20, R23, R26, R33) | `follow` |
//! | fetching from leaders, one task a source (R32) | [`fetcher`] |
//! | asking the controller for another ISR, one request at a time (R16) | [`isr_requests`] |
//! | group commit under `log.durability=fsync` | [`sync`] |
//! | the topic of groups | [`offsets_topic`] |
//! | syncing, cleaning, deleting one replica | `upkeep` |
//! | settings of a topic | `topic_settings` |
//! | checkpoints, retention, the ISR's clock (R6) | [`housekeeping`] |

mod append;
pub mod clock;
mod describe;
pub mod fetcher;
mod follow;
pub mod housekeeping;
pub mod isr_requests;
pub mod offsets_topic;
pub mod partition;
mod read;
pub mod replicas;
pub mod store;
pub mod sync;
mod topic_settings;
mod upkeep;

pub use append::{Appended, Refused};
pub use describe::{Description, FollowerDescription};
pub use partition::{Partition, Progress};
pub use read::{Asker, FetchedByFollower, Found, ReadRequest};
pub use replicas::{LeadershipChange, Replicas, ReplicasContext};

#[cfg(test)]
mod tests;
