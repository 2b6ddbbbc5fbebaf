//! The backend itself: a bridge, one network namespace a node, one process in it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use nix::sys::signal::{self, kill};
use nix::unistd::Pid;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use tokio::net::TcpSocket;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::process::{NodeProcess, run_to_end};
use crate::backend::{Backend, BackendError, Output, Signal, Status};
use crate::netns::{NetworkNamespace, run_command};
use crate::network::{Endpoint, Impairer, Impairment, limit, unlimited};
use crate::node::{Launch, NodeName, NodeSpec};
use crate::proc_stat::state_of;

/// The private network; it exists inside the driver's own network namespace only.
const SUBNET: [u8; 3] = [10, 117, 0];
/// The driver's end of the bridge.
const DRIVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(SUBNET[0], SUBNET[1], SUBNET[2], 1);
/// Node 1 lives at `.11`.
const FIRST_NODE: u32 = 10;
const BRIDGE: &str = "hw0";
/// A stop or continue signal takes effect at the next return to user space; this is ample.
const PAUSE_DEADLINE: Duration = Duration::from_secs(5);
/// A killed process with much memory takes a while to be torn down.
const KILL_DEADLINE: Duration = Duration::from_secs(20);

#[derive(Debug)]
struct Place {
    namespace: Arc<NetworkNamespace>,
    address: Ipv4Addr,
    process: Option<NodeProcess>,
}

/// The `namespaces` backend. To be made inside the sandbox only (see [`super::sandbox`]).
#[derive(Debug, Default)]
pub struct Namespaces {
    places: Mutex<BTreeMap<NodeName, Place>>,
}

impl Namespaces {
    /// A backend without nodes yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<NodeName, Place>> {
        // The map is never left half changed, so a panic elsewhere does not spoil it.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn namespace(&self, node: NodeName) -> Result<Arc<NetworkNamespace>, BackendError> {
        self.places()
            .get(&node)
            .map(|place| Arc::clone(&place.namespace))
            .ok_or_else(|| state(node, "use its network", "no such node in this cluster"))
    }

    /// What `look` makes of the node's process, which must have been started once.
    fn with_process<T>(
        &self,
        node: NodeName,
        action: &'static str,
        look: impl FnOnce(&NodeProcess) -> io::Result<T>,
    ) -> Result<T, BackendError> {
        let places = self.places();
        let process = places
            .get(&node)
            .and_then(|place| place.process.as_ref())
            .ok_or_else(|| state(node, action, "it was never started"))?;
        if process.exit.borrow().is_some() {
            return Err(state(node, action, "its process is gone"));
        }
        look(process).map_err(|error| failed(&format!("{action} {node}"), &error))
    }

    async fn await_stopped(&self, node: NodeName, stopped: bool) -> Result<(), BackendError> {
        let begun = Instant::now();
        loop {
            let now = self.with_process(node, "watch", |process| Ok(process.is_stopped()))?;
            if now == stopped {
                return Ok(());
            }
            if stopped {
                // A process that forked meanwhile left a child that heard nothing.
                self.with_process(node, "pause", |process| {
                    process.signal_all(signal::Signal::SIGSTOP)
                })?;
            }
            if begun.elapsed() > PAUSE_DEADLINE {
                let what = if stopped { "to stop" } else { "to go on" };
                return Err(BackendError::Deadline {
                    node,
                    awaited: format!("every process of the node {what}"),
                    waited_ms: begun.elapsed().as_millis(),
                });
            }
            sleep(Duration::from_millis(2)).await;
        }
    }
}

#[async_trait]
impl Backend for Namespaces {
    fn name(&self) -> &'static str {
        "namespaces"
    }

    async fn create_network(
        &self,
        nodes: &[NodeName],
    ) -> Result<(Vec<Ipv4Addr>, Ipv4Addr), BackendError> {
        let made = blocking("make the network", {
            let nodes = nodes.to_vec();
            move || make_network(&nodes)
        })
        .await?;
        let addresses = made.iter().map(|(_, place)| place.address).collect();
        self.places().extend(made);
        Ok((addresses, DRIVER_ADDRESS))
    }

    async fn start(
        &self,
        node: &NodeSpec,
        launch: &Launch,
        rules: &str,
    ) -> Result<(), BackendError> {
        if self.status(node.name).await?.is_alive() {
            return Err(state(node.name, "start", "it runs already"));
        }
        self.apply_rules(node.name, rules).await?;
        let namespace = self.namespace(node.name)?;
        let (spec, launch) = (node.clone(), launch.clone());
        let process = blocking(&format!("start {}", node.name), move || {
            NodeProcess::start(&namespace, &spec, &launch)
        })
        .await?;
        if let Some(place) = self.places().get_mut(&node.name) {
            place.process = Some(process);
        }
        Ok(())
    }

    async fn exec(
        &self,
        node: &NodeSpec,
        launch: &Launch,
        deadline: Duration,
    ) -> Result<Output, BackendError> {
        let namespace = self.namespace(node.name)?;
        let (spec, launch) = (node.clone(), launch.clone());
        let program = launch.argv.first().cloned().unwrap_or_default();
        let output = blocking(&format!("run `{program}` on {}", node.name), move || {
            run_to_end(&namespace, &spec, &launch, deadline)
        })
        .await?;
        output.ok_or_else(|| BackendError::Deadline {
            node: node.name,
            awaited: format!("`{program}` to end"),
            waited_ms: deadline.as_millis(),
        })
    }

    async fn signal(&self, node: NodeName, signal: Signal) -> Result<(), BackendError> {
        let (signal, action) = match signal {
            Signal::Term => (signal::Signal::SIGTERM, "send SIGTERM to"),
            Signal::Kill => (signal::Signal::SIGKILL, "send SIGKILL to"),
        };
        self.with_process(node, action, |process| Ok(kill(Pid::from_raw(process.pid), signal)?))
    }

    async fn pause(&self, node: NodeName) -> Result<(), BackendError> {
        self.with_process(node, "pause", |process| process.signal_all(signal::Signal::SIGSTOP))?;
        self.await_stopped(node, true).await
    }

    async fn resume(&self, node: NodeName) -> Result<(), BackendError> {
        self.with_process(node, "resume", |process| process.signal_all(signal::Signal::SIGCONT))?;
        self.await_stopped(node, false).await
    }

    async fn status(&self, node: NodeName) -> Result<Status, BackendError> {
        let places = self.places();
        let place = places.get(&node).ok_or_else(|| state(node, "look at", "no such node"))?;
        let Some(process) = &place.process else {
            return Ok(Status::NotStarted);
        };
        if let Some(code) = *process.exit.borrow() {
            return Ok(Status::Exited { code });
        }
        let pid = process.pid;
        Ok(match state_of(pid) {
            Some('T') => Status::Paused { pid },
            _ => Status::Running { pid },
        })
    }

    async fn wait_exit(&self, node: NodeName, deadline: Duration) -> Result<i32, BackendError> {
        let mut exit = self
            .places()
            .get(&node)
            .and_then(|place| place.process.as_ref())
            .map(|process| process.exit.clone())
            .ok_or_else(|| state(node, "await the end of", "it was never started"))?;
        match timeout(deadline, exit.wait_for(Option::is_some)).await {
            Ok(Ok(code)) => Ok(code.unwrap_or(-1)),
            Ok(Err(_)) => Err(state(node, "await the end of", "its watcher is gone")),
            Err(_) => Err(BackendError::Deadline {
                node,
                awaited: "its process to end".into(),
                waited_ms: deadline.as_millis(),
            }),
        }
    }

    async fn apply_rules(&self, node: NodeName, rules: &str) -> Result<(), BackendError> {
        let namespace = self.namespace(node)?;
        let rules = rules.to_owned();
        blocking(&format!("set the firewall rules of {node}"), move || {
            namespace.apply_firewall(&rules)
        })
        .await
    }

    async fn read_rules(&self, node: NodeName) -> Result<Option<String>, BackendError> {
        let namespace = self.namespace(node)?;
        blocking(&format!("read the firewall rules of {node}"), move || {
            namespace.run(&["iptables-save"], "").map(Some)
        })
        .await
    }

    async fn shape(&self, node: NodeName, kbit_per_s: Option<u32>) -> Result<(), BackendError> {
        let namespace = self.namespace(node)?;
        let command = kbit_per_s.map_or_else(unlimited, limit);
        blocking(&format!("limit what {node} sends"), move || {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            namespace.run(&words, "").map(drop)
        })
        .await
    }

    async fn impair(
        &self,
        from: Endpoint,
        number: u16,
        matches: Vec<Vec<String>>,
        impairment: Impairment,
        seed: u64,
    ) -> Result<Impairer, BackendError> {
        let namespace = match from {
            Endpoint::Node(node) => Some(self.namespace(node)?),
            Endpoint::Clients => None,
        };
        blocking(&format!("impair what {from} send"), move || {
            // Clients live where the driver does.
            let here = || NetworkNamespace::of_process(nix::unistd::getpid().as_raw());
            let namespace = match namespace {
                Some(namespace) => namespace,
                None => Arc::new(here()?),
            };
            let rng = ChaCha8Rng::seed_from_u64(seed);
            Impairer::start(namespace, number, &matches, impairment, rng)
        })
        .await
    }

    async fn redirect(&self, node: NodeName, port: u16, to: u16) -> Result<(), BackendError> {
        let namespace = self.namespace(node)?;
        blocking(&format!("lead connections to {node} elsewhere"), move || {
            let (port, to) = (port.to_string(), to.to_string());
            let rule = ["-A", "PREROUTING", "-p", "tcp", "--dport", &port];
            let target = ["-j", "REDIRECT", "--to-ports", &to];
            let words = [&["iptables", "-w", "10", "-t", "nat"][..], &rule, &target].concat();
            namespace.run(&words, "").map(drop)
        })
        .await
    }

    async fn open_tcp(&self, node: NodeName) -> Result<TcpSocket, BackendError> {
        let namespace = self.namespace(node)?;
        blocking(&format!("open a TCP socket on {node}"), move || namespace.open_tcp()).await
    }

    async fn open_udp(&self, node: NodeName, port: u16) -> Result<Option<UdpSocket>, BackendError> {
        let (namespace, address) = {
            let places = self.places();
            let place =
                places.get(&node).ok_or_else(|| state(node, "use its network", "no such node"))?;
            (Arc::clone(&place.namespace), place.address)
        };
        blocking(&format!("open a UDP socket on {node}"), move || {
            namespace.open_udp(address, port).map(Some)
        })
        .await
    }

    async fn collect(&self, _node: &NodeSpec) -> Result<Vec<PathBuf>, BackendError> {
        // Every output of a node goes straight to its folder.
        Ok(Vec::new())
    }

    async fn destroy(&self) -> Result<(), BackendError> {
        let alive: Vec<NodeName> = self
            .places()
            .iter()
            .filter(|(_, place)| {
                place.process.as_ref().is_some_and(|process| process.exit.borrow().is_none())
            })
            .map(|(name, _)| *name)
            .collect();
        let mut first_error = None;
        for node in &alive {
            if let Err(error) = self.signal(*node, Signal::Kill).await {
                first_error.get_or_insert(error);
            }
        }
        for node in alive {
            if let Err(error) = self.wait_exit(node, KILL_DEADLINE).await {
                first_error.get_or_insert(error);
            }
        }
        // The links go first, while the namespaces are still held: a namespace without handles
        // loses its links in the kernel's own time, and a next network would run into them.
        let made: Vec<NodeName> = self.places().keys().copied().collect();
        if let Err(error) = blocking("remove the network", move || remove_network(&made)).await {
            first_error.get_or_insert(error);
        }
        self.places().clear();
        first_error.map_or(Ok(()), Err)
    }
}

fn make_network(nodes: &[NodeName]) -> io::Result<Vec<(NodeName, Place)>> {
    let mut made = Vec::new();
    for node in nodes {
        let last = u8::try_from(FIRST_NODE + node.id()).map_err(|_| {
            io::Error::other(format!("{node} does not fit into the network of 244 nodes"))
        })?;
        made.push((
            *node,
            Place {
                namespace: Arc::new(NetworkNamespace::create()?),
                address: Ipv4Addr::new(SUBNET[0], SUBNET[1], SUBNET[2], last),
                process: None,
            },
        ));
    }
    let mut batch = format!(
        "link add {BRIDGE} type bridge\naddr add {DRIVER_ADDRESS}/24 dev {BRIDGE}\nlink set {BRIDGE} up\n"
    );
    for (node, place) in &made {
        let path = place.namespace.path();
        let _ = writeln!(
            batch,
            "link add {BRIDGE}-{node} type veth peer name eth0 netns {path}\n\
             link set {BRIDGE}-{node} master {BRIDGE} up"
        );
    }
    run_command(&["ip", "-batch", "-"], &batch)?;
    for (_, place) in &made {
        let inside =
            format!("link set lo up\naddr add {}/24 dev eth0\nlink set eth0 up\n", place.address);
        place.namespace.run(&["ip", "-batch", "-"], &inside)?;
    }
    Ok(made)
}

fn remove_network(nodes: &[NodeName]) -> io::Result<()> {
    if nodes.is_empty() {
        return Ok(());
    }
    let mut batch = String::new();
    for node in nodes {
        let _ = writeln!(batch, "link del {BRIDGE}-{node}");
    }
    let _ = writeln!(batch, "link del {BRIDGE}");
    run_command(&["ip", "-batch", "-"], &batch).map(drop)
}

async fn blocking<T: Send + 'static>(
    context: &str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, BackendError> {
    match spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failed(context, &error)),
        Err(error) => Err(BackendError::Failed {
            context: format!("cannot {context}"),
            reason: error.to_string(),
        }),
    }
}

fn state(node: NodeName, action: &'static str, reason: &str) -> BackendError {
    BackendError::State { node, action, reason: reason.to_owned() }
}

fn failed(context: &str, error: &io::Error) -> BackendError {
    BackendError::Failed { context: format!("cannot {context}"), reason: error.to_string() }
}
