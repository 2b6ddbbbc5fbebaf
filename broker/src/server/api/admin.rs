//! What the controller does for clients: topics, reassignments, elections. Brokers pass it on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use kafka_protocol::messages::list_partition_reassignments_response::{
    OngoingPartitionReassignment, OngoingTopicReassignment,
};
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ApiKey,
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, ElectLeadersRequest, ElectLeadersResponse,
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use replication::controller::topics::{self, Layout, NewTopic};
use replication::controller::{ControllerError, election, reassignment};
use replication::metadata::Record;
use replication::types::{NodeId, PartitionId, TopicId};
use tokio::time::sleep;
use uuid::Uuid;

use super::controllers::{code, undecided};
use super::metadata::ids;
use crate::controller::{Decided, Deciding};
use crate::net::controllers::Forwarded;
use crate::server::dispatch::{Answer, Arrived};
use crate::server::services::Services;

/// Longest wait for the controller's answer to a client's request.
const LIMIT: Duration = Duration::from_secs(10);
/// How long a broker waits until it has read what the controller answered.
const CATCH_UP: Duration = Duration::from_secs(2);

/// Passes a request on to the active controller, and its answer back. The answer waits until this
/// broker knows what it tells, so that a client that asks here next finds it.
pub(in crate::server) async fn forward(
    key: ApiKey,
    arrived: &Arrived,
    services: &Services,
) -> anyhow::Result<Answer> {
    let version = arrived.header.api_version;
    let response_header_version = key.response_header_version(version);
    let forwarded = Forwarded {
        key: key as i16,
        version,
        request_header_version: key.request_header_version(version),
        response_header_version,
        body: arrived.body.clone(),
    };
    let body = services.controllers.forward(&forwarded, LIMIT).await?;
    catch_up(services).await;
    crate::wire::frame::wrap_response(response_header_version, arrived.header.correlation_id, &body)
        .map(|bytes| Answer::Frame { bytes, held: None })
}

/// The controller has committed by now; this broker reads that within a heartbeat of the quorum.
async fn catch_up(services: &Services) {
    let mut state = services.state.clone();
    state.borrow_and_update();
    let quiet = Duration::from_millis(20);
    // Awaits what is under way, if anything is.
    let _ = tokio::time::timeout(CATCH_UP, async {
        while tokio::time::timeout(quiet, state.changed()).await.is_ok() {}
    })
    .await;
    sleep(Duration::ZERO).await;
}

fn message(error: &ControllerError) -> StrBytes {
    StrBytes::from_string(error.reason.clone())
}

/// Lets the controller decide; `Err`: it does not decide here, or the outcome is not known.
async fn decide<T: Send + 'static>(
    services: &Services,
    decide: impl FnOnce(&mut Deciding<'_>) -> Decided<T> + Send + 'static,
) -> Result<T, ResponseError> {
    let controller = services.controller.as_ref().ok_or(ResponseError::NotController)?;
    controller.decide(decide).await.map(|(answer, _)| answer).map_err(undecided)
}

/// CreateTopics.
pub(in crate::server) async fn create_topics(
    request: CreateTopicsRequest,
    _arrived: &Arrived,
    services: &Arc<Services>,
) -> CreateTopicsResponse {
    let mut results = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        results.push(create_topic(topic, request.validate_only, services).await);
    }
    CreateTopicsResponse::default().with_topics(results)
}

async fn create_topic(
    topic: CreatableTopic,
    validate_only: bool,
    services: &Services,
) -> CreatableTopicResult {
    let config = &services.config;
    let layout = if topic.assignments.is_empty() {
        Layout::Spread {
            partitions: match topic.num_partitions {
                -1 => config.default_partitions,
                count => count,
            },
            factor: match topic.replication_factor {
                -1 => config.default_replication_factor,
                factor => factor,
            },
        }
    } else {
        let explicit = topic.assignments.iter().map(|assignment| {
            (
                assignment.partition_index,
                assignment.broker_ids.iter().map(|id| NodeId(id.0)).collect(),
            )
        });
        Layout::Explicit(explicit.collect())
    };
    let settings: BTreeMap<String, String> = topic
        .configs
        .iter()
        .filter_map(|config| Some((config.name.to_string(), config.value.as_ref()?.to_string())))
        .collect();
    let id = TopicId(Uuid::new_v4());
    let wanted = NewTopic { name: topic.name.to_string(), id, layout, settings };
    let decided = decide(services, move |deciding| {
        let seed = deciding.soft.next_seed();
        match topics::create(deciding.world, &wanted, seed) {
            Ok(records) => {
                let partitions: Vec<usize> = records
                    .iter()
                    .filter_map(|record| match record {
                        Record::Partition { state, .. } => Some(state.replicas.len()),
                        _ => None,
                    })
                    .collect();
                let records = if validate_only { Vec::new() } else { records };
                Decided { records, answer: Ok(partitions) }
            }
            Err(error) => Decided::nothing(Err(error)),
        }
    })
    .await;
    let result = CreatableTopicResult::default()
        .with_name(topic.name)
        .with_num_partitions(-1)
        .with_replication_factor(-1);
    match decided {
        Err(error) => result.with_error_code(error.code()),
        Ok(Err(error)) => {
            result.with_error_code(error.code()).with_error_message(Some(message(&error)))
        }
        Ok(Ok(partitions)) => result
            .with_topic_id(id.0)
            .with_configs(Some(Vec::new()))
            .with_num_partitions(i32::try_from(partitions.len()).unwrap_or(i32::MAX))
            .with_replication_factor(
                partitions.first().and_then(|count| i16::try_from(*count).ok()).unwrap_or(-1),
            ),
    }
}

/// DeleteTopics, by name or by id.
pub(in crate::server) async fn delete_topics(
    request: DeleteTopicsRequest,
    _arrived: &Arrived,
    services: &Arc<Services>,
) -> DeleteTopicsResponse {
    let by_name = request.topic_names.into_iter().map(|name| (Some(name), Uuid::nil()));
    let by_either = request.topics.into_iter().map(|topic| (topic.name, topic.topic_id));
    let mut results = Vec::new();
    for (name, id) in by_name.chain(by_either) {
        let wanted = name.as_ref().map(|name| name.to_string());
        let decided = decide(services, move |deciding| {
            let image = deciding.world.image;
            let found = match &wanted {
                Some(name) => image.topic_by_name(name).map(|topic| topic.id),
                None => Some(TopicId(id)),
            };
            let Some(id) = found else {
                return Decided::nothing(Err(ResponseError::UnknownTopicOrPartition));
            };
            let told = image.topic(id).map(|topic| topic.name.clone()).unwrap_or_default();
            match topics::delete(deciding.world, id) {
                Ok(record) => Decided { records: vec![record], answer: Ok((id, told)) },
                Err(error) => Decided::nothing(Err(code(error.code()))),
            }
        })
        .await;
        let result = DeletableTopicResult::default();
        results.push(match decided.and_then(|outcome| outcome) {
            Ok((id, told)) => {
                result.with_name(Some(TopicName(StrBytes::from_string(told)))).with_topic_id(id.0)
            }
            Err(error) => result.with_name(name).with_topic_id(id).with_error_code(error.code()),
        });
    }
    DeleteTopicsResponse::default().with_responses(results)
}

/// CreatePartitions.
pub(in crate::server) async fn create_partitions(
    request: CreatePartitionsRequest,
    _arrived: &Arrived,
    services: &Arc<Services>,
) -> CreatePartitionsResponse {
    let validate_only = request.validate_only;
    let mut results = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let name = topic.name.to_string();
        let explicit: Option<Vec<Vec<NodeId>>> = topic.assignments.map(|assignments| {
            let of = |ids: &[kafka_protocol::messages::BrokerId]| {
                ids.iter().map(|id| NodeId(id.0)).collect()
            };
            assignments.iter().map(|assignment| of(&assignment.broker_ids)).collect()
        });
        let decided = decide(services, move |deciding| {
            let seed = deciding.soft.next_seed();
            match topics::grow(deciding.world, &name, topic.count, explicit.as_deref(), seed) {
                Ok(_) if validate_only => Decided::nothing(Ok(())),
                Ok(records) => Decided { records, answer: Ok(()) },
                Err(error) => Decided::nothing(Err(error)),
            }
        })
        .await;
        let result = CreatePartitionsTopicResult::default().with_name(topic.name);
        results.push(match decided {
            Err(error) => result.with_error_code(error.code()),
            Ok(Err(error)) => {
                result.with_error_code(error.code()).with_error_message(Some(message(&error)))
            }
            Ok(Ok(())) => result,
        });
    }
    CreatePartitionsResponse::default().with_results(results)
}

/// ElectLeaders: preferred ones (0), or unclean ones (1).
pub(in crate::server) async fn elect_leaders(
    request: ElectLeadersRequest,
    arrived: &Arrived,
    services: &Arc<Services>,
) -> ElectLeadersResponse {
    let unclean = request.election_type == 1;
    let metadata = services.image();
    let asked: Vec<(String, i32)> = match &request.topic_partitions {
        Some(topics) => topics
            .iter()
            .flat_map(|topic| {
                topic.partitions.iter().map(|index| (topic.topic.to_string(), *index))
            })
            .collect(),
        None => metadata
            .0
            .topics()
            .flat_map(|topic| topic.partitions.keys().map(|index| (topic.name.clone(), *index)))
            .collect(),
    };
    let all = request.topic_partitions.is_none();
    let mut results: Vec<ReplicaElectionResult> = Vec::new();
    for (name, index) in asked {
        let topic = name.clone();
        let decided = decide(services, move |deciding| {
            let topic = deciding.world.image.topic_by_name(&topic).map(|topic| topic.id);
            let id = PartitionId { topic: topic.unwrap_or(TopicId(Uuid::nil())), index };
            match election::elect(deciding.world, id, unclean) {
                Ok(record) => Decided { records: vec![record], answer: Ok(()) },
                Err(error) => Decided::nothing(Err(error)),
            }
        })
        .await;
        let result = PartitionResult::default().with_partition_id(index);
        let result = match decided {
            // Version 0 has no place for an error but beside each partition.
            Err(error) if arrived.header.api_version == 0 => result.with_error_code(error.code()),
            Err(error) => return ElectLeadersResponse::default().with_error_code(error.code()),
            // Asked for all, those that need none are not told.
            Ok(Err(error)) if all && code(error.code()) == ResponseError::ElectionNotNeeded => {
                continue;
            }
            Ok(Err(error)) => {
                result.with_error_code(error.code()).with_error_message(Some(message(&error)))
            }
            Ok(Ok(())) => result,
        };
        match results.last_mut().filter(|known| known.topic.as_str() == name) {
            Some(known) => known.partition_result.push(result),
            None => results.push(
                ReplicaElectionResult::default()
                    .with_topic(TopicName(StrBytes::from_string(name)))
                    .with_partition_result(vec![result]),
            ),
        }
    }
    ElectLeadersResponse::default().with_replica_election_results(results)
}

/// AlterPartitionReassignments.
pub(in crate::server) async fn reassign(
    request: AlterPartitionReassignmentsRequest,
    _arrived: &Arrived,
    services: &Arc<Services>,
) -> AlterPartitionReassignmentsResponse {
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            let name = topic.name.to_string();
            let index = partition.partition_index;
            let target: Option<Vec<NodeId>> =
                partition.replicas.map(|replicas| replicas.iter().map(|id| NodeId(id.0)).collect());
            let decided = decide(services, move |deciding| {
                let topic = deciding.world.image.topic_by_name(&name).map(|topic| topic.id);
                let id = PartitionId { topic: topic.unwrap_or(TopicId(Uuid::nil())), index };
                match reassignment::reassign(deciding.world, id, target.as_deref()) {
                    Ok(record) => Decided { records: record.into_iter().collect(), answer: Ok(()) },
                    Err(error) => Decided::nothing(Err(error)),
                }
            })
            .await;
            let result = ReassignablePartitionResponse::default().with_partition_index(index);
            partitions.push(match decided {
                Err(error) => {
                    return AlterPartitionReassignmentsResponse::default()
                        .with_error_code(error.code());
                }
                Ok(Err(error)) => {
                    result.with_error_code(error.code()).with_error_message(Some(message(&error)))
                }
                Ok(Ok(())) => result,
            });
        }
        topics.push(
            ReassignableTopicResponse::default().with_name(topic.name).with_partitions(partitions),
        );
    }
    AlterPartitionReassignmentsResponse::default().with_responses(topics)
}

/// ListPartitionReassignments.
pub(in crate::server) async fn reassignments(
    request: ListPartitionReassignmentsRequest,
    _arrived: &Arrived,
    services: &Arc<Services>,
) -> ListPartitionReassignmentsResponse {
    let metadata = services.image();
    let wanted = |topic: &str, index: i32| {
        request.topics.as_ref().is_none_or(|topics| {
            topics.iter().any(|asked| {
                asked.name.as_str() == topic && asked.partition_indexes.contains(&index)
            })
        })
    };
    let topics = metadata.0.topics().filter_map(|topic| {
        let ongoing: Vec<OngoingPartitionReassignment> = topic
            .partitions
            .iter()
            .filter(|(index, state)| state.is_reassigning() && wanted(&topic.name, **index))
            .map(|(index, state)| {
                OngoingPartitionReassignment::default()
                    .with_partition_index(*index)
                    .with_replicas(ids(&state.replicas))
                    .with_adding_replicas(ids(&state.adding))
                    .with_removing_replicas(ids(&state.removing))
            })
            .collect();
        let name = TopicName(StrBytes::from_string(topic.name.clone()));
        (!ongoing.is_empty())
            .then(|| OngoingTopicReassignment::default().with_name(name).with_partitions(ongoing))
    });
    ListPartitionReassignmentsResponse::default().with_topics(topics.collect())
}
