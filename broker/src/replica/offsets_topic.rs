//! The topic of groups, as the coordinator uses it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::records::{
    Compression, Record, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};
use replication::types::{LeaderEpoch, Offset};
use tokio::time::Instant;

use crate::coordinator::{OffsetsTopic, StoreError, StoredRecord};
use crate::replica::{Asker, Partition, ReadRequest, Replicas, clock};

/// The topic in which groups keep their offsets.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";
/// Read at once while a coordinator loads.
const CHUNK_BYTES: usize = 1024 * 1024;

/// The replicas of [`OFFSETS_TOPIC`] on this node.
#[derive(Debug)]
pub struct ReplicatedOffsets {
    replicas: Arc<Replicas>,
    /// `offsets.commit.timeout.ms`.
    commit_limit: Duration,
}

impl ReplicatedOffsets {
    /// Keeps offsets in `replicas`; a commit is replicated within `commit_limit` or fails.
    pub const fn new(replicas: Arc<Replicas>, commit_limit: Duration) -> Self {
        Self { replicas, commit_limit }
    }

    fn replica(&self, partition: i32) -> Result<Arc<Partition>, StoreError> {
        self.replicas
            .by_name(OFFSETS_TOPIC, partition)
            .ok_or(StoreError(ResponseError::NotCoordinator))
    }
}

#[async_trait]
impl OffsetsTopic for ReplicatedOffsets {
    fn partitions(&self) -> i32 {
        self.replicas.partition_count(OFFSETS_TOPIC)
    }

    fn append(
        &self,
        partition: i32,
        leader_epoch: LeaderEpoch,
        records: Vec<(Bytes, Option<Bytes>)>,
    ) -> Result<Offset, StoreError> {
        let replica = self.replica(partition)?;
        let batch = encode(records)?;
        let appended = replica
            .append(&batch, true, Some(leader_epoch))
            .map_err(|refused| StoreError(refused.error))?;
        Ok(appended.required)
    }

    fn committed(&self, partition: i32, leader_epoch: LeaderEpoch) -> Result<Offset, StoreError> {
        let progress = self.replica(partition)?.progress();
        if progress.closed || !progress.leads || progress.leader_epoch != leader_epoch {
            return Err(StoreError(ResponseError::NotLeaderOrFollower));
        }
        Ok(progress.high_watermark)
    }

    async fn await_committed(
        &self,
        partition: i32,
        leader_epoch: LeaderEpoch,
        end: Offset,
    ) -> Result<(), StoreError> {
        let until = Instant::now() + self.commit_limit;
        self.replica(partition)?.counts(leader_epoch, end, until).await.map_err(StoreError)
    }

    async fn read(
        &self,
        partition: i32,
        leader_epoch: LeaderEpoch,
        from: Offset,
    ) -> Result<(Vec<StoredRecord>, Offset), StoreError> {
        let replica = self.replica(partition)?;
        let asker = Asker::Observer;
        let (start, _) = replica.earliest(&asker, None).map_err(StoreError)?;
        let from = from.max(start);
        let found = replica
            .read(&ReadRequest {
                asker,
                from,
                max_bytes: CHUNK_BYTES,
                at_least_one: true,
                current_leader_epoch: Some(leader_epoch),
                last_fetched_epoch: None,
                records_progress: false,
            })
            .map_err(StoreError)?;
        decode(found.records, from)
    }
}

fn encode(records: Vec<(Bytes, Option<Bytes>)>) -> Result<Bytes, StoreError> {
    let now = clock::wall_ms();
    let records: Vec<Record> = records
        .into_iter()
        .zip(0_i32..)
        .map(|((key, value), offset)| Record {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: -1,
            producer_id: -1,
            producer_epoch: -1,
            timestamp_type: TimestampType::Creation,
            offset: i64::from(offset),
            // Offsets and sequences in step make one batch; it says -1, no producer.
            sequence: offset - 1,
            timestamp: now,
            key: Some(key),
            value,
            headers: kafka_protocol::indexmap::IndexMap::default(),
        })
        .collect();
    let options = RecordEncodeOptions { version: 2, compression: Compression::None };
    let mut batch = BytesMut::new();
    RecordBatchEncoder::encode(&mut batch, &records, &options)
        .map_err(|_| StoreError(ResponseError::UnknownServerError))?;
    Ok(batch.freeze())
}

fn decode(mut batches: Bytes, from: Offset) -> Result<(Vec<StoredRecord>, Offset), StoreError> {
    let damaged = |_| StoreError(ResponseError::CorruptMessage);
    let mut next = from;
    let mut stored = Vec::new();
    while !batches.is_empty() {
        let set = RecordBatchDecoder::decode(&mut batches).map_err(damaged)?;
        for record in set.records {
            let offset = Offset(record.offset);
            next = next.max(offset + 1);
            if offset < from || record.control {
                continue;
            }
            stored.push(StoredRecord {
                offset,
                key: record.key,
                value: record.value,
                timestamp_ms: record.timestamp,
            });
        }
    }
    Ok((stored, next))
}
