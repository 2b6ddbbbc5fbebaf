//! Consumer groups, the classic protocol: who is in a group, who gets what, and how far they are.
//!
//! | subject | module |
//! |---|---|
//! | a group: members, generations, rebalances | [`group`] |
//! | what of it lies in the topic of groups, in Kafka's formats | [`records`] |
//! | the groups of one partition: committed, and on its way there | `shard` |
//! | joining, syncing, heartbeats, leaving | `membership` |
//! | offsets: committed, fetched, deleted | `offsets` |
//! | and forgotten when nobody uses them | `expiry` |
//! | describing, listing, deleting groups | `listing` |
//! | partitions of the topic taken over and given up | `loading` |
#![allow(clippy::unused_async, reason = "every handler has the same shape")]

mod expiry;
pub mod group;
mod listing;
mod loading;
mod membership;
mod offsets;
pub mod records;
mod shard;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::protocol::StrBytes;
use replication::types::{LeaderEpoch, Offset};
use tokio::sync::Notify;
use tokio::time::Instant;

use shard::{Change, Record, Shard};

/// Where groups are kept: a replicated topic.
#[async_trait]
pub trait OffsetsTopic: Send + Sync + 'static {
    /// How many partitions it has; 0: it is not there.
    fn partitions(&self) -> i32;

    /// Appends to a partition, in this leader epoch alone, behind whatever was appended before; where
    /// its log ends then. It is not committed yet.
    ///
    /// # Errors
    /// [`StoreError`]: nothing was appended.
    fn append(
        &self,
        partition: i32,
        leader_epoch: LeaderEpoch,
        records: Vec<(Bytes, Option<Bytes>)>,
    ) -> Result<Offset, StoreError>;

    /// Up to where a partition is committed.
    ///
    /// # Errors
    /// [`StoreError`]: this node does not lead it in this epoch (any more).
    fn committed(&self, partition: i32, leader_epoch: LeaderEpoch) -> Result<Offset, StoreError>;

    /// Waits until everything below `end` is committed.
    ///
    /// # Errors
    /// [`StoreError`]: nobody may count on it; it may be committed later.
    async fn await_committed(
        &self,
        partition: i32,
        leader_epoch: LeaderEpoch,
        end: Offset,
    ) -> Result<(), StoreError>;

    /// Some records of a partition from `from` on, committed or not, and where to go on; none at
    /// the end. In this leader epoch alone.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn read(
        &self,
        partition: i32,
        leader_epoch: LeaderEpoch,
        from: Offset,
    ) -> Result<(Vec<StoredRecord>, Offset), StoreError>;
}

/// Why the topic of groups did not take, or give, records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreError(pub ResponseError);

impl StoreError {
    /// What a client of the group is told.
    pub const fn response(self) -> ResponseError {
        match self.0 {
            ResponseError::NotLeaderOrFollower | ResponseError::UnknownTopicOrPartition => {
                ResponseError::NotCoordinator
            }
            ResponseError::NotEnoughReplicas
            | ResponseError::NotEnoughReplicasAfterAppend
            | ResponseError::RequestTimedOut => ResponseError::CoordinatorNotAvailable,
            ResponseError::MessageTooLarge => ResponseError::InvalidCommitOffsetSize,
            other => other,
        }
    }
}

/// A record of the topic of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// Where it lies.
    pub offset: Offset,
    /// Of what.
    pub key: Option<Bytes>,
    /// What; `None`: it is gone.
    pub value: Option<Bytes>,
    /// When it was written.
    pub timestamp_ms: i64,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// In which version of the API.
    pub api_version: i16,
    /// What the client calls itself.
    pub client_id: String,
    /// From where.
    pub client_host: String,
}

/// What the coordinator is told, with Kafka's defaults.
#[derive(Clone, Debug)]
pub struct GroupSettings {
    /// `group.initial.rebalance.delay.ms`.
    pub initial_rebalance_delay: Duration,
    /// `group.min.session.timeout.ms`.
    pub min_session: Duration,
    /// `group.max.session.timeout.ms`.
    pub max_session: Duration,
    /// `group.max.size`.
    pub max_size: usize,
    /// `offset.metadata.max.bytes`.
    pub metadata_max_bytes: usize,
    /// `offsets.retention.minutes`.
    pub offsets_retention: Duration,
    /// `offsets.retention.check.interval.ms`.
    pub retention_check: Duration,
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self {
            initial_rebalance_delay: Duration::from_secs(3),
            min_session: Duration::from_secs(6),
            max_session: Duration::from_secs(1800),
            max_size: usize::MAX,
            metadata_max_bytes: 4096,
            offsets_retention: Duration::from_secs(7 * 24 * 3600),
            retention_check: Duration::from_secs(600),
        }
    }
}

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The next offset to read.
    pub offset: i64,
    /// The leader epoch of the record before; -1: not told.
    pub leader_epoch: i32,
    /// What the client added.
    pub metadata: String,
    /// When.
    pub timestamp_ms: i64,
}

/// Topic and partition.
type Place = (String, i32);

/// Coordinates the groups whose partitions this node leads.
pub struct Coordinator {
    settings: GroupSettings,
    store: Arc<dyn OffsetsTopic>,
    shards: Mutex<BTreeMap<i32, Shard>>,
    /// Deadlines have changed.
    changed: Notify,
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coordinator").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A text of an answer.
fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

/// The partition that keeps `group`: as Kafka, the group's hash in Java.
pub fn partition_for(group: &str, partitions: i32) -> i32 {
    let hash = group
        .encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    if partitions <= 0 { 0 } else { (hash & i32::MAX) % partitions }
}

impl Coordinator {
    /// Without groups yet. Starts the clock of sessions and rebalances.
    pub fn new(settings: GroupSettings, store: Arc<dyn OffsetsTopic>) -> Arc<Self> {
        let coordinator =
            Arc::new(Self { settings, store, shards: Mutex::default(), changed: Notify::new() });
        tokio::spawn(membership::watch_deadlines(Arc::downgrade(&coordinator)));
        let check = coordinator.settings.retention_check;
        tokio::spawn(expiry::run(Arc::downgrade(&coordinator), check));
        coordinator
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i32, Shard>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn partition_of(&self, group: &str) -> i32 {
        partition_for(group, self.store.partitions())
    }

    /// Works on the shard of `group`.
    ///
    /// # Errors
    /// That it is not here, or not yet.
    fn with_shard<T>(
        &self,
        group: &str,
        work: impl FnOnce(i32, &mut Shard) -> Result<T, ResponseError>,
    ) -> Result<T, ResponseError> {
        if group.is_empty() {
            return Err(ResponseError::InvalidGroupId);
        }
        let partition = self.partition_of(group);
        let mut shards = self.lock();
        let shard = shards.get_mut(&partition).ok_or(ResponseError::NotCoordinator)?;
        if !shard.loaded {
            return Err(ResponseError::CoordinatorLoadInProgress);
        }
        self.settle(partition, shard)?;
        work(partition, shard)
    }

    /// Makes what is committed by now.
    ///
    /// # Errors
    /// That the groups are elsewhere by now.
    fn settle(&self, partition: i32, shard: &mut Shard) -> Result<(), ResponseError> {
        let committed =
            self.store.committed(partition, shard.epoch).map_err(StoreError::response)?;
        shard.settle(committed, Instant::now());
        Ok(())
    }

    /// Appends `records`, which make `changes` once they are committed; what to wait for.
    ///
    /// # Errors
    /// What the client is told: nothing was appended.
    fn write(
        &self,
        partition: i32,
        shard: &mut Shard,
        records: Vec<Record>,
        changes: Vec<Change>,
    ) -> Result<Written, ResponseError> {
        let epoch = shard.epoch;
        let end = self.store.append(partition, epoch, records).map_err(StoreError::response)?;
        shard.wrote(end, changes);
        Ok(Written { partition, epoch, end })
    }

    /// Appends any number of `changes` to offsets and of groups that are gone, some at a time; what
    /// to wait for.
    ///
    /// # Errors
    /// What the client is told: some may have been appended, and are made in time.
    fn write_all(
        &self,
        partition: i32,
        shard: &mut Shard,
        changes: &[Change],
    ) -> Result<Option<Written>, ResponseError> {
        let mut last = None;
        for some in changes.chunks(expiry::MOST_IN_BATCH) {
            let records = some.iter().map(|change| change.record(None)).collect();
            last = Some(self.write(partition, shard, records, some.to_vec())?);
        }
        Ok(last)
    }

    /// Waits until what was written is committed, and made.
    ///
    /// # Errors
    /// What the client is told. It may be committed later all the same, and is made then.
    async fn kept(&self, written: Written) -> Result<(), ResponseError> {
        let Written { partition, epoch, end } = written;
        let kept = self.store.await_committed(partition, epoch, end).await;
        let mut shards = self.lock();
        let shard = shards.get_mut(&partition).filter(|shard| shard.epoch == epoch);
        let settled = match shard {
            Some(shard) => self.settle(partition, shard),
            None => Err(ResponseError::NotCoordinator),
        };
        kept.map_err(StoreError::response).and(settled)
    }
}

/// What was appended, and where.
#[derive(Clone, Copy, Debug)]
struct Written {
    partition: i32,
    epoch: LeaderEpoch,
    end: Offset,
}

#[cfg(test)]
mod tests;
