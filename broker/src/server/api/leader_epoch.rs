//! OffsetsForLeaderEpoch: where an epoch ends in the leader's log (R22).

use std::sync::Arc;

use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use replication::types::LeaderEpoch;
use uuid::Uuid;

use crate::server::dispatch::Arrived;
use crate::server::services::{Services, TopicRef};

/// Answers.
pub(in crate::server) async fn handle(
    request: OffsetForLeaderEpochRequest,
    _arrived: &Arrived,
    services: &Arc<Services>,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.iter().map(|topic| {
        let of = TopicRef { name: &topic.topic, id: Uuid::nil() };
        let partitions = topic.partitions.iter().map(|asked| {
            let known = (asked.current_leader_epoch >= 0)
                .then_some(LeaderEpoch(asked.current_leader_epoch));
            let answer = EpochEndOffset::default().with_partition(asked.partition);
            let undefined =
                |answer: EpochEndOffset| answer.with_leader_epoch(-1).with_end_offset(-1);
            let found = services
                .replica(of, asked.partition)
                .and_then(|replica| replica.end_of_epoch(LeaderEpoch(asked.leader_epoch), known));
            match found {
                Ok(Some(end)) => answer.with_leader_epoch(end.epoch.0).with_end_offset(end.end.0),
                Ok(None) => undefined(answer),
                Err(error) => undefined(answer).with_error_code(error.code()),
            }
        });
        OffsetForLeaderTopicResult::default()
            .with_topic(topic.topic.clone())
            .with_partitions(partitions.collect())
    });
    OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
}
