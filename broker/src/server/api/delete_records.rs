//! DeleteRecords: a log begins later from now on.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use replication::types::Offset;
use tokio::time::Instant;
use uuid::Uuid;

use crate::server::dispatch::Arrived;
use crate::server::services::{Services, TopicRef};

/// Answers when every live replica begins there as well.
pub(in crate::server) async fn handle(
    request: DeleteRecordsRequest,
    _arrived: &Arrived,
    services: &Arc<Services>,
) -> DeleteRecordsResponse {
    let limit = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let until = Instant::now() + limit;
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let of = TopicRef { name: &topic.name, id: Uuid::nil() };
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            let outcome = delete(of, asked.partition_index, asked.offset, until, services).await;
            let result =
                DeleteRecordsPartitionResult::default().with_partition_index(asked.partition_index);
            partitions.push(match outcome {
                Ok(start) => result.with_low_watermark(start.0),
                Err(error) => result.with_low_watermark(-1).with_error_code(error.code()),
            });
        }
        topics.push(
            DeleteRecordsTopicResult::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions),
        );
    }
    DeleteRecordsResponse::default().with_topics(topics)
}

async fn delete(
    topic: TopicRef<'_>,
    index: i32,
    offset: i64,
    until: Instant,
    services: &Services,
) -> Result<Offset, ResponseError> {
    let replica = services.replica(topic, index)?;
    if services.is_internal(&replica.topic) {
        return Err(ResponseError::PolicyViolation);
    }
    // -1 means: everything that is committed.
    let before = (offset >= 0).then_some(Offset(offset));
    let start = replica.delete_records(before)?;
    replica.await_log_start(start, until).await
}
