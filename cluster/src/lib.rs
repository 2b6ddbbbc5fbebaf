//! A cluster under test: a system (what is tested) on a backend (where its nodes live).

pub mod backend;
pub mod namespaces;
mod netns;
pub mod network;
pub mod node;

pub use backend::{Backend, BackendError, Output, Signal, Status};
pub use node::{Launch, NodeName, NodeSpec, Role};
