//! Nodes: their names, their roles, where they live.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// `n1`, `n2`, … The number is the node's id in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct NodeName(u32);

impl NodeName {
    /// The node whose id in the cluster is `id` (from 1).
    pub const fn new(id: u32) -> Self {
        Self(id)
    }

    /// The node's id in the cluster: `node.id`, `broker.id`.
    pub const fn id(self) -> u32 {
        self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.to_string()
    }
}

impl TryFrom<String> for NodeName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.strip_prefix('n')
            .and_then(|digits| digits.parse().ok())
            .filter(|id| *id > 0)
            .map(Self)
            .ok_or_else(|| format!("`{text}` is not a node name; they are n1, n2, …"))
    }
}

/// What a node does in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Holds replicas.
    Broker,
    /// Holds the metadata log.
    Controller,
    /// Both in one process.
    Combined,
}

impl Role {
    /// Does it hold replicas?
    pub const fn is_broker(self) -> bool {
        matches!(self, Self::Broker | Self::Combined)
    }

    /// Does it vote on the metadata log?
    pub const fn is_controller(self) -> bool {
        matches!(self, Self::Controller | Self::Combined)
    }
}

/// Where clients of the workload connect. Nobody else does, so that clients can be cut off
/// without cutting brokers or probes.
pub const CLIENT_PORT: u16 = 9092;
/// Where brokers fetch from each other.
pub const BROKER_PORT: u16 = 9091;
/// Where the metadata quorum talks.
pub const CONTROLLER_PORT: u16 = 9093;
/// Where the rig itself asks questions; no fault cuts it off from the driver.
pub const OBSERVER_PORT: u16 = 9094;

/// One node of the cluster. Paths are the same on the host and as the node sees them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Its name and id.
    pub name: NodeName,
    /// What it does.
    pub role: Role,
    /// Its one address, kept over restarts.
    pub address: Ipv4Addr,
    /// Its folder, absolute: `config`, `data` and `logs` lie below.
    pub dir: PathBuf,
}

impl NodeSpec {
    /// Configuration files.
    pub fn config_dir(&self) -> PathBuf {
        self.dir.join("config")
    }

    /// What must survive a crash.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Logs for people, `stdout.log` (both streams) among them.
    pub fn logs_dir(&self) -> PathBuf {
        self.dir.join("logs")
    }

    /// The process's standard output and error, appended to over restarts.
    pub fn stdout_log(&self) -> PathBuf {
        self.logs_dir().join("stdout.log")
    }

    /// A broker for tests, `n` and its number, that lives in `dir`.
    #[cfg(test)]
    pub(crate) fn sample(id: u32, dir: &Path) -> Self {
        Self {
            name: NodeName::new(id),
            role: Role::Broker,
            address: Ipv4Addr::LOCALHOST,
            dir: dir.to_owned(),
        }
    }

    /// Client address, `10.0.0.11:9092`.
    pub fn client_endpoint(&self) -> String {
        format!("{}:{CLIENT_PORT}", self.address)
    }
}

/// How a node's process is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Program and arguments. The program is a path that the node sees, or a name on its PATH.
    pub argv: Vec<String>,
    /// Variables besides PATH; nothing else is inherited.
    pub env: BTreeMap<String, String>,
    /// Host paths that the node may read besides its own folder, seen at the same place.
    pub read_only: Vec<PathBuf>,
}

impl Launch {
    /// A launch of `argv` with nothing else set.
    pub fn new(argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            read_only: Vec::new(),
        }
    }

    /// Makes `path` readable for the node.
    #[must_use]
    pub fn reading(mut self, path: &Path) -> Self {
        self.read_only.push(path.to_owned());
        self
    }
}
