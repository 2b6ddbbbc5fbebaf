//! The one cluster that is up by hand, as other invocations of the program find it.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cluster::{NodeSpec, start_ticks};
use serde::{Deserialize, Serialize};

/// What is known of a cluster that is up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ClusterState {
    /// `namespaces` or `docker`.
    pub(super) backend: String,
    /// `kafka 4.4.0`.
    pub(super) system: String,
    /// Names containers and the network (docker).
    pub(super) run: String,
    /// The process that holds the namespaces, and when it started (namespaces).
    pub(super) holder: Option<Holder>,
    /// Where clients connect.
    pub(super) bootstrap: String,
    /// The nodes.
    pub(super) nodes: Vec<NodeState>,
}

/// A node of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct NodeState {
    /// As it was made.
    pub(super) spec: NodeSpec,
    /// Its process, as seen inside the namespaces.
    pub(super) pid: Option<i32>,
}

/// A process, told apart from a later one with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Holder {
    /// Process id on the host.
    pub(super) pid: i32,
    /// Clock ticks since boot at which it started.
    pub(super) start_ticks: u64,
}

impl Holder {
    /// The process that now has `pid`.
    pub(super) fn of(pid: i32) -> Option<Self> {
        let start_ticks = start_ticks(pid.try_into().ok()?)?;
        Some(Self { pid, start_ticks })
    }

    /// Is it still there?
    pub(super) fn is_alive(&self) -> bool {
        Self::of(self.pid) == Some(*self)
    }

    /// Its only child: the first process of its pid namespace.
    pub(super) fn inner_pid(&self) -> Option<i32> {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid)).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }
}

impl ClusterState {
    /// The cluster that is up; `None` where there is none.
    pub(super) fn read() -> Result<Option<Self>> {
        let path = path()?;
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let state: Self = serde_json::from_str(&text)
            .with_context(|| format!("{} is broken; remove it", path.display()))?;
        let gone = state.holder.is_some_and(|holder| !holder.is_alive());
        Ok((!gone).then_some(state))
    }

    /// Writes it down for others.
    pub(super) fn write(&self) -> Result<()> {
        let path = path()?;
        let write = || -> io::Result<()> {
            fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            let fresh = path.with_extension("new");
            fs::write(&fresh, serde_json::to_vec_pretty(self)?)?;
            fs::rename(&fresh, &path)
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// Forgets it.
    pub(super) fn remove() -> Result<()> {
        let path = path()?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }
}

fn path() -> Result<PathBuf> {
    let absolute =
        |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("highwater").join("cluster.json"))
        .context("neither XDG_STATE_HOME nor HOME names a place to keep the cluster's state")
}
