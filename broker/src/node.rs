//! One node: everything it is made of, put together, started and stopped.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use replication::types::{BrokerEpoch, NodeId};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::admin::{self, Admin};
use crate::config::{Config, Listener};
use crate::controller::{self, ActiveSettings, Controller};
use crate::fatal::Fatal;
use crate::lifecycle::{Lifecycle, Stage};
use crate::log::LogDirectory;
use crate::net::controllers::Controllers;
use crate::net::peers::Peers;
use crate::net::quorum_link::QuorumLink;
use crate::quorum::{Quorum, QuorumConfig};
use crate::replica::{Replicas, ReplicasContext};
use crate::server::listener::{Gate, serve};
use crate::server::services::Services;
use crate::server::versions::Audience;

/// Where the metadata log lies, below the log folder.
const METADATA_DIR: &str = "__cluster_metadata-0";
/// Entries of the metadata log between two snapshots.
const SNAPSHOT_AFTER: u64 = 10_000;

/// Why a node did not start, or ended by itself.
#[derive(Debug, Error)]
pub enum NodeError {
    /// A port is taken, or an address is not here.
    #[error("cannot listen on {address} ({listener}): {reason}")]
    Listen {
        /// Which listener.
        listener: String,
        /// Where.
        address: String,
        /// What the operating system said.
        reason: std::io::Error,
    },
    /// The disk, or what lies on it.
    #[error("{}: {reason}", path.display())]
    Disk {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Something broke that the node cannot go on after.
    #[error("{0}")]
    Broken(String),
}

/// Runs a node until `stop` is done; then lets its partitions go, closes its logs, and returns.
///
/// # Errors
/// [`NodeError`]: it did not start, or could not go on.
pub async fn run(config: Config, stop: impl Future<Output = ()>) -> Result<(), NodeError> {
    let config = Arc::new(config);
    #[cfg(feature = "seeded-bugs")]
    for bug in &config.seeded_bugs {
        bug.switch_on();
        warn!(bug = bug.name(), "works with a mistake on purpose");
    }
    let fatal = Fatal::default();
    let listeners = bind(&config).await?;
    let node = Node::open(Arc::clone(&config), fatal.clone()).await?;
    let (stopping, stopped) = watch::channel(false);
    node.serve(listeners, &stopped).await?;
    tokio::select! {
        biased;
        reason = fatal.told() => {
            // Nothing is closed cleanly: the next start looks at everything.
            return Err(NodeError::Broken(reason));
        }
        () = stop => {}
    }
    info!("stopping");
    node.leave().await;
    stopping.send_replace(true);
    node.close().await
}

/// Everything a node is made of.
struct Node {
    config: Arc<Config>,
    services: Arc<Services>,
    lifecycle: Option<RunningLifecycle>,
    directory: LogDirectory,
}

/// A broker's life under way.
struct RunningLifecycle {
    stage: watch::Receiver<Stage>,
    epoch: watch::Receiver<BrokerEpoch>,
    leave: watch::Sender<bool>,
}

impl Node {
    async fn open(config: Arc<Config>, fatal: Fatal) -> Result<Self, NodeError> {
        let directory = LogDirectory::open(&config.log_dir, config.node, &config.cluster_id)
            .map_err(|error| disk(&config.log_dir, &error))?;
        let peers = Arc::new(Peers::default());
        let quorum = open_quorum(&config, Arc::clone(&peers)).await?;
        let voters: BTreeMap<NodeId, String> =
            config.voters.iter().map(|(id, address)| (*id, address.to_string())).collect();
        let controllers = Arc::new(Controllers::new(quorum.leadership(), peers, voters));
        let controller = config.roles.controller.then(|| start_controller(&config, &quorum));
        let (epoch, epoch_told) = watch::channel(BrokerEpoch::BYPASS);
        let replicas = Replicas::open(ReplicasContext {
            config: Arc::clone(&config),
            directory: directory.clone(),
            broker_epoch: epoch_told.clone(),
            controllers: Arc::clone(&controllers),
            fatal,
        })
        .map_err(|error| disk(&config.log_dir, &error))?;
        let services = Arc::new(Services::new(
            Arc::clone(&config),
            quorum,
            controller,
            controllers,
            replicas,
            epoch_told.clone(),
        ));
        let (applied, applied_told) = watch::channel(-1);
        let epoch_for_metadata = epoch_told.clone();
        let lifecycle = config.roles.broker.then(|| {
            let (stage, stage_told) = watch::channel(Stage::Starting);
            let (leave, leave_told) = watch::channel(false);
            let life = Lifecycle {
                config: Arc::clone(&config),
                controllers: Arc::clone(&services.controllers),
                applied: applied_told,
                epoch,
                stage,
                previous_epoch: directory.previous_epoch().unwrap_or(BrokerEpoch::BYPASS),
                leave: leave_told,
            };
            tokio::spawn(life.run());
            RunningLifecycle { stage: stage_told, epoch: epoch_told, leave }
        });
        if config.roles.broker {
            tokio::spawn(Arc::clone(&services).follow_metadata(epoch_for_metadata, applied));
        }
        Ok(Self { config, services, lifecycle, directory })
    }

    async fn serve(
        &self,
        listeners: Vec<(Listener, TcpListener)>,
        stopped: &watch::Receiver<bool>,
    ) -> Result<(), NodeError> {
        let gate = Arc::new(Gate::new(&self.config));
        for (listener, socket) in listeners {
            let audience = audience(&self.config, &listener.name);
            tokio::spawn(serve(
                socket,
                listener.name,
                audience,
                Arc::clone(&gate),
                Arc::clone(&self.services),
                stopped.clone(),
            ));
        }
        if let Some(address) = self.config.admin {
            let socket = TcpListener::bind(address).await.map_err(|reason| NodeError::Listen {
                listener: "admin.listener".to_owned(),
                address: address.to_string(),
                reason,
            })?;
            let admin = Admin {
                services: Arc::clone(&self.services),
                stage: self.lifecycle.as_ref().map(|lifecycle| lifecycle.stage.clone()),
            };
            tokio::spawn(admin::serve(socket, admin, stopped.clone()));
        }
        info!(node = self.config.node.0, roles = ?self.config.roles, "started");
        Ok(())
    }

    /// Controlled shutdown (R28): others lead what this broker led.
    async fn leave(&self) {
        let Some(lifecycle) = &self.lifecycle else { return };
        if *lifecycle.stage.borrow() == Stage::Starting {
            return;
        }
        lifecycle.leave.send_replace(true);
        let mut stage = lifecycle.stage.clone();
        let limit = self.config.times.controlled_shutdown;
        let gone = timeout(limit, stage.wait_for(|stage| *stage == Stage::Gone)).await;
        match gone {
            Ok(Ok(_)) => info!("the controller lets this broker go"),
            Ok(Err(_)) => {}
            Err(_) => warn!(
                waited_ms = limit.as_millis(),
                "the controller did not let this broker go in time; it goes all the same"
            ),
        }
    }

    async fn close(self) -> Result<(), NodeError> {
        let epoch = self.lifecycle.as_ref().map(|lifecycle| *lifecycle.epoch.borrow());
        self.services.replicas.close(epoch).await.map_err(|error| NodeError::Disk {
            path: self.config.log_dir.clone(),
            reason: error.to_string(),
        })?;
        self.services.quorum.shutdown().await;
        drop(self.directory);
        info!("stopped");
        Ok(())
    }
}

fn disk(path: &std::path::Path, error: &dyn std::error::Error) -> NodeError {
    NodeError::Disk { path: path.to_owned(), reason: error.to_string() }
}

fn audience(config: &Config, listener: &str) -> Audience {
    if config.roles.controller && listener == config.controller_listener {
        Audience::Controllers
    } else if listener == config.inter_broker_listener {
        Audience::Brokers
    } else {
        Audience::Clients
    }
}

/// All ports at once, before anything else: a node that cannot be reached shall not start.
async fn bind(config: &Config) -> Result<Vec<(Listener, TcpListener)>, NodeError> {
    let mut bound = Vec::with_capacity(config.listeners.len());
    for listener in &config.listeners {
        let host =
            if listener.address.host.is_empty() { "0.0.0.0" } else { &listener.address.host };
        let socket = TcpListener::bind((host, listener.address.port)).await.map_err(|reason| {
            NodeError::Listen {
                listener: listener.name.clone(),
                address: listener.address.to_string(),
                reason,
            }
        })?;
        bound.push((listener.clone(), socket));
    }
    Ok(bound)
}

async fn open_quorum(config: &Config, peers: Arc<Peers>) -> Result<Quorum, NodeError> {
    let dir = config.log_dir.join(METADATA_DIR);
    let quorum_config = QuorumConfig {
        dir: dir.clone(),
        me: config.node,
        my_address: config.quorum_address(),
        voters: config.voters.iter().map(|(id, at)| (*id, at.to_string())).collect(),
        election_timeout_ms: millis(config.times.election),
        snapshot_after_entries: SNAPSHOT_AFTER,
        cluster_id: config.cluster_id.clone(),
    };
    Quorum::open(quorum_config, Arc::new(QuorumLink::new(peers)))
        .await
        .map_err(|error| NodeError::Disk { path: dir, reason: error.to_string() })
}

fn start_controller(config: &Config, quorum: &Quorum) -> Controller {
    let (controller, commands) = Controller::new();
    let settings = ActiveSettings {
        session: config.times.session,
        imbalance_check: config.auto_leader_rebalance.then_some(config.times.imbalance_check),
        eligible_leader_replicas: config.eligible_leader_replicas,
        topic_defaults: config.topic_defaults.clone(),
        seed: u64::from(config.node.0.unsigned_abs()),
    };
    tokio::spawn(controller::run(quorum.clone(), commands, settings));
    controller
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
