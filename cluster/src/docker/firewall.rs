//! Reaching into a container's network namespace: directly where this process may, else through
//! a helper container that shares it.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use nix::unistd::geteuid;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::container;
use super::engine::Engine;
use super::one_off;
use crate::backend::{BackendError, Status};
use crate::netns::{NetworkNamespace, run_command};
use crate::network::CHAINS;
use crate::node::NodeName;

/// A helper container does one small thing; starting it takes most of the time.
const HELPER_DEADLINE: Duration = Duration::from_secs(30);

/// How a container's network namespace is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// By entering it; needs root.
    Direct,
    /// Through a helper container of the run's image, which must have iptables. Sockets cannot
    /// be opened that way.
    Helper,
}

impl Access {
    /// What this process may do.
    pub fn of_this_user() -> Self {
        if geteuid().is_root() { Self::Direct } else { Self::Helper }
    }
}

/// Can everything that a run needs of the network be done with this access?
pub(super) fn check_proof(access: Access) -> Result<(), BackendError> {
    match access {
        Access::Direct => check_tools(access),
        Access::Helper => Err(no_way_in("this user is not root")),
    }
}

/// Are the commands there that rules are set with?
pub(super) fn check_tools(access: Access) -> Result<(), BackendError> {
    match access {
        Access::Helper => Ok(()),
        Access::Direct => {
            run_command(&["iptables-restore", "--version"], "").map(drop).map_err(|error| {
                BackendError::Unsupported {
                    backend: "docker",
                    reason: error.to_string(),
                    remedy:
                        "Install iptables (Debian: apt-get install iptables; it lies in /usr/sbin, \
                         which must be on PATH)."
                            .into(),
                }
            })
        }
    }
}

/// A container seen as a place on the network.
pub(super) struct Site<'a> {
    pub(super) engine: &'a Engine,
    pub(super) node: NodeName,
    /// The container's id.
    pub(super) container: &'a str,
    pub(super) access: Access,
    /// What a helper is made from.
    pub(super) helper: Helper<'a>,
}

/// What a helper container is made from.
pub(super) struct Helper<'a> {
    pub(super) name: String,
    pub(super) image: &'a str,
    pub(super) labels: Value,
}

impl Site<'_> {
    /// Replaces our chains; `false` where there is no namespace now.
    pub(super) async fn apply(&self, rules: &str) -> Result<bool, BackendError> {
        match self.access {
            Access::Direct => {
                let rules = rules.to_owned();
                self.inside("set its firewall rules", move |namespace| {
                    namespace.apply_firewall(&rules)
                })
                .await
                .map(|done| done.is_some())
            }
            Access::Helper => self
                .help("set its firewall rules", &apply_script(), rules)
                .await
                .map(|said| said.is_some()),
        }
    }

    /// The rules in force; `None` where there is no namespace now.
    pub(super) async fn read(&self) -> Result<Option<String>, BackendError> {
        match self.access {
            Access::Direct => {
                self.inside("read its firewall rules", |namespace| {
                    namespace.run(&["iptables-save"], "")
                })
                .await
            }
            Access::Helper => self.help("read its firewall rules", "exec iptables-save", "").await,
        }
    }

    /// A socket in the namespace; `None` where there is none now.
    pub(super) async fn open_udp(
        &self,
        address: Ipv4Addr,
        port: u16,
    ) -> Result<Option<UdpSocket>, BackendError> {
        match self.access {
            Access::Direct => {
                self.inside("open a UDP socket", move |namespace| namespace.open_udp(address, port))
                    .await
            }
            Access::Helper => {
                Err(no_way_in(&format!("a socket cannot be opened on {}", self.node)))
            }
        }
    }

    /// Runs `work` on the namespace; `None` where there is none now.
    async fn inside<T: Send + 'static>(
        &self,
        action: &'static str,
        work: impl FnOnce(&NetworkNamespace) -> io::Result<T> + Send + 'static,
    ) -> Result<Option<T>, BackendError> {
        let Some(namespace) = self.namespace().await? else {
            return Ok(None);
        };
        let done = spawn_blocking(move || work(&namespace)).await;
        match done.unwrap_or_else(|error| Err(io::Error::other(error.to_string()))) {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(failed(self.node, action, &error.to_string())),
        }
    }

    /// The namespace of the container's process, if it has one.
    async fn namespace(&self) -> Result<Option<NetworkNamespace>, BackendError> {
        let Some(pid) = self.pid().await? else {
            return Ok(None);
        };
        let opened = NetworkNamespace::of_process(pid);
        // Asked again: the pid may have gone to another process before its namespace was opened.
        if self.pid().await? != Some(pid) {
            return Ok(None);
        }
        opened.map(Some).map_err(|error| {
            let reason = format!("process {pid} of the engine is not within reach: {error}");
            failed(self.node, "enter its network", &reason)
        })
    }

    async fn pid(&self) -> Result<Option<i32>, BackendError> {
        let inspection = container::inspect(self.engine, self.container).await?;
        Ok(match inspection.map(|inspection| inspection.state.status()) {
            Some(Status::Running { pid } | Status::Paused { pid }) => Some(pid),
            _ => None,
        })
    }

    /// Runs a script in a container that shares the network; its output, or `None` where there
    /// is no namespace now. A paused node's namespace is reached all the same.
    async fn help(
        &self,
        action: &'static str,
        script: &str,
        rules: &str,
    ) -> Result<Option<String>, BackendError> {
        if self.pid().await?.is_none() {
            return Ok(None);
        }
        let body = json!({
            "Image": self.helper.image,
            "Entrypoint": ["sh", "-c", script],
            "Cmd": [],
            "User": "0:0",
            "Env": [format!("RULES={rules}")],
            "Labels": self.helper.labels,
            "Healthcheck": { "Test": ["NONE"] },
            "HostConfig": {
                "NetworkMode": format!("container:{}", self.container),
                "CapDrop": ["ALL"],
                "CapAdd": ["NET_ADMIN", "NET_RAW"],
                "LogConfig": { "Type": "json-file" },
            },
        });
        let run = one_off::run(self.engine, &self.helper.name, &body, HELPER_DEADLINE).await;
        let reason = match run {
            Ok(Some(output)) if output.code == 0 => return Ok(Some(output.stdout)),
            Ok(Some(output)) if output.code == 127 => {
                format!(
                    "the image {} has no iptables ({}); run as root, or use an image that has it",
                    self.helper.image,
                    output.stderr.trim()
                )
            }
            Ok(Some(output)) => output.stderr.trim().to_owned(),
            Ok(None) => {
                return Err(BackendError::Deadline {
                    node: self.node,
                    awaited: format!("a helper container to {action}"),
                    waited_ms: HELPER_DEADLINE.as_millis(),
                });
            }
            Err(error) => error.to_string(),
        };
        // The node may have ended while the helper was on its way.
        if self.pid().await?.is_none() {
            return Ok(None);
        }
        Err(failed(self.node, action, &reason))
    }
}

/// The same as [`NetworkNamespace::apply_firewall`], for a shell.
fn apply_script() -> String {
    use std::fmt::Write as _;
    let mut script =
        String::from("printf %s \"$RULES\" | iptables-restore --noflush -w 10 || exit\n");
    for (hook, chain) in CHAINS {
        let _ = writeln!(
            script,
            "iptables -w 10 -C {hook} -j {chain} 2>/dev/null || \
             iptables -w 10 -I {hook} -j {chain} || exit"
        );
    }
    script
}

fn no_way_in(reason: &str) -> BackendError {
    BackendError::Unsupported {
        backend: "docker",
        reason: format!(
            "{reason}; whether packets pass can be proven from inside a container's network only, \
             and entering it needs root"
        ),
        remedy: "Run as root, or use the namespaces backend, which needs no root.".into(),
    }
}

fn failed(node: NodeName, action: &str, reason: &str) -> BackendError {
    BackendError::Failed { context: format!("{node}: cannot {action}"), reason: reason.to_owned() }
}
