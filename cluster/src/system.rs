//! What is tested: how a system lays out its files and starts.

use std::collections::BTreeMap;
use std::path::PathBuf;

use thiserror::Error;

use crate::backend::BackendError;
use crate::node::{Launch, NodeName, NodeSpec};

/// What a user may choose about a cluster's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemOptions {
    /// Settings of every node that win over all others.
    pub overrides: BTreeMap<String, String>,
    /// Keep Kafka's own time-outs.
    pub stock_timeouts: bool,
}

/// A Kafka-compatible system, described so that any backend can run it.
pub trait System: Send + Sync {
    /// `kafka`.
    fn name(&self) -> &'static str;

    /// Its version.
    fn version(&self) -> &str;

    /// Every effective setting of `node` in a cluster of `all` nodes.
    fn settings(&self, node: &NodeSpec, all: &[NodeSpec]) -> BTreeMap<String, String>;

    /// Writes `node`'s configuration files below its folder.
    ///
    /// # Errors
    /// [`SystemError::Write`] naming the file.
    fn write_config(&self, node: &NodeSpec, all: &[NodeSpec]) -> Result<(), SystemError>;

    /// What has to run, once, before the first start.
    fn prepare(&self, node: &NodeSpec, all: &[NodeSpec]) -> Vec<Launch>;

    /// What runs the node.
    fn launch(&self, node: &NodeSpec, all: &[NodeSpec]) -> Launch;
}

/// Why a system could not be set up.
#[derive(Debug, Error)]
pub enum SystemError {
    /// A file of a node could not be written.
    #[error("{node}: cannot write {}: {reason}", path.display())]
    Write {
        /// Which node.
        node: NodeName,
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: std::io::Error,
    },
    /// A node's disk could not be prepared.
    #[error("{node}: preparing its disk failed with code {code}; it said:\n{said}")]
    Prepare {
        /// Which node.
        node: NodeName,
        /// Exit code.
        code: i32,
        /// What it printed.
        said: String,
    },
    /// The backend refused.
    #[error(transparent)]
    Backend(#[from] BackendError),
}
