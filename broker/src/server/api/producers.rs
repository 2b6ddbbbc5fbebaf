//! DescribeProducers: what a partition's leader knows of idempotent producers.

use std::sync::Arc;

use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::{DescribeProducersRequest, DescribeProducersResponse, ProducerId};
use uuid::Uuid;

use crate::server::dispatch::Arrived;
use crate::server::services::{Services, TopicRef};

/// Answers.
pub(in crate::server) async fn handle(
    request: DescribeProducersRequest,
    _arrived: &Arrived,
    services: &Arc<Services>,
) -> DescribeProducersResponse {
    let topics = request.topics.iter().map(|topic| {
        let of = TopicRef { name: &topic.name, id: Uuid::nil() };
        let partitions = topic.partition_indexes.iter().map(|index| {
            let response = PartitionResponse::default().with_partition_index(*index);
            match services.replica(of, *index).and_then(|replica| replica.active_producers()) {
                Ok(producers) => {
                    let states = producers.into_iter().map(|producer| {
                        ProducerState::default()
                            .with_producer_id(ProducerId(producer.id))
                            .with_producer_epoch(i32::from(producer.epoch))
                            .with_last_sequence(producer.last_sequence)
                            .with_last_timestamp(producer.last_timestamp_ms)
                            .with_coordinator_epoch(-1)
                            .with_current_txn_start_offset(-1)
                    });
                    response.with_active_producers(states.collect())
                }
                Err(error) => response.with_error_code(error.code()),
            }
        });
        TopicResponse::default().with_name(topic.name.clone()).with_partitions(partitions.collect())
    });
    DescribeProducersResponse::default().with_topics(topics.collect())
}
