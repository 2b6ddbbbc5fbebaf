//! What brokers ask controllers: registration, heartbeats, changes of the ISR, producer ids.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_partition_request::PartitionData as AskedPartition;
use kafka_protocol::messages::alter_partition_response::{PartitionData, TopicData};
use kafka_protocol::messages::{
    AllocateProducerIdsRequest, AllocateProducerIdsResponse, AlterPartitionRequest,
    AlterPartitionResponse, BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerId,
    BrokerRegistrationRequest, BrokerRegistrationResponse, ProducerId,
};
use replication::controller::alter_partition::{self, Asked};
use replication::controller::heartbeat::{self, Heartbeat};
use replication::controller::{producer_ids as ids, registration};
use replication::metadata::{BrokerRegistration, Listener};
use replication::types::{
    BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch, PartitionId, Recovery, TopicId,
};
use tracing::{debug, info, warn};

use crate::controller::{Controller, Decided, NoDecision};
use crate::server::dispatch::Arrived;
use crate::server::services::Services;

/// A learner is added before its registration; it takes a round of the quorum.
const LEARNER_LIMIT: Duration = Duration::from_secs(2);

/// The controller of this node, or what to answer.
fn here(services: &Services) -> Result<&Controller, ResponseError> {
    services.controller.as_ref().ok_or(ResponseError::NotController)
}

pub(super) fn undecided(no: NoDecision) -> ResponseError {
    match no {
        NoDecision::NotActive => ResponseError::NotController,
        // The caller asks again, and decisions compare epochs.
        NoDecision::Unknown => ResponseError::RequestTimedOut,
    }
}

/// BrokerRegistration.
pub(in crate::server) async fn register(
    request: BrokerRegistrationRequest,
    _arrived: &Arrived,
    services: &Arc<Services>,
) -> BrokerRegistrationResponse {
    match try_register(request, services).await {
        Ok(epoch) => BrokerRegistrationResponse::default().with_broker_epoch(epoch.0),
        Err(error) => BrokerRegistrationResponse::default()
            .with_broker_epoch(-1)
            .with_error_code(error.code()),
    }
}

async fn try_register(
    request: BrokerRegistrationRequest,
    services: &Arc<Services>,
) -> Result<BrokerEpoch, ResponseError> {
    let controller = here(services)?;
    if request.cluster_id.as_str() != services.config.cluster_id {
        warn!(
            broker = request.broker_id.0,
            cluster_id = request.cluster_id.as_str(),
            "a broker of another cluster wants to register"
        );
        return Err(ResponseError::InconsistentClusterId);
    }
    follow_as_learner(&request, services).await?;
    let id = NodeId(request.broker_id.0);
    let wanted = BrokerRegistration {
        id,
        incarnation: request.incarnation_id,
        listeners: request
            .listeners
            .iter()
            .map(|listener| Listener {
                name: listener.name.to_string(),
                host: listener.host.to_string(),
                port: listener.port,
            })
            .collect(),
        log_dirs: request.log_dirs.clone(),
        rack: request.rack.as_ref().map(ToString::to_string),
    };
    let previous = BrokerEpoch(request.previous_broker_epoch);
    let (decided, index) = controller
        .decide(move |deciding| {
            match registration::register(
                deciding.world,
                &deciding.soft.sessions,
                wanted,
                previous,
                deciding.now,
            ) {
                Ok(records) => {
                    deciding.soft.sessions.contact(id, deciding.now);
                    // Registered in this life already: its epoch stays.
                    let known = records
                        .is_empty()
                        .then(|| deciding.world.image.broker(id).map(|b| b.epoch));
                    Decided { records, answer: Ok(known.flatten()) }
                }
                Err(error) => Decided::nothing(Err(error)),
            }
        })
        .await
        .map_err(undecided)?;
    let known = decided.map_err(|error| {
        debug!(broker = id.0, %error, "is not registered");
        code(error.code())
    })?;
    Ok(known.unwrap_or(BrokerEpoch(index)))
}

/// A broker that is no voter follows the metadata log from now on.
async fn follow_as_learner(
    request: &BrokerRegistrationRequest,
    services: &Services,
) -> Result<(), ResponseError> {
    let id = NodeId(request.broker_id.0);
    if services.config.voters.contains_key(&id) {
        return Ok(());
    }
    let name = &services.config.inter_broker_listener;
    let listener = request
        .listeners
        .iter()
        .find(|listener| listener.name.as_str() == name)
        .ok_or(ResponseError::InvalidRegistration)?;
    let address = format!("{}:{}", listener.host.as_str(), listener.port);
    let added = services.quorum.ensure_learner(id, address);
    match tokio::time::timeout(LEARNER_LIMIT, added).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            info!(broker = id.0, %error, "cannot follow the metadata log yet");
            Err(ResponseError::NotController)
        }
        Err(_) => Err(ResponseError::RequestTimedOut),
    }
}

/// Kafka's error of a code that the pure crate names.
pub(super) fn code(code: i16) -> ResponseError {
    kafka_protocol::error::ParseResponseErrorCode::err(code)
        .unwrap_or(ResponseError::UnknownServerError)
}

/// BrokerHeartbeat.
pub(in crate::server) async fn heartbeat(
    request: BrokerHeartbeatRequest,
    _arrived: &Arrived,
    services: &Arc<Services>,
) -> BrokerHeartbeatResponse {
    let refused =
        |error: ResponseError| BrokerHeartbeatResponse::default().with_error_code(error.code());
    let controller = match here(services) {
        Ok(controller) => controller,
        Err(error) => return refused(error),
    };
    let beat = Heartbeat {
        broker: NodeId(request.broker_id.0),
        epoch: BrokerEpoch(request.broker_epoch),
        metadata_offset: request.current_metadata_offset,
        want_fence: request.want_fence,
        want_shut_down: request.want_shut_down,
    };
    let decided = controller
        .decide(move |deciding| {
            match heartbeat::decide(
                deciding.world,
                &mut deciding.soft.sessions,
                &beat,
                deciding.now,
            ) {
                Ok((records, reply)) => Decided { records, answer: Ok(reply) },
                Err(error) => Decided::nothing(Err(error)),
            }
        })
        .await;
    match decided {
        Err(no) => refused(undecided(no)),
        Ok((Err(error), _)) => refused(code(error.code())),
        Ok((Ok(reply), _)) => BrokerHeartbeatResponse::default()
            .with_is_caught_up(reply.is_caught_up)
            .with_is_fenced(reply.is_fenced)
            .with_should_shut_down(reply.should_shut_down),
    }
}

/// AlterPartition (R35, R36).
pub(in crate::server) async fn alter_partition(
    request: AlterPartitionRequest,
    arrived: &Arrived,
    services: &Arc<Services>,
) -> AlterPartitionResponse {
    let refused =
        |error: ResponseError| AlterPartitionResponse::default().with_error_code(error.code());
    let controller = match here(services) {
        Ok(controller) => controller,
        Err(error) => return refused(error),
    };
    let version = arrived.header.api_version;
    let broker = NodeId(request.broker_id.0);
    let epoch = BrokerEpoch(request.broker_epoch);
    let asked: Vec<Asked> = request
        .topics
        .iter()
        .flat_map(|topic| {
            let id = TopicId(topic.topic_id);
            topic.partitions.iter().map(move |partition| asked(id, partition))
        })
        .collect();
    let decided = controller
        .decide(move |deciding| {
            match alter_partition::alter(deciding.world, broker, epoch, &asked, version) {
                Ok((records, outcomes)) => Decided { records, answer: Ok(outcomes) },
                Err(error) => Decided::nothing(Err(error)),
            }
        })
        .await;
    let outcomes = match decided {
        Err(no) => return refused(undecided(no)),
        Ok((Err(error), _)) => return refused(code(error.code())),
        Ok((Ok(outcomes), _)) => outcomes,
    };
    let mut topics: Vec<TopicData> = Vec::new();
    for (id, outcome) in outcomes {
        let data = PartitionData::default().with_partition_index(id.index);
        let data = match outcome {
            Ok(state) => data
                .with_leader_id(BrokerId(state.leader.map_or(-1, |id| id.0)))
                .with_leader_epoch(state.leader_epoch.0)
                .with_isr(super::metadata::ids(&state.isr))
                .with_leader_recovery_state(match state.recovery {
                    Recovery::Recovered => 0,
                    Recovery::Recovering => 1,
                })
                .with_partition_epoch(state.partition_epoch.0),
            Err(error) => data.with_error_code(error.code()),
        };
        match topics.last_mut().filter(|topic| topic.topic_id == id.topic.0) {
            Some(topic) => topic.partitions.push(data),
            None => topics
                .push(TopicData::default().with_topic_id(id.topic.0).with_partitions(vec![data])),
        }
    }
    AlterPartitionResponse::default().with_topics(topics)
}

fn asked(topic: TopicId, partition: &AskedPartition) -> Asked {
    let with_epochs = partition
        .new_isr_with_epochs
        .iter()
        .map(|member| (NodeId(member.broker_id.0), BrokerEpoch(member.broker_epoch)));
    // Version 2 names members without their lives: the bypass of R3.
    let without = partition.new_isr.iter().map(|member| (NodeId(member.0), BrokerEpoch::BYPASS));
    Asked {
        id: PartitionId { topic, index: partition.partition_index },
        leader_epoch: LeaderEpoch(partition.leader_epoch),
        partition_epoch: PartitionEpoch(partition.partition_epoch),
        isr: with_epochs.chain(without).collect(),
        recovery: match partition.leader_recovery_state {
            1 => Recovery::Recovering,
            _ => Recovery::Recovered,
        },
    }
}

/// AllocateProducerIds.
pub(in crate::server) async fn producer_ids(
    request: AllocateProducerIdsRequest,
    _arrived: &Arrived,
    services: &Arc<Services>,
) -> AllocateProducerIdsResponse {
    let refused =
        |error: ResponseError| AllocateProducerIdsResponse::default().with_error_code(error.code());
    let controller = match here(services) {
        Ok(controller) => controller,
        Err(error) => return refused(error),
    };
    let (broker, epoch) = (NodeId(request.broker_id.0), BrokerEpoch(request.broker_epoch));
    let decided = controller
        .decide(move |deciding| match ids::allocate(deciding.world, broker, epoch) {
            Ok((records, block)) => Decided { records, answer: Ok(block) },
            Err(error) => Decided::nothing(Err(error)),
        })
        .await;
    match decided {
        Err(no) => refused(undecided(no)),
        Ok((Err(error), _)) => refused(code(error.code())),
        Ok((Ok(block), _)) => AllocateProducerIdsResponse::default()
            .with_producer_id_start(ProducerId(block.first))
            .with_producer_id_len(block.len),
    }
}
