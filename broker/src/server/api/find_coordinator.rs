//! FindCoordinator: who keeps a group.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;
use replication::types::PartitionId;
use tracing::debug;

use crate::coordinator::partition_for;
use crate::server::dispatch::Arrived;
use crate::server::services::{Endpoint, OFFSETS_TOPIC, Services, endpoint};
use crate::server::topic_creation;

const GROUP: i8 = 0;
/// From here on several keys are asked for at once.
const FIRST_WITH_KEYS: i16 = 4;

/// Answers.
pub(in crate::server) async fn handle(
    request: FindCoordinatorRequest,
    arrived: &Arrived,
    services: &Arc<Services>,
) -> FindCoordinatorResponse {
    let listener = &arrived.origin.listener;
    if arrived.header.api_version >= FIRST_WITH_KEYS {
        let mut coordinators = Vec::with_capacity(request.coordinator_keys.len());
        for key in &request.coordinator_keys {
            let found = find(key, request.key_type, listener, services).await;
            let coordinator = Coordinator::default().with_key(key.clone());
            coordinators.push(match found {
                Ok(endpoint) => coordinator
                    .with_node_id(BrokerId(endpoint.id.0))
                    .with_host(StrBytes::from_string(endpoint.host))
                    .with_port(endpoint.port),
                Err(error) => coordinator
                    .with_node_id(BrokerId(-1))
                    .with_port(-1)
                    .with_error_code(error.code()),
            });
        }
        return FindCoordinatorResponse::default().with_coordinators(coordinators);
    }
    match find(&request.key, request.key_type, listener, services).await {
        Ok(endpoint) => FindCoordinatorResponse::default()
            .with_node_id(BrokerId(endpoint.id.0))
            .with_host(StrBytes::from_string(endpoint.host))
            .with_port(endpoint.port),
        Err(error) => FindCoordinatorResponse::default()
            .with_node_id(BrokerId(-1))
            .with_port(-1)
            .with_error_code(error.code()),
    }
}

async fn find(
    key: &str,
    key_type: i8,
    listener: &str,
    services: &Arc<Services>,
) -> Result<Endpoint, ResponseError> {
    if key_type != GROUP {
        // There are no transactions and no share groups here.
        return Err(ResponseError::InvalidRequest);
    }
    let metadata = services.image();
    let Some(topic) = metadata.0.topic_by_name(OFFSETS_TOPIC) else {
        if let Err(refused) = topic_creation::create_offsets_topic(services).await {
            debug!(refused, "the topic of groups was not created");
        }
        return Err(ResponseError::CoordinatorNotAvailable);
    };
    let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
    let index = partition_for(key, count);
    metadata
        .0
        .partition(PartitionId { topic: topic.id, index })
        .and_then(|partition| partition.leader)
        .and_then(|leader| endpoint(&metadata.0, leader, listener))
        .ok_or(ResponseError::CoordinatorNotAvailable)
}
