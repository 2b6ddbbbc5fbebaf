//! Produce: appends at once, answers when the write counts.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use replication::seeded::Bug;
use tokio::time::Instant;
use uuid::Uuid;

use crate::replica::{Appended, Partition, Refused};
use crate::server::connection::Origin;
use crate::server::dispatch::{Answer, Arrived, Pending, decode, encode};
use crate::server::services::{Services, TopicRef};

/// A partition's part of a produce that was begun.
struct Begun {
    index: i32,
    outcome: Result<(Arc<Partition>, Appended), Refused>,
}

/// A topic's part.
struct BegunTopic {
    name: TopicName,
    id: Uuid,
    partitions: Vec<Begun>,
}

/// Appends what `arrived` holds, in order; the answer waits for replicas where it has to.
pub(in crate::server) async fn begin(
    arrived: Arrived,
    services: Arc<Services>,
) -> Result<Pending, String> {
    let request: ProduceRequest = decode(&arrived).map_err(|error| format!("{error:#}"))?;
    let acks = request.acks;
    let until = Instant::now()
        + Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or_default());
    let topics = append_all(request, &services);
    if acks == 0 {
        // Nobody is told of an error: closing the connection is all that can be said.
        let failed = topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .find_map(|begun| begun.outcome.as_ref().err().map(|refused| refused.reason.clone()));
        return Ok(Box::pin(async move {
            failed.map_or(Answer::Nothing, |reason| {
                Answer::Close(format!("a produce with acks=0 failed: {reason}"))
            })
        }));
    }
    Ok(Box::pin(async move {
        let response = answer(topics, acks, until, &arrived.origin, &services).await;
        encode(&arrived.header, &response)
            .unwrap_or_else(|error| Answer::Close(format!("Produce: {error:#}")))
    }))
}

fn append_all(request: ProduceRequest, services: &Services) -> Vec<BegunTopic> {
    let acks = request.acks;
    let transactional = request.transactional_id.is_some();
    let append_topic = |topic: TopicProduceData| {
        let partitions = topic
            .partition_data
            .into_iter()
            .map(|data| {
                let of = TopicRef { name: &topic.name, id: topic.topic_id };
                let index = data.index;
                let outcome = if transactional {
                    Err(refused(ResponseError::InvalidRequest, "transactions are not supported"))
                } else {
                    append(data, of, acks, services)
                };
                Begun { index, outcome }
            })
            .collect();
        BegunTopic { name: topic.name, id: topic.topic_id, partitions }
    };
    request.topic_data.into_iter().map(append_topic).collect()
}

fn append(
    data: PartitionProduceData,
    topic: TopicRef<'_>,
    acks: i16,
    services: &Services,
) -> Result<(Arc<Partition>, Appended), Refused> {
    if !(-1..=1).contains(&acks) {
        return Err(refused(
            ResponseError::InvalidRequiredAcks,
            &format!("acks is {acks}; it must be -1, 0 or 1"),
        ));
    }
    let mut index = data.index;
    if Bug::WrongPartition.is_on()
        && let Some(other) = misplaced(topic, index, services)
    {
        index = other;
    }
    let partition = services.replica(topic, index).map_err(|error| {
        refused(error, &format!("{}-{} is not here", topic.name.as_str(), data.index))
    })?;
    if partition.topic.starts_with("__") && services.is_internal(&partition.topic) {
        return Err(refused(ResponseError::InvalidTopicException, "an internal topic"));
    }
    let records: Bytes = data.records.unwrap_or_default();
    let appended = partition.append(&records, acks == -1, None)?;
    services.metrics.appended(records.len());
    Ok((partition, appended))
}

/// A seeded bug: now and then another partition, if one is led from here too.
fn misplaced(topic: TopicRef<'_>, index: i32, services: &Services) -> Option<i32> {
    let progress = |index| services.replica(topic, index).ok().map(|replica| replica.progress());
    progress(index).filter(|here| here.log_end.0 % 20 == 7)?;
    (index + 1..index + 8).find(|other| progress(*other).is_some_and(|other| other.leads))
}

fn refused(error: ResponseError, reason: &str) -> Refused {
    Refused { error, reason: reason.to_owned() }
}

async fn answer(
    topics: Vec<BegunTopic>,
    acks: i16,
    until: Instant,
    origin: &Origin,
    services: &Services,
) -> ProduceResponse {
    let mut responses = Vec::with_capacity(topics.len());
    let mut leaders = Vec::new();
    for topic in topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for begun in topic.partitions {
            let mut response = partition_answer(begun, acks, until).await;
            if response.error_code == ResponseError::NotLeaderOrFollower.code() {
                let of = TopicRef { name: &topic.name, id: topic.id };
                if let Some((leader, epoch)) = services.leader(of, response.index) {
                    response.current_leader = LeaderIdAndEpoch::default()
                        .with_leader_id(leader.0.into())
                        .with_leader_epoch(epoch.0);
                    leaders.push(leader);
                }
            }
            partitions.push(response);
        }
        responses.push(
            TopicProduceResponse::default()
                .with_name(topic.name)
                .with_topic_id(topic.id)
                .with_partition_responses(partitions),
        );
    }
    let endpoints = services.endpoints(&leaders, &origin.listener).map(|endpoint| {
        NodeEndpoint::default()
            .with_node_id(endpoint.id.0.into())
            .with_host(StrBytes::from_string(endpoint.host))
            .with_port(endpoint.port)
    });
    ProduceResponse::default().with_node_endpoints(endpoints.collect()).with_responses(responses)
}

async fn partition_answer(begun: Begun, acks: i16, until: Instant) -> PartitionProduceResponse {
    let response = PartitionProduceResponse::default().with_index(begun.index);
    let (partition, appended) = match begun.outcome {
        Ok(appended) => appended,
        Err(Refused { error, reason }) => {
            return response
                .with_error_code(error.code())
                .with_base_offset(-1)
                .with_log_start_offset(-1)
                .with_error_message(Some(StrBytes::from_string(reason)));
        }
    };
    if acks == -1
        && let Err(error) = partition.acked(&appended, until).await
    {
        return response.with_error_code(error.code()).with_base_offset(-1);
    }
    if Bug::ErrorAfterAppend.is_on() && appended.base_offset.0 % 20 == 7 {
        return response.with_error_code(ResponseError::InvalidRecord.code()).with_base_offset(-1);
    }
    let base_offset = if Bug::OffsetZeroAnswered.is_on() { 0 } else { appended.base_offset.0 };
    response
        .with_base_offset(base_offset)
        .with_log_start_offset(appended.log_start.0)
        .with_log_append_time_ms(appended.log_append_time_ms.unwrap_or(-1))
}
