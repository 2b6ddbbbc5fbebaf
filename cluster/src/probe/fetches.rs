//! Fetching as a consumer without a client library: what is there now, and no waiting.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use history::Key;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{BrokerId, FetchRequest, FetchResponse};

use super::view::topic_name;

/// From 11 on followers answer consumers; from 13 on topics go by their ids.
pub(super) const VERSIONS: RangeInclusive<i16> = 11..=12;
pub(super) const CONSUMER: BrokerId = BrokerId(-1);

/// A key, the leader epoch in which it is asked for, and from where.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) key: &'a Key,
    pub(super) leader_epoch: i32,
    pub(super) from: i64,
}

/// Asks for so many bytes of each key, and so many in all.
pub(super) fn request<'a>(
    asked: impl IntoIterator<Item = Asked<'a>>,
    bytes_each: i32,
    bytes_in_all: i32,
) -> FetchRequest {
    let mut topics: BTreeMap<&str, Vec<FetchPartition>> = BTreeMap::new();
    for one in asked {
        let Some((topic, partition)) = one.key.split() else { continue };
        topics.entry(topic).or_default().push(
            FetchPartition::default()
                .with_partition(partition)
                .with_current_leader_epoch(one.leader_epoch)
                .with_fetch_offset(one.from)
                .with_partition_max_bytes(bytes_each),
        );
    }
    let topics = topics.into_iter().map(|(name, partitions)| {
        FetchTopic::default().with_topic(topic_name(name)).with_partitions(partitions)
    });
    FetchRequest::default()
        .with_replica_id(CONSUMER)
        .with_max_wait_ms(0)
        .with_min_bytes(0)
        .with_max_bytes(bytes_in_all)
        .with_session_epoch(-1)
        .with_topics(topics.collect())
}

/// What was answered, by key.
pub(super) fn by_key(answer: &FetchResponse) -> impl Iterator<Item = (Key, &PartitionData)> {
    let topics = answer.responses.iter();
    topics
        .flat_map(|topic| topic.partitions.iter().map(|data| (topic.topic.0.as_str(), data)))
        .map(|(topic, data)| (Key::new(topic, data.partition_index), data))
}
