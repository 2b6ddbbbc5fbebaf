//! Metadata: brokers, topics, leaders.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataRequest, MetadataResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use replication::metadata::{Image, Topic};
use replication::types::{NodeId, TopicId};
use tracing::debug;

use crate::server::dispatch::Arrived;
use crate::server::services::{Services, endpoint};
use crate::server::topic_creation;

/// "Operations are not told."
const NOT_ASKED: i32 = i32::MIN;

/// Answers.
pub(in crate::server) async fn handle(
    request: MetadataRequest,
    arrived: &Arrived,
    services: &Arc<Services>,
) -> MetadataResponse {
    let metadata = services.image();
    let image = &metadata.0;
    let listener = &arrived.origin.listener;
    let asked = request.topics.filter(|topics| {
        // In version 0 an empty list means all.
        arrived.header.api_version > 0 || !topics.is_empty()
    });
    let topics = match asked {
        None => image.topics().map(|topic| told(image, topic, listener)).collect(),
        Some(asked) => {
            let mut topics = Vec::with_capacity(asked.len());
            for topic in asked {
                topics.push(match (&topic.name, topic.topic_id) {
                    (Some(name), id) if id.is_nil() => match image.topic_by_name(name) {
                        Some(topic) => told(image, topic, listener),
                        None => unknown(name, request.allow_auto_topic_creation, services).await,
                    },
                    (_, id) => match image.topic(TopicId(id)) {
                        Some(topic) => told(image, topic, listener),
                        None => MetadataResponseTopic::default()
                            .with_error_code(ResponseError::UnknownTopicId.code())
                            .with_name(None)
                            .with_topic_id(id)
                            .with_topic_authorized_operations(NOT_ASKED),
                    },
                });
            }
            topics
        }
    };
    let brokers = image.brokers().filter(|broker| !broker.fenced).filter_map(|broker| {
        let endpoint = endpoint(image, broker.id, listener)?;
        Some(
            MetadataResponseBroker::default()
                .with_node_id(BrokerId(endpoint.id.0))
                .with_host(StrBytes::from_string(endpoint.host))
                .with_port(endpoint.port),
        )
    });
    MetadataResponse::default()
        .with_brokers(brokers.collect())
        .with_cluster_id(Some(StrBytes::from_string(services.config.cluster_id.clone())))
        .with_controller_id(BrokerId(some_broker(image, services).map_or(-1, |id| id.0)))
        .with_topics(topics)
        .with_cluster_authorized_operations(NOT_ASKED)
}

/// Clients send what is for the controller to a broker that passes it on: any that serves.
pub(super) fn some_broker(image: &Image, services: &Services) -> Option<NodeId> {
    let mut serving = image.brokers().filter(|broker| !broker.fenced).map(|broker| broker.id);
    let me = services.config.node;
    let active = services.controllers.active();
    let ids: Vec<NodeId> = serving.by_ref().collect();
    active
        .filter(|id| ids.contains(id))
        .or_else(|| ids.contains(&me).then_some(me))
        .or(ids.first().copied())
}

fn told(image: &Image, topic: &Topic, listener: &str) -> MetadataResponseTopic {
    let partitions = topic.partitions.iter().map(|(index, partition)| {
        let leader = partition.leader.filter(|id| endpoint(image, *id, listener).is_some());
        let error = match (partition.leader, leader) {
            (None, _) => ResponseError::LeaderNotAvailable.code(),
            (Some(_), None) => ResponseError::ListenerNotFound.code(),
            _ => 0,
        };
        MetadataResponsePartition::default()
            .with_error_code(error)
            .with_partition_index(*index)
            .with_leader_id(BrokerId(leader.map_or(-1, |id| id.0)))
            .with_leader_epoch(partition.leader_epoch.0)
            .with_replica_nodes(ids(&partition.replicas))
            .with_isr_nodes(ids(&partition.isr))
            .with_offline_replicas(offline(image, &partition.replicas))
    });
    MetadataResponseTopic::default()
        .with_name(Some(TopicName(StrBytes::from_string(topic.name.clone()))))
        .with_topic_id(topic.id.0)
        .with_is_internal(topic.name.starts_with("__"))
        .with_partitions(partitions.collect())
        .with_topic_authorized_operations(NOT_ASKED)
}

pub(super) fn ids<'a>(nodes: impl IntoIterator<Item = &'a NodeId>) -> Vec<BrokerId> {
    nodes.into_iter().map(|id| BrokerId(id.0)).collect()
}

/// Replicas on brokers that do not serve.
pub(super) fn offline<'a>(
    image: &Image,
    replicas: impl IntoIterator<Item = &'a NodeId>,
) -> Vec<BrokerId> {
    let is_offline = |id: &&NodeId| image.broker(**id).is_none_or(|broker| broker.fenced);
    ids(replicas.into_iter().filter(is_offline))
}

async fn unknown(
    name: &TopicName,
    may_create: bool,
    services: &Arc<Services>,
) -> MetadataResponseTopic {
    let mut error = ResponseError::UnknownTopicOrPartition;
    if may_create && services.config.auto_create_topics {
        let config = &services.config;
        let made = topic_creation::create(
            services,
            name.as_str(),
            config.default_partitions,
            config.default_replication_factor,
            &[],
        );
        match made.await {
            // It is there as soon as this node has read of it.
            Ok(()) => error = ResponseError::LeaderNotAvailable,
            Err(refused) => {
                debug!(topic = name.as_str(), refused, "was not created");
                error = ResponseError::UnknownTopicOrPartition;
            }
        }
    }
    MetadataResponseTopic::default()
        .with_error_code(error.code())
        .with_name(Some(name.clone()))
        .with_topic_authorized_operations(NOT_ASKED)
}
