//! A cluster under test: a system (what is tested) on a backend (where its nodes live).

pub mod backend;
mod batches;
mod cluster;
mod disk;
pub mod docker;
mod error_name;
pub mod highwater;
pub mod kafka;
pub mod namespaces;
mod netns;
pub mod network;
pub mod node;
mod on_disk;
mod operations;
pub mod probe;
mod proc_stat;
pub mod relay;
mod server_properties;
mod spoil;
mod system;

pub use backend::{Backend, BackendError, Output, Signal, Status};
pub use cluster::{Cluster, KILL_DEADLINE};
pub use disk::Ailment;
pub use node::{Launch, NodeName, NodeSpec, Role};
pub use on_disk::ReplicaLog;
pub use operations::Operation;
pub use proc_stat::start_ticks;
pub use spoil::Spoilage;
pub use system::{System, SystemError, SystemOptions};
