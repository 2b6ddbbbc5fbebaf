//! The `namespaces` backend: each node a process in its own network, mount and pid namespace on a
//! private bridge.
//!
//! All of it lies inside namespaces that the driver itself was re-executed into
//! ([`sandbox`]), so nothing can outlive the driver: when its first process dies, the kernel ends
//! every process and removes every interface, rule and mount.

mod nodes;
mod process;
pub mod sandbox;

pub use nodes::Namespaces;
