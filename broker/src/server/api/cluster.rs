//! DescribeCluster and DescribeQuorum.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::describe_quorum_response::{
    Listener, Node, PartitionData, ReplicaState, TopicData,
};
use kafka_protocol::messages::{
    BrokerId, DescribeClusterRequest, DescribeClusterResponse, DescribeQuorumRequest,
    DescribeQuorumResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use super::metadata::some_broker;
use crate::quorum::{QuorumNode, QuorumView};
use crate::server::dispatch::Arrived;
use crate::server::services::{Services, endpoint};
use crate::server::versions::Audience;

/// The metadata log, as Kafka names it.
const METADATA_TOPIC: &str = "__cluster_metadata";
const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;
/// The first version of DescribeQuorum that tells where the voters are.
const FIRST_WITH_NODES: i16 = 2;

/// Answers DescribeCluster: brokers to who asks a broker, controllers to who asks a controller.
pub(in crate::server) async fn handle(
    request: DescribeClusterRequest,
    arrived: &Arrived,
    services: &Arc<Services>,
) -> DescribeClusterResponse {
    let at_controller = arrived.origin.audience == Audience::Controllers;
    let here = if at_controller { CONTROLLERS } else { BROKERS };
    let response = DescribeClusterResponse::default()
        .with_cluster_id(StrBytes::from_string(services.config.cluster_id.clone()))
        .with_cluster_authorized_operations(i32::MIN);
    // Version 0 can only ask, and be told, of brokers.
    let response = match arrived.header.api_version {
        0 => response,
        _ => response.with_endpoint_type(here),
    };
    if arrived.header.api_version >= 1 && request.endpoint_type != here {
        return response
            .with_error_code(ResponseError::MismatchedEndpointType.code())
            .with_error_message(Some(StrBytes::from_static_str(
                "brokers tell of brokers, controllers of controllers",
            )));
    }
    let metadata = services.image();
    let image = &metadata.0;
    if at_controller {
        let voters = services.config.voters.iter().map(|(id, address)| {
            DescribeClusterBroker::default()
                .with_broker_id(BrokerId(id.0))
                .with_host(StrBytes::from_string(address.host.clone()))
                .with_port(i32::from(address.port))
        });
        let active = services.controllers.active();
        return response
            .with_controller_id(BrokerId(active.map_or(-1, |id| id.0)))
            .with_brokers(voters.collect());
    }
    let brokers = image
        .brokers()
        .filter(|broker| !broker.fenced || request.include_fenced_brokers)
        .filter_map(|broker| {
            let endpoint = endpoint(image, broker.id, &arrived.origin.listener)?;
            Some(
                DescribeClusterBroker::default()
                    .with_broker_id(BrokerId(endpoint.id.0))
                    .with_host(StrBytes::from_string(endpoint.host))
                    .with_port(endpoint.port)
                    .with_is_fenced(broker.fenced),
            )
        });
    response
        .with_controller_id(BrokerId(some_broker(image, services).map_or(-1, |id| id.0)))
        .with_brokers(brokers.collect())
}

/// Answers DescribeQuorum on the active controller.
pub(in crate::server) async fn describe_quorum(
    request: DescribeQuorumRequest,
    arrived: &Arrived,
    services: &Arc<Services>,
) -> DescribeQuorumResponse {
    let view = services.quorum.describe();
    let leads = services.quorum.leadership().borrow().i_lead;
    let topics = request.topics.iter().map(|topic| {
        let known = topic.topic_name.as_str() == METADATA_TOPIC;
        let partitions = topic.partitions.iter().map(|asked| {
            let index = asked.partition_index;
            if !known || index != 0 {
                return refused(index, ResponseError::UnknownTopicOrPartition);
            }
            if !leads {
                return refused(index, ResponseError::NotLeaderOrFollower);
            }
            quorum(&view)
        });
        TopicData::default()
            .with_topic_name(TopicName(StrBytes::from_string(topic.topic_name.to_string())))
            .with_partitions(partitions.collect())
    });
    let nodes = services.config.voters.iter().map(|(id, address)| {
        Node::default().with_node_id(BrokerId(id.0)).with_listeners(vec![
            Listener::default()
                .with_name(StrBytes::from_string(services.config.controller_listener.clone()))
                .with_host(StrBytes::from_string(address.host.clone()))
                .with_port(address.port),
        ])
    });
    let response = DescribeQuorumResponse::default().with_topics(topics.collect());
    if arrived.header.api_version < FIRST_WITH_NODES {
        return response;
    }
    response.with_nodes(nodes.collect())
}

fn refused(index: i32, error: ResponseError) -> PartitionData {
    PartitionData::default()
        .with_partition_index(index)
        .with_error_code(error.code())
        .with_leader_id(BrokerId(-1))
}

fn quorum(view: &QuorumView) -> PartitionData {
    let state = |node: &QuorumNode| {
        ReplicaState::default()
            .with_replica_id(BrokerId(node.id.0))
            .with_log_end_offset(node.log_end)
            .with_last_fetch_timestamp(node.last_contact_ms.unwrap_or(-1))
            .with_last_caught_up_timestamp(node.last_caught_up_ms.unwrap_or(-1))
    };
    PartitionData::default()
        .with_partition_index(0)
        .with_leader_id(BrokerId(view.leader.map_or(-1, |id| id.0)))
        .with_leader_epoch(i32::try_from(view.leader_epoch).unwrap_or(i32::MAX))
        .with_high_watermark(view.high_watermark)
        .with_current_voters(view.voters.iter().map(state).collect())
        .with_observers(view.observers.iter().map(state).collect())
}
