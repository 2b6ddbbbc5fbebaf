//! How far a broker's replicas are: their log ends, and the high watermarks of those it leads.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use futures_util::future::join_all;
use history::Key;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{BrokerId, ListOffsetsRequest, ListOffsetsResponse};

use super::connection::{ProbeError, ask};
use super::view::{ANSWER_DEADLINE, View, topic_name};
use crate::node::{NodeName, NodeSpec, OBSERVER_PORT};

const VERSIONS: RangeInclusive<i16> = 1..=7;
const LATEST: i64 = -1;
/// Of a question that a replica in any leader epoch may answer.
const ANY_EPOCH: i32 = -1;

/// Which end of a log is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The log end offset of the broker's own replica, leader or not. Kafka tells it to those
    /// who ask as replica -2, which is meant for debugging.
    Log,
    /// The high watermark. Only leaders tell.
    HighWatermark,
}

impl End {
    const fn replica_id(self) -> BrokerId {
        match self {
            Self::Log => BrokerId(-2),
            Self::HighWatermark => BrokerId(-1),
        }
    }
}

/// By key: the offset, or the name of the error that the broker gives instead.
pub type Offsets = BTreeMap<Key, Result<i64, String>>;

/// Asks `node` for one end of its replicas of `keys`.
///
/// # Errors
/// [`ProbeError`] where it does not answer at all.
pub async fn offsets<'a>(
    node: &NodeSpec,
    keys: impl IntoIterator<Item = &'a Key>,
    end: End,
) -> Result<Offsets, ProbeError> {
    let request = request(keys.into_iter().map(|key| (key, ANY_EPOCH)), end);
    if request.topics.is_empty() {
        return Ok(Offsets::new());
    }
    let answer = ask(node.address, OBSERVER_PORT, VERSIONS, &request, ANSWER_DEADLINE).await?;
    Ok(read(&answer))
}

/// Both ends of a key as its leader tells them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaderEnds {
    pub(super) log_end: Option<i64>,
    pub(super) high_watermark: Option<i64>,
}

/// Asks the leaders of `view` for both ends of what they lead. Keys whose leader does not answer
/// are missing.
pub(super) async fn leader_ends(nodes: &[NodeSpec], view: &View) -> BTreeMap<Key, LeaderEnds> {
    let mut led: BTreeMap<NodeName, BTreeSet<&Key>> = BTreeMap::new();
    for (key, seen) in &view.keys {
        if let Some(leader) = seen.leader {
            led.entry(leader).or_default().insert(key);
        }
    }
    let asked = nodes.iter().filter_map(|node| Some((node, led.get(&node.name)?)));
    let answers = join_all(asked.map(|(node, keys)| async {
        tokio::join!(
            offsets(node, keys.iter().copied(), End::Log),
            offsets(node, keys.iter().copied(), End::HighWatermark),
        )
    }))
    .await;
    let mut ends: BTreeMap<Key, LeaderEnds> = BTreeMap::new();
    for (logs, watermarks) in answers {
        for (key, offset) in logs.into_iter().flatten() {
            ends.entry(key).or_default().log_end = offset.ok();
        }
        for (key, offset) in watermarks.into_iter().flatten() {
            ends.entry(key).or_default().high_watermark = offset.ok();
        }
    }
    ends
}

/// Asks for one end of each key, in the leader epoch beside it.
pub(super) fn request<'a>(
    keys: impl IntoIterator<Item = (&'a Key, i32)>,
    end: End,
) -> ListOffsetsRequest {
    let mut topics: BTreeMap<&str, Vec<ListOffsetsPartition>> = BTreeMap::new();
    for (key, leader_epoch) in keys {
        let Some((topic, partition)) = key.split() else { continue };
        topics.entry(topic).or_default().push(
            ListOffsetsPartition::default()
                .with_partition_index(partition)
                .with_current_leader_epoch(leader_epoch)
                .with_timestamp(LATEST),
        );
    }
    let topics = topics.into_iter().map(|(name, partitions)| {
        ListOffsetsTopic::default().with_name(topic_name(name)).with_partitions(partitions)
    });
    ListOffsetsRequest::default().with_replica_id(end.replica_id()).with_topics(topics.collect())
}

pub(super) fn read(answer: &ListOffsetsResponse) -> Offsets {
    let topics = answer.topics.iter();
    topics
        .flat_map(|topic| topic.partitions.iter().map(|partition| (&topic.name, partition)))
        .map(|(topic, partition)| {
            let offset = match ResponseError::try_from_code(partition.error_code) {
                None => Ok(partition.offset),
                Some(error) => Err(error.to_string()),
            };
            (Key::new(topic.0.as_str(), partition.partition_index), offset)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::list_offsets_response::{
        ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
    };

    use super::*;

    #[test]
    fn a_request_names_each_topic_once() {
        let keys = ["a-0", "b-0", "a-1", "nonsense"].map(Key::from);
        let request = request(keys.iter().map(|key| (key, ANY_EPOCH)), End::Log);
        assert_eq!(request.replica_id, BrokerId(-2));
        let asked: Vec<_> = request
            .topics
            .iter()
            .map(|topic| (topic.name.0.as_str(), topic.partitions.len()))
            .collect();
        assert_eq!(asked, [("a", 2), ("b", 1)]);
    }

    #[test]
    fn an_answer_is_an_offset_or_an_error() {
        let partition = |index, code, offset| {
            ListOffsetsPartitionResponse::default()
                .with_partition_index(index)
                .with_error_code(code)
                .with_offset(offset)
        };
        let topic = ListOffsetsTopicResponse::default()
            .with_name(topic_name("a"))
            .with_partitions(vec![partition(0, 0, 42), partition(1, 78, -1)]);
        let offsets = read(&ListOffsetsResponse::default().with_topics(vec![topic]));
        assert_eq!(offsets[&Key::from("a-0")], Ok(42));
        assert!(offsets[&Key::from("a-1")].is_err());
    }
}
