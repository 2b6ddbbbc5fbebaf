//! The backend itself.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use nix::sys::signal::{self, kill};
use nix::unistd::{Pid, getegid, geteuid};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::container::{self, Attachment, Surroundings};
use super::engine::Engine;
use super::engine_error::EngineError;
use super::firewall::{self, Access, Helper, Site};
use super::gate;
use super::labels::{self, Lifetime, Owner};
use super::leftovers::remove_run;
use super::{one_off, subnet};
use crate::backend::{Backend, BackendError, Output, Signal, Status};
use crate::node::{Launch, NodeName, NodeSpec};

/// From a container's start until its shell has come to the gate.
const GATE_DEADLINE: Duration = Duration::from_secs(30);
const GATE_POLL: Duration = Duration::from_millis(5);

/// The `docker` backend: the containers and the network of one run.
pub struct Docker {
    engine: Engine,
    run: String,
    surroundings: Surroundings,
    access: Access,
    places: Mutex<BTreeMap<NodeName, Arc<Place>>>,
    /// Numbers one-off containers.
    one_offs: AtomicU64,
}

struct Place {
    address: Ipv4Addr,
    container: Mutex<Option<Container>>,
    /// Held by whoever needs the node's address for a container of its own.
    address_in_use: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Container {
    id: String,
    digest: String,
}

impl Docker {
    /// A backend without nodes yet, for the run `run`, whose containers are made from `image`.
    ///
    /// # Errors
    /// [`BackendError::Failed`] where `run` cannot be part of a container's name;
    /// [`BackendError::Unsupported`] where a tool is missing.
    pub fn new(
        engine: Engine,
        run: &str,
        image: &str,
        lifetime: Lifetime,
    ) -> Result<Self, BackendError> {
        Self::with_access(engine, run, image, lifetime, Access::of_this_user())
    }

    /// The same, reaching into containers' networks as `access` says.
    ///
    /// # Errors
    /// As [`Docker::new`].
    pub fn with_access(
        engine: Engine,
        run: &str,
        image: &str,
        lifetime: Lifetime,
        access: Access,
    ) -> Result<Self, BackendError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        if run.is_empty() || run.len() > 100 || !run.chars().all(fits) {
            return Err(BackendError::Failed {
                context: format!("`{run}` cannot name the containers of a run"),
                reason: "1 to 100 letters, digits, `_`, `.` and `-` can".into(),
            });
        }
        firewall::check_tools(access)?;
        Ok(Self {
            engine,
            run: run.to_owned(),
            surroundings: Surroundings {
                image: image.to_owned(),
                user: format!("{}:{}", geteuid(), getegid()),
                labels: labels::of_run(run, &Owner::current(lifetime)),
            },
            access,
            places: Mutex::default(),
            one_offs: AtomicU64::new(0),
        })
    }

    /// The network's name, which begins the names of all containers too.
    fn network(&self) -> String {
        format!("highwater-{}", self.run)
    }

    fn next_name(&self, node: NodeName, what: &str) -> String {
        let number = self.one_offs.fetch_add(1, Ordering::Relaxed);
        format!("{}-{node}-{what}-{number}", self.network())
    }

    fn place(&self, node: NodeName, action: &'static str) -> Result<Arc<Place>, BackendError> {
        lock(&self.places)
            .get(&node)
            .cloned()
            .ok_or_else(|| state(node, action, "no such node in this cluster"))
    }

    async fn status_of(&self, node: NodeName, place: &Place) -> Result<Status, BackendError> {
        let Some(container) = place.container() else {
            return Ok(Status::NotStarted);
        };
        match container::inspect(&self.engine, &container.id).await? {
            Some(inspection) => Ok(inspection.state.status()),
            None => Err(state(node, "look at", "its container was removed by someone else")),
        }
    }

    /// The container and the pid of a node whose process is there.
    async fn alive(
        &self,
        node: NodeName,
        action: &'static str,
    ) -> Result<(String, Status), BackendError> {
        let place = self.place(node, action)?;
        let status = self.status_of(node, &place).await?;
        match (place.container(), status) {
            (Some(container), status) if status.is_alive() => Ok((container.id, status)),
            (Some(_), Status::Exited { .. }) => Err(state(node, action, "its process is gone")),
            _ => Err(state(node, action, "it was never started")),
        }
    }

    /// What reaches the network of a node that was started once.
    fn with_site<'a>(&'a self, node: NodeName, container: &'a str) -> Site<'a> {
        Site {
            engine: &self.engine,
            node,
            container,
            access: self.access,
            helper: Helper {
                name: self.next_name(node, "net"),
                image: &self.surroundings.image,
                labels: json!(self.surroundings.labels),
            },
        }
    }

    /// A container made as `body` says: the one of the last start where nothing changed, so that
    /// what the node wrote outside its folder is still there; else a new one.
    async fn container_for(
        &self,
        node: NodeName,
        place: &Place,
        body: &Value,
    ) -> Result<String, BackendError> {
        let digest = container::digest(body);
        if let Some(old) = place.container() {
            if old.digest == digest && container::inspect(&self.engine, &old.id).await?.is_some() {
                return Ok(old.id);
            }
            container::remove(&self.engine, &old.id).await?;
            *lock(&place.container) = None;
        }
        let name = format!("{}-{node}", self.network());
        let id = container::create(&self.engine, &name, body).await?;
        *lock(&place.container) = Some(Container { id: id.clone(), digest });
        Ok(id)
    }

    /// Lets the process of a started container go, once its rules are in force.
    async fn let_go(&self, node: &NodeSpec, id: &str, rules: &str) -> Result<(), BackendError> {
        if !self.with_site(node.name, id).apply(rules).await? {
            return Err(self.ended_early(node.name, id).await);
        }
        let gate = gate::path(node);
        let begun = Instant::now();
        loop {
            match gate::try_open(&gate) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => return Err(failed(node.name, "open its gate", &error.to_string())),
            }
            let inspection = container::inspect(&self.engine, id).await?;
            if !inspection.is_some_and(|inspection| inspection.state.status().is_alive()) {
                return Err(self.ended_early(node.name, id).await);
            }
            if begun.elapsed() > GATE_DEADLINE {
                return Err(BackendError::Deadline {
                    node: node.name,
                    awaited: "its container's shell to come to the gate".into(),
                    waited_ms: begun.elapsed().as_millis(),
                });
            }
            sleep(GATE_POLL).await;
        }
        // Whoever waited has its end of the gate; nobody else shall find it.
        let _ = fs::remove_file(gate);
        Ok(())
    }

    async fn ended_early(&self, node: NodeName, id: &str) -> BackendError {
        let said = match container::inspect(&self.engine, id).await {
            Ok(Some(inspection)) => {
                format!("{:?} {}", inspection.state.status(), inspection.state.error)
            }
            Ok(None) => "it was removed".into(),
            Err(error) => error.to_string(),
        };
        state(node, "start", &format!("its container ended before its program began: {said}"))
    }
}

impl Place {
    fn container(&self) -> Option<Container> {
        lock(&self.container).clone()
    }
}

#[async_trait]
impl Backend for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    async fn create_network(
        &self,
        nodes: &[NodeName],
    ) -> Result<(Vec<Ipv4Addr>, Ipv4Addr), BackendError> {
        if !lock(&self.places).is_empty() {
            return Err(BackendError::Failed {
                context: "cannot make the network".into(),
                reason: "this run has one already".into(),
            });
        }
        let name = self.network();
        let block = subnet::create(&self.engine, &name, &self.surroundings.labels).await?;
        let mut addresses = Vec::new();
        let mut places = BTreeMap::new();
        for node in nodes {
            let address = block.node(*node).ok_or_else(|| {
                failed(*node, "get an address", "the network has room for 244 nodes")
            })?;
            addresses.push(address);
            let place = Place {
                address,
                container: Mutex::default(),
                address_in_use: tokio::sync::Mutex::default(),
            };
            places.insert(*node, Arc::new(place));
        }
        *lock(&self.places) = places;
        Ok((addresses, block.driver()))
    }

    async fn start(
        &self,
        node: &NodeSpec,
        launch: &Launch,
        rules: &str,
    ) -> Result<(), BackendError> {
        let place = self.place(node.name, "start")?;
        let _address = place.address_in_use.lock().await;
        if self.status_of(node.name, &place).await?.is_alive() {
            return Err(state(node.name, "start", "it runs already"));
        }
        prepare_folder(node)
            .and_then(|()| gate::close(&gate::path(node)))
            .map_err(|error| failed(node.name, "prepare its folder", &error.to_string()))?;
        let body = self.surroundings.node(node, launch, &self.network());
        let id = self.container_for(node.name, &place, &body).await?;
        let started = match self.engine.act(&format!("/containers/{id}/start"), &[]).await {
            Ok(()) => self.let_go(node, &id, rules).await,
            Err(error) => Err(error.into()),
        };
        if started.is_err() {
            // A shell that waits at the gate for ever would look like a node that runs.
            let killed = container::remove(&self.engine, &id).await;
            if killed.is_ok() {
                *lock(&place.container) = None;
            }
        }
        started
    }

    async fn exec(
        &self,
        node: &NodeSpec,
        launch: &Launch,
        deadline: Duration,
    ) -> Result<Output, BackendError> {
        let place = self.place(node.name, "run a command on")?;
        prepare_folder(node)
            .map_err(|error| failed(node.name, "prepare its folder", &error.to_string()))?;
        let address = place.address_in_use.lock().await;
        let alive = self.status_of(node.name, &place).await?.is_alive();
        let (attachment, address) = match place.container() {
            Some(container) if alive => {
                drop(address);
                (Attachment::Container(container.id), None)
            }
            _ => (Attachment::Network(self.network()), Some(address)),
        };
        let body = self.surroundings.one_off(node, launch, &attachment);
        let name = self.next_name(node.name, "exec");
        let output = one_off::run(&self.engine, &name, &body, deadline).await?;
        drop(address);
        output.ok_or_else(|| BackendError::Deadline {
            node: node.name,
            awaited: format!("`{}` to end", launch.argv.first().map_or("", String::as_str)),
            waited_ms: deadline.as_millis(),
        })
    }

    async fn signal(&self, node: NodeName, signal: Signal) -> Result<(), BackendError> {
        let (name, action) = match signal {
            Signal::Term => ("SIGTERM", "send SIGTERM to"),
            Signal::Kill => ("SIGKILL", "send SIGKILL to"),
        };
        let (id, status) = self.alive(node, action).await?;
        if let (Status::Paused { pid }, Signal::Term) = (status, signal) {
            // The engine would thaw it; a signal of our own waits until it is resumed.
            return kill(Pid::from_raw(pid), signal::Signal::SIGTERM)
                .map_err(|error| failed(node, action, &error.to_string()));
        }
        let path = format!("/containers/{id}/kill");
        match self.engine.act(&path, &[("signal", name)]).await {
            Err(EngineError::Refused { status: 404 | 409, .. }) => {
                Err(state(node, action, "its process is gone"))
            }
            other => other.map_err(Into::into),
        }
    }

    async fn pause(&self, node: NodeName) -> Result<(), BackendError> {
        match self.alive(node, "pause").await? {
            (id, Status::Running { .. }) => {
                Ok(self.engine.act(&format!("/containers/{id}/pause"), &[]).await?)
            }
            _ => Ok(()),
        }
    }

    async fn resume(&self, node: NodeName) -> Result<(), BackendError> {
        match self.alive(node, "resume").await? {
            (id, Status::Paused { .. }) => {
                Ok(self.engine.act(&format!("/containers/{id}/unpause"), &[]).await?)
            }
            _ => Ok(()),
        }
    }

    async fn status(&self, node: NodeName) -> Result<Status, BackendError> {
        self.status_of(node, &*self.place(node, "look at")?).await
    }

    async fn wait_exit(&self, node: NodeName, deadline: Duration) -> Result<i32, BackendError> {
        let action = "await the end of";
        let place = self.place(node, action)?;
        let container =
            place.container().ok_or_else(|| state(node, action, "it was never started"))?;
        one_off::wait(&self.engine, &container.id, deadline).await?.ok_or_else(|| {
            BackendError::Deadline {
                node,
                awaited: "its process to end".into(),
                waited_ms: deadline.as_millis(),
            }
        })
    }

    async fn apply_rules(&self, node: NodeName, rules: &str) -> Result<(), BackendError> {
        match self.place(node, "use its network")?.container() {
            Some(container) => self.with_site(node, &container.id).apply(rules).await.map(drop),
            None => Ok(()),
        }
    }

    async fn read_rules(&self, node: NodeName) -> Result<Option<String>, BackendError> {
        match self.place(node, "use its network")?.container() {
            Some(container) => self.with_site(node, &container.id).read().await,
            None => Ok(None),
        }
    }

    async fn open_udp(&self, node: NodeName, port: u16) -> Result<Option<UdpSocket>, BackendError> {
        let place = self.place(node, "use its network")?;
        match place.container() {
            Some(container) => {
                self.with_site(node, &container.id).open_udp(place.address, port).await
            }
            None => Ok(None),
        }
    }

    async fn collect(&self, node: &NodeSpec) -> Result<Vec<PathBuf>, BackendError> {
        let Some(container) = self.place(node.name, "collect from")?.container() else {
            return Ok(Vec::new());
        };
        let path = format!("/containers/{}/json", container.id);
        let Some(told) = self.engine.find::<Value>(&path).await? else {
            return Ok(Vec::new());
        };
        let file = node.logs_dir().join("container.json");
        fs::write(&file, format!("{told:#}\n"))
            .map_err(|error| failed(node.name, "keep what the engine tells", &error.to_string()))?;
        Ok(vec![file])
    }

    async fn destroy(&self) -> Result<(), BackendError> {
        remove_run(&self.engine, &self.run).await?;
        lock(&self.places).clear();
        Ok(())
    }
}

fn prepare_folder(node: &NodeSpec) -> io::Result<()> {
    [node.config_dir(), node.data_dir(), node.logs_dir()].iter().try_for_each(fs::create_dir_all)
}

/// What is behind the lock is never left half changed, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn state(node: NodeName, action: &'static str, reason: &str) -> BackendError {
    BackendError::State { node, action, reason: reason.to_owned() }
}

fn failed(node: NodeName, action: &str, reason: &str) -> BackendError {
    BackendError::Failed { context: format!("{node}: cannot {action}"), reason: reason.to_owned() }
}
