//! Where nodes live: what every backend can do with a node.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use thiserror::Error;
use tokio::net::TcpSocket;

use crate::network::{Endpoint, Impairer, Impairment};
use crate::node::{Launch, NodeName, NodeSpec};

/// A signal that ends a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: asked to stop.
    Term,
    /// SIGKILL: no word allowed.
    Kill,
}

/// What a node's process is doing, seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Never started.
    NotStarted,
    /// Runs under this pid of the driver's pid namespace.
    Running {
        /// Process id.
        pid: i32,
    },
    /// Stopped by pause; still there.
    Paused {
        /// Process id.
        pid: i32,
    },
    /// Gone. Exit code, or 128 + the signal that ended it.
    Exited {
        /// As a shell would say it.
        code: i32,
    },
}

impl Status {
    /// Is there a process, running or paused?
    pub const fn is_alive(&self) -> bool {
        matches!(self, Self::Running { .. } | Self::Paused { .. })
    }
}

/// What a command left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Exit code, or 128 + signal.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Why a backend could not do what was asked. Split by what the caller can do.
#[derive(Debug, Error)]
pub enum BackendError {
    /// This machine lacks something; `remedy` says what to install or allow.
    #[error("the {backend} backend cannot run here: {reason}. {remedy}")]
    Unsupported {
        /// `namespaces` or `docker`.
        backend: &'static str,
        /// What is missing.
        reason: String,
        /// What to do about it, a full sentence.
        remedy: String,
    },
    /// The deadline passed.
    #[error("{node}: gave up after {waited_ms} ms waiting for {awaited}")]
    Deadline {
        /// Which node.
        node: NodeName,
        /// What was awaited.
        awaited: String,
        /// For how long.
        waited_ms: u128,
    },
    /// The node is not in a state that allows this.
    #[error("{node}: cannot {action}: {reason}")]
    State {
        /// Which node.
        node: NodeName,
        /// What was asked.
        action: &'static str,
        /// Why not.
        reason: String,
    },
    /// Anything else that the operating system or the engine refused.
    #[error("{context}: {reason}")]
    Failed {
        /// What was being done, and to which node.
        context: String,
        /// What it said.
        reason: String,
    },
}

/// Why a backend without relays has none.
const NO_RELAYS: &str = "it does not lead what nodes send each other through the driver";

impl BackendError {
    /// What `backend` cannot do, for this reason, and the namespaces backend can.
    pub(crate) fn only_namespaces(backend: &'static str, reason: &str) -> Self {
        Self::Unsupported {
            backend,
            reason: reason.to_owned(),
            remedy: "Use the namespaces backend for that.".to_owned(),
        }
    }
}

/// A place where nodes live. Faults are written once against this, never per backend.
///
/// Every method that waits has a deadline of its own and says what it awaited.
#[async_trait]
pub trait Backend: Send + Sync {
    /// `namespaces` or `docker`.
    fn name(&self) -> &'static str;

    /// Makes the network and returns one address a node, in order, plus the address under which
    /// nodes see the driver. Nothing runs yet.
    async fn create_network(
        &self,
        nodes: &[NodeName],
    ) -> Result<(Vec<Ipv4Addr>, Ipv4Addr), BackendError>;

    /// Starts `node`'s process (again). `rules`, an `iptables-restore --noflush` text, is in
    /// force in the node's network namespace before the process runs its first instruction.
    async fn start(
        &self,
        node: &NodeSpec,
        launch: &Launch,
        rules: &str,
    ) -> Result<(), BackendError>;

    /// Runs `argv` to its end with the node's files and network, e.g. to format its disk before
    /// the first start. Works whether the node runs or not.
    async fn exec(
        &self,
        node: &NodeSpec,
        launch: &Launch,
        deadline: Duration,
    ) -> Result<Output, BackendError>;

    /// Sends a signal to the node's process.
    async fn signal(&self, node: NodeName, signal: Signal) -> Result<(), BackendError>;

    /// Freezes every process of the node.
    async fn pause(&self, node: NodeName) -> Result<(), BackendError>;

    /// Thaws it.
    async fn resume(&self, node: NodeName) -> Result<(), BackendError>;

    /// What the node's process is doing now.
    async fn status(&self, node: NodeName) -> Result<Status, BackendError>;

    /// Waits until the node's process is gone; its code.
    async fn wait_exit(&self, node: NodeName, deadline: Duration) -> Result<i32, BackendError>;

    /// Replaces this rig's firewall chains in the node's network namespace (an
    /// `iptables-restore --noflush` text). No effect on a node whose namespace does not exist:
    /// `start` brings the rules then.
    async fn apply_rules(&self, node: NodeName, rules: &str) -> Result<(), BackendError>;

    /// The rules in force in the node's network namespace, as `iptables-save` prints them;
    /// `None` where the node has no namespace now.
    async fn read_rules(&self, node: NodeName) -> Result<Option<String>, BackendError>;

    /// Limits what leaves the node to so many kbit a second, or lifts the limit. It lasts for as long as
    /// the node's network namespace.
    async fn shape(&self, node: NodeName, kbit_per_s: Option<u32>) -> Result<(), BackendError> {
        let _ = (node, kbit_per_s);
        Err(BackendError::only_namespaces(self.name(), "it does not limit what nodes send"))
    }

    /// Does to the packets that leave `from` as `matches` say (words of `iptables`) what `impairment` says, through
    /// queue `number`, until what is returned is dropped. `seed` decides which packets it meets.
    async fn impair(
        &self,
        from: Endpoint,
        number: u16,
        matches: Vec<Vec<String>>,
        impairment: Impairment,
        seed: u64,
    ) -> Result<Impairer, BackendError> {
        let _ = (from, number, matches, impairment, seed);
        Err(BackendError::only_namespaces(self.name(), "it does not impair links"))
    }

    /// Leads what others send to `port` of the node to its port `to` instead, for as long as its network
    /// namespace lasts. What the node sends itself goes where it went.
    async fn redirect(&self, node: NodeName, port: u16, to: u16) -> Result<(), BackendError> {
        let _ = (node, port, to);
        Err(BackendError::only_namespaces(self.name(), NO_RELAYS))
    }

    /// A TCP socket inside the node's network namespace, neither bound nor connected.
    async fn open_tcp(&self, node: NodeName) -> Result<TcpSocket, BackendError> {
        let _ = node;
        Err(BackendError::only_namespaces(self.name(), NO_RELAYS))
    }

    /// A UDP socket bound to `port` (0 = any) at the node's address, inside its network
    /// namespace, to prove that packets pass or do not pass. `None` where the node has no
    /// namespace now.
    async fn open_udp(&self, node: NodeName, port: u16) -> Result<Option<UdpSocket>, BackendError>;

    /// Brings what the backend itself knows of the node (engine logs, …) into the node's `logs`
    /// folder; returns what was added.
    async fn collect(&self, node: &NodeSpec) -> Result<Vec<PathBuf>, BackendError>;

    /// Ends every process and removes all that was made. Never fails half way: it goes on, and
    /// returns the first error at the end.
    async fn destroy(&self) -> Result<(), BackendError>;
}
