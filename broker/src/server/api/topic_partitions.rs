//! DescribeTopicPartitions: topics page by page, with what KIP-966 adds.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition as Partition,
    DescribeTopicPartitionsResponseTopic as Topic,
};
use kafka_protocol::messages::{
    BrokerId, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use replication::metadata::Image;

use super::metadata::{ids, offline};
use crate::server::dispatch::Arrived;
use crate::server::services::Services;

/// Partitions in one answer.
const MOST_PARTITIONS: usize = 2000;

/// Answers.
pub(in crate::server) async fn handle(
    request: DescribeTopicPartitionsRequest,
    _arrived: &Arrived,
    services: &Arc<Services>,
) -> DescribeTopicPartitionsResponse {
    let metadata = services.image();
    let image = &metadata.0;
    let mut names: Vec<String> = if request.topics.is_empty() {
        image.topics().map(|topic| topic.name.clone()).collect()
    } else {
        request.topics.iter().map(|topic| topic.name.to_string()).collect()
    };
    names.sort();
    names.dedup();
    let (first, mut from) = match &request.cursor {
        Some(cursor) => (cursor.topic_name.to_string(), cursor.partition_index),
        None => (String::new(), 0),
    };
    let asked = usize::try_from(request.response_partition_limit).unwrap_or(0);
    let mut left = if asked == 0 { MOST_PARTITIONS } else { asked.min(MOST_PARTITIONS) };
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names.into_iter().filter(|name| *name >= first) {
        let begin = if name == first { std::mem::take(&mut from) } else { 0 };
        if left == 0 {
            response.next_cursor = Some(cursor(&name, begin));
            break;
        }
        let (topic, next) = told(image, &name, begin, left);
        left -= topic.partitions.len().min(left);
        response.topics.push(topic);
        if let Some(next) = next {
            response.next_cursor = Some(cursor(&name, next));
            break;
        }
    }
    response
}

fn cursor(name: &str, partition: i32) -> Cursor {
    Cursor::default()
        .with_topic_name(TopicName(StrBytes::from_string(name.to_owned())))
        .with_partition_index(partition)
}

/// The topic from partition `from` on, and the partition with which to go on.
fn told(image: &Image, name: &str, from: i32, most: usize) -> (Topic, Option<i32>) {
    let answer = Topic::default()
        .with_name(Some(TopicName(StrBytes::from_string(name.to_owned()))))
        .with_topic_authorized_operations(i32::MIN);
    let Some(topic) = image.topic_by_name(name) else {
        return (answer.with_error_code(ResponseError::UnknownTopicOrPartition.code()), None);
    };
    let mut rest = topic.partitions.range(from..);
    let partitions = rest.by_ref().take(most).map(|(index, partition)| {
        let error = match partition.leader {
            None => ResponseError::LeaderNotAvailable.code(),
            Some(_) => 0,
        };
        Partition::default()
            .with_error_code(error)
            .with_partition_index(*index)
            .with_leader_id(BrokerId(partition.leader.map_or(-1, |id| id.0)))
            .with_leader_epoch(partition.leader_epoch.0)
            .with_replica_nodes(ids(&partition.replicas))
            .with_isr_nodes(ids(&partition.isr))
            .with_eligible_leader_replicas(Some(ids(&partition.elr)))
            .with_last_known_elr(Some(ids(&partition.last_known_elr)))
            .with_offline_replicas(offline(image, &partition.replicas))
    });
    let answer = answer
        .with_topic_id(topic.id.0)
        .with_is_internal(topic.name.starts_with("__"))
        .with_partitions(partitions.collect());
    (answer, rest.next().map(|(index, _)| *index))
}
