//! What handlers work with.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kafka_protocol::ResponseError;
use kafka_protocol::error::ParseResponseErrorCode;
use kafka_protocol::messages::{AllocateProducerIdsRequest, BrokerId, TopicName};
use replication::metadata::Image;
use replication::types::{BrokerEpoch, LeaderEpoch, NodeId, PartitionId, TopicId};
use tokio::sync::watch;
use uuid::Uuid;

use crate::admin::metrics::Metrics;
use crate::config::Config;
use crate::controller::entry::Metadata;
use crate::controller::{Controller, Decided};
use crate::coordinator::Coordinator;
use crate::net::controllers::Controllers;
use crate::producers::ids::{Blocks, NoBlock, ProducerIds};
use crate::quorum::{Applied, Quorum};
use crate::replica::offsets_topic::ReplicatedOffsets;
use crate::replica::{LeadershipChange, Partition, Replicas};
use crate::server::budget::Budget;

pub use crate::replica::offsets_topic::OFFSETS_TOPIC;

/// A topic as a request names it: by name, or, where that is empty, by id.
#[derive(Clone, Copy, Debug)]
pub struct TopicRef<'a> {
    /// Its name; empty where it is named by id.
    pub name: &'a TopicName,
    /// Its id; nil where it is named by name.
    pub id: Uuid,
}

/// Where a broker can be reached by who came in by a listener of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Which broker.
    pub id: NodeId,
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: i32,
}

/// What handlers work with.
#[derive(Debug)]
pub struct Services {
    /// What the node was told.
    pub config: Arc<Config>,
    /// The metadata log.
    pub quorum: Quorum,
    /// Its state, as far as this node has applied it.
    pub state: watch::Receiver<Applied>,
    /// This node's controller, if it has that role.
    pub controller: Option<Controller>,
    /// The way to the active controller.
    pub controllers: Arc<Controllers>,
    /// This node's replicas; none on a pure controller.
    pub replicas: Arc<Replicas>,
    /// Groups.
    pub coordinator: Arc<Coordinator>,
    /// Producer ids.
    pub producer_ids: Arc<ProducerIds>,
    /// Memory for responses.
    pub responses: Budget,
    /// Numbers.
    pub metrics: Arc<Metrics>,
}

/// Blocks of producer ids, from the active controller.
#[derive(Debug)]
struct ControllerBlocks {
    node: NodeId,
    epoch: watch::Receiver<BrokerEpoch>,
    controllers: Arc<Controllers>,
    limit: Duration,
}

#[async_trait]
impl Blocks for ControllerBlocks {
    async fn next(&self) -> Result<(i64, i64), NoBlock> {
        let request = AllocateProducerIdsRequest::default()
            .with_broker_id(BrokerId(self.node.0))
            .with_broker_epoch(self.epoch.borrow().0);
        let response = self
            .controllers
            .ask(0, &request, self.limit)
            .await
            .map_err(|error| NoBlock(error.to_string()))?;
        match response.error_code.err() {
            None => Ok((response.producer_id_start.0, i64::from(response.producer_id_len))),
            Some(error) => Err(NoBlock(format!("{error:?}"))),
        }
    }
}

impl Services {
    /// Puts together what handlers work with.
    pub fn new(
        config: Arc<Config>,
        quorum: Quorum,
        controller: Option<Controller>,
        controllers: Arc<Controllers>,
        replicas: Arc<Replicas>,
        epoch: watch::Receiver<BrokerEpoch>,
    ) -> Self {
        let commit_limit = config.offsets_commit_limit;
        let offsets = ReplicatedOffsets::new(Arc::clone(&replicas), commit_limit);
        let coordinator = Coordinator::new(config.groups.clone(), Arc::new(offsets));
        let blocks = ControllerBlocks {
            node: config.node,
            epoch,
            controllers: Arc::clone(&controllers),
            limit: config.times.controller_request.min(Duration::from_secs(3)),
        };
        Self {
            state: quorum.state(),
            quorum,
            controller,
            controllers,
            replicas,
            coordinator,
            producer_ids: Arc::new(ProducerIds::new(Arc::new(blocks))),
            responses: Budget::new(config.limits.all_responses_bytes),
            metrics: Arc::default(),
            config,
        }
    }

    /// Brings replicas and groups in step with the metadata, entry after entry, from this
    /// broker's own registration on: what lies before is of the past, and may name leaders that
    /// are none any more. Tells how far that is.
    pub async fn follow_metadata(
        self: Arc<Self>,
        mut epoch: watch::Receiver<BrokerEpoch>,
        told: watch::Sender<i64>,
    ) {
        let mut state = self.state.clone();
        loop {
            let applied = state.borrow_and_update().clone();
            let registered = *epoch.borrow();
            if registered != BrokerEpoch::BYPASS && applied.index >= registered.0 {
                let replicas = Arc::clone(&self.replicas);
                let metadata = Arc::clone(&applied.state);
                // Logs are opened, cut and deleted in there.
                let work = move || replicas.apply(&metadata);
                match tokio::task::spawn_blocking(work).await {
                    Ok(changes) => self.tell_coordinator(&changes),
                    Err(error) => tracing::error!(%error, "metadata was not applied"),
                }
                told.send_replace(applied.index);
            }
            let more = tokio::select! {
                biased;
                changed = state.changed() => changed.is_ok(),
                changed = epoch.changed() => changed.is_ok(),
            };
            if !more {
                return;
            }
        }
    }

    /// The connection on which `broker` sent its heartbeats broke: most likely its process is
    /// dead, and it need not be waited for as long as for one that is merely silent.
    pub async fn lost(&self, broker: NodeId) {
        let Some(controller) = &self.controller else { return };
        let grace_ms = u64::try_from(self.config.times.heartbeat.as_millis() * 2);
        let grace_ms = grace_ms.unwrap_or(u64::MAX);
        let told = controller.decide(move |deciding| {
            deciding.soft.sessions.lost(broker, deciding.now, grace_ms);
            Decided::nothing(())
        });
        // Whoever is not the active controller keeps no sessions.
        let _ = told.await;
    }

    fn tell_coordinator(&self, changes: &[LeadershipChange]) {
        for change in changes.iter().filter(|change| &*change.partition.topic == OFFSETS_TOPIC) {
            let index = change.partition.id.index;
            if change.leads {
                self.coordinator.elected(index, change.leader_epoch);
            } else {
                self.coordinator.resigned(index);
            }
        }
    }

    /// The metadata as this node knows it.
    pub fn image(&self) -> Arc<Metadata> {
        Arc::clone(&self.state.borrow().state)
    }

    /// The id of `topic`.
    ///
    /// # Errors
    /// `UNKNOWN_TOPIC_ID` or `UNKNOWN_TOPIC_OR_PARTITION`, by how it was named.
    pub fn topic_id(&self, image: &Image, topic: TopicRef<'_>) -> Result<TopicId, ResponseError> {
        if topic.id.is_nil() {
            return image
                .topic_by_name(topic.name)
                .map(|topic| topic.id)
                .ok_or(ResponseError::UnknownTopicOrPartition);
        }
        let id = TopicId(topic.id);
        image.topic(id).map(|topic| topic.id).ok_or(ResponseError::UnknownTopicId)
    }

    /// This node's replica of a partition.
    ///
    /// # Errors
    /// `NOT_LEADER_OR_FOLLOWER` where others have it, else that it is unknown.
    pub fn replica(
        &self,
        topic: TopicRef<'_>,
        index: i32,
    ) -> Result<Arc<Partition>, ResponseError> {
        let image = self.image();
        let id = PartitionId { topic: self.topic_id(&image.0, topic)?, index };
        if let Some(replica) = self.replicas.get(id) {
            return Ok(replica);
        }
        match image.0.partition(id) {
            Some(_) => Err(ResponseError::NotLeaderOrFollower),
            None => Err(ResponseError::UnknownTopicOrPartition),
        }
    }

    /// Who leads a partition, and in which epoch, as far as this node knows.
    pub fn leader(&self, topic: TopicRef<'_>, index: i32) -> Option<(NodeId, LeaderEpoch)> {
        let image = self.image();
        let topic = self.topic_id(&image.0, topic).ok()?;
        let partition = image.0.partition(PartitionId { topic, index })?;
        Some((partition.leader?, partition.leader_epoch))
    }

    /// Where `brokers` can be reached through `listener`, each once.
    pub fn endpoints(&self, brokers: &[NodeId], listener: &str) -> impl Iterator<Item = Endpoint> {
        let image = self.image();
        let mut ids = brokers.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let found: Vec<Endpoint> =
            ids.into_iter().filter_map(|id| endpoint(&image.0, id, listener)).collect();
        found.into_iter()
    }

    /// Is it a topic that clients do not write to?
    pub fn is_internal(&self, topic: &str) -> bool {
        topic == OFFSETS_TOPIC
    }
}

/// Where `broker` can be reached through `listener`.
pub fn endpoint(image: &Image, broker: NodeId, listener: &str) -> Option<Endpoint> {
    let listener = image.broker(broker)?.listener(listener)?;
    Some(Endpoint { id: broker, host: listener.host.clone(), port: i32::from(listener.port) })
}
