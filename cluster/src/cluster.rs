//! The cluster as the rest of the rig sees it: nodes of a system on a backend, and the network
//! between them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use history::Key;
use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::{debug, info};

use crate::backend::{Backend, BackendError, Signal, Status};
use crate::disk::{Ailment, Disks};
use crate::network::Network;
use crate::node::{NodeName, NodeSpec, Role};
use crate::probe::{self, View};
use crate::relay::{Relays, Rule, Stopped};
use crate::spoil::Spoilage;
use crate::system::{System, SystemError};

/// A killed process with much memory takes a while to be torn down.
pub const KILL_DEADLINE: Duration = Duration::from_secs(20);
/// How soon a process that ended by itself is noticed.
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);
/// Formatting a node's disk starts a JVM, on a busy machine maybe three at once.
const PREPARE_DEADLINE: Duration = Duration::from_secs(120);

/// A cluster under test.
pub struct Cluster {
    system: Box<dyn System>,
    backend: Arc<dyn Backend>,
    nodes: Vec<NodeSpec>,
    network: Network,
    keys: Vec<Key>,
    disks: Option<Disks>,
    relays: Option<Relays>,
}

impl Cluster {
    /// Makes the network and every node's files; nothing runs yet. Nodes live in folders under
    /// `dir`, an absolute path. `keys` are those that [`Cluster::view`] shall tell of.
    ///
    /// # Errors
    /// [`SystemError`] when files cannot be written or the backend refuses.
    pub async fn create(
        system: Box<dyn System>,
        backend: Arc<dyn Backend>,
        roles: &[(NodeName, Role)],
        dir: &Path,
        keys: Vec<Key>,
    ) -> Result<Self, SystemError> {
        let names: Vec<NodeName> = roles.iter().map(|(name, _)| *name).collect();
        let (addresses, driver) = backend.create_network(&names).await?;
        let nodes: Vec<NodeSpec> = roles
            .iter()
            .zip(&addresses)
            .map(|((name, role), address)| NodeSpec {
                name: *name,
                role: *role,
                address: *address,
                dir: dir.join(name.to_string()),
            })
            .collect();
        for node in &nodes {
            system.write_config(node, &nodes)?;
        }
        let by_name = nodes.iter().map(|node| (node.name, node.address)).collect();
        let network = Network::new(Arc::clone(&backend), by_name, driver);
        Ok(Self { system, backend, nodes, network, keys, disks: None, relays: None })
    }

    /// Gives every node a disk of its own, so that it can lose power. Before the first start.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] where that cannot be had.
    pub fn give_disks(&mut self, dir: &Path) -> Result<(), BackendError> {
        if self.backend.name() != "namespaces" {
            return Err(BackendError::only_namespaces(
                self.backend.name(),
                "its nodes have no disks of their own that could lose power",
            ));
        }
        self.disks = Some(Disks::create(dir, &self.nodes)?);
        Ok(())
    }

    /// Puts relays between the nodes, so that single messages can be stopped. Before the first start.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] where that cannot be had.
    pub async fn give_relays(&mut self) -> Result<(), BackendError> {
        self.relays = Some(Relays::install(&self.backend, &self.nodes).await?);
        Ok(())
    }

    /// Stops the messages that `rule` names, as `id`.
    ///
    /// # Errors
    /// There are no relays.
    pub fn intercept(&self, id: u64, rule: Rule) -> Result<(), BackendError> {
        self.relays()?.add(id, rule);
        Ok(())
    }

    /// How many messages rule `id` has stopped so far.
    ///
    /// # Errors
    /// There are no relays.
    pub fn intercepted(&self, id: u64) -> Result<Stopped, BackendError> {
        Ok(self.relays()?.stopped(id))
    }

    /// Lifts rule `id`; how many messages it has stopped.
    ///
    /// # Errors
    /// There are no relays.
    pub fn let_through(&self, id: u64) -> Result<Stopped, BackendError> {
        Ok(self.relays()?.lift(id))
    }

    fn relays(&self) -> Result<&Relays, BackendError> {
        self.relays.as_ref().ok_or_else(|| BackendError::Failed {
            context: "no message can be stopped".to_owned(),
            reason: "the cluster was made without relays between its nodes".to_owned(),
        })
    }

    /// The power of `nodes` goes, at one moment: nothing reaches their disks any more, what was not
    /// synced is gone, and so are their processes. Their exit codes.
    pub async fn power_off(
        &self,
        nodes: &BTreeSet<NodeName>,
    ) -> BTreeMap<NodeName, Result<i32, BackendError>> {
        let Some(disks) = &self.disks else {
            let none = |node: &NodeName| {
                let reason = "it has no disk of its own that could lose power".to_owned();
                (*node, Err(BackendError::State { node: *node, action: "power off", reason }))
            };
            return nodes.iter().map(none).collect();
        };
        let mut lost = BTreeMap::new();
        for (node, cut) in disks.cut_power(nodes) {
            let ended = async {
                cut?;
                // A process that met its dead disk first may have ended by itself.
                let code = match self.kill(node).await {
                    Ok(code) => code,
                    Err(error) => match self.backend.status(node).await? {
                        Status::Exited { code } => code,
                        _ => return Err(error),
                    },
                };
                disks.unmount(node).map(|()| code)
            };
            lost.insert(node, ended.await);
        }
        lost
    }

    /// Spoils the disk of a node, whose process runs on; what writing to it says then.
    ///
    /// # Errors
    /// It has no disk of its own, or the disk is as good as before.
    pub fn spoil_disk(&self, node: NodeName, ailment: Ailment) -> Result<String, BackendError> {
        let Some(disks) = &self.disks else {
            let reason = "it has no disk of its own".to_owned();
            return Err(BackendError::State { node, action: "spoil its disk", reason });
        };
        disks.spoil(node, ailment)
    }

    /// Gives a node a good disk again, with all that it had, and starts it where it has ended, or holds on to
    /// a bad one.
    ///
    /// # Errors
    /// [`BackendError`] naming the node.
    pub async fn mend_disk(&self, node: NodeName, ailment: Ailment) -> Result<Value, BackendError> {
        let Some(disks) = &self.disks else { return Ok(Value::Null) };
        let status = self.backend.status(node).await?;
        let ended = match status {
            Status::Exited { code } => Some(code),
            _ => None,
        };
        if ailment == Ailment::Full {
            disks.free(node)?;
            if ended.is_none() {
                return Ok(json!({ "ended_by_itself": false }));
            }
        } else {
            if status.is_alive() {
                self.kill(node).await?;
            }
            disks.unmount(node)?;
        }
        let mut evidence = self.start(node).await?;
        evidence["ended_by_itself"] = json!(ended.is_some());
        Ok(evidence)
    }

    /// Spoils the replica of `key` on the disk of a node that does not run; what was there before.
    ///
    /// # Errors
    /// It runs, or its disk has no such replica.
    pub async fn spoil(
        &self,
        node: NodeName,
        key: &Key,
        spoilage: Spoilage,
    ) -> Result<Value, BackendError> {
        let refused =
            |reason: String| BackendError::State { node, action: "spoil a replica", reason };
        if self.backend.status(node).await?.is_alive() {
            return Err(refused("it runs".to_owned()));
        }
        spoilage.apply(self.spec(node)?, key).map_err(|error| refused(error.to_string()))
    }

    /// Writes down what the node's disk has not got yet, where it has one of its own.
    ///
    /// # Errors
    /// The disk.
    pub fn sync(&self, node: NodeName) -> Result<(), BackendError> {
        self.disks.as_ref().map_or(Ok(()), |disks| disks.sync(node))
    }

    /// Prepares every node's disk and starts every node; they need not be ready yet.
    ///
    /// # Errors
    /// [`SystemError`] naming the node that could not be prepared or started.
    pub async fn start_all(&self) -> Result<(), SystemError> {
        // Side by side: each starts a JVM that waits for the disk as much as for a core.
        try_join_all(self.nodes.iter().map(|node| self.prepare(node))).await?;
        for node in &self.nodes {
            self.start(node.name).await?;
        }
        Ok(())
    }

    async fn prepare(&self, node: &NodeSpec) -> Result<(), SystemError> {
        for launch in self.system.prepare(node, &self.nodes) {
            let output = self.backend.exec(node, &launch, PREPARE_DEADLINE).await?;
            if output.code != 0 {
                return Err(SystemError::Prepare {
                    node: node.name,
                    code: output.code,
                    said: format!("{}{}", output.stdout, output.stderr),
                });
            }
        }
        Ok(())
    }

    /// What every node was told, by node and setting.
    pub fn settings(&self) -> BTreeMap<NodeName, BTreeMap<String, String>> {
        self.nodes.iter().map(|node| (node.name, self.system.settings(node, &self.nodes))).collect()
    }

    /// The system under test.
    pub fn system(&self) -> &dyn System {
        &*self.system
    }

    /// Where the nodes live.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Every node.
    pub fn nodes(&self) -> &[NodeSpec] {
        &self.nodes
    }

    /// The links between nodes and clients.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The keys of the run.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Where clients connect, `host:port` separated by commas.
    pub fn bootstrap(&self) -> String {
        let brokers = self.nodes.iter().filter(|node| node.role.is_broker());
        brokers.map(NodeSpec::client_endpoint).collect::<Vec<_>>().join(",")
    }

    /// Starts one node (again), with the rules of the network in force before it runs; what
    /// shows that it runs.
    ///
    /// # Errors
    /// [`BackendError`] naming the node.
    pub async fn start(&self, node: NodeName) -> Result<Value, BackendError> {
        let spec = self.spec(node)?;
        if let Some(disks) = &self.disks {
            disks.mount(node)?;
        }
        let launch = self.system.launch(spec, &self.nodes);
        let rules = self.network.rules(node).await;
        self.backend.start(spec, &launch, &rules).await?;
        let mut evidence = json!({ "started": true });
        let cuts = self.network.look_at(node).await?;
        if !cuts.is_empty() {
            evidence["links"] = json!(cuts);
        }
        Ok(evidence)
    }

    /// Ends one node's process without a word and waits until it is gone; its exit code.
    ///
    /// # Errors
    /// [`BackendError`] naming the node.
    pub async fn kill(&self, node: NodeName) -> Result<i32, BackendError> {
        self.backend.signal(node, Signal::Kill).await?;
        self.backend.wait_exit(node, KILL_DEADLINE).await
    }

    /// Makes sure that a node runs. What was found, if it had to be helped.
    ///
    /// # Errors
    /// [`BackendError`] naming the node that could not be helped.
    pub async fn ensure_running(&self, node: NodeName) -> Result<Option<String>, BackendError> {
        match self.backend.status(node).await? {
            Status::Running { .. } => Ok(None),
            Status::Paused { .. } => {
                self.backend.resume(node).await?;
                Ok(Some("it was frozen".into()))
            }
            Status::NotStarted => {
                self.start(node).await?;
                Ok(Some("it had never been started".into()))
            }
            Status::Exited { code } => {
                self.start(node).await?;
                Ok(Some(format!("its process had ended with code {code}")))
            }
        }
    }

    /// Waits until some node's process has ended by itself; which, how, and the end of its log.
    pub async fn first_exit(&self) -> String {
        loop {
            for node in &self.nodes {
                if let Ok(Status::Exited { code }) = self.backend.status(node.name).await {
                    let tail = probe::log_tail(&self.nodes, node.name);
                    return format!("{}: its process ended with code {code}{tail}", node.name);
                }
            }
            sleep(BETWEEN_LOOKS).await;
        }
    }

    /// What the brokers say of leaders, ISRs and the controller, as far as they answer.
    pub async fn view(&self) -> View {
        probe::cluster_view(&self.nodes, &self.keys).await
    }

    /// Brings what the backend knows into the nodes' folders, ends everything and removes it.
    ///
    /// # Errors
    /// The first thing that could not be removed; all else is.
    pub async fn destroy(&self) -> Result<(), BackendError> {
        for node in &self.nodes {
            if let Err(error) = self.backend.collect(node).await {
                debug!("{}: its logs cannot be collected: {error}", node.name);
            }
        }
        info!("taking the cluster down");
        let destroyed = self.backend.destroy().await;
        let unmounted = self.disks.as_ref().map_or(Ok(()), Disks::unmount_all);
        destroyed.and(unmounted)
    }

    fn spec(&self, node: NodeName) -> Result<&NodeSpec, BackendError> {
        self.nodes.iter().find(|spec| spec.name == node).ok_or_else(|| BackendError::State {
            node,
            action: "use",
            reason: "there is no such node in this cluster".into(),
        })
    }
}
