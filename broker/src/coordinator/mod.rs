//! Consumer groups, the classic protocol: who is in a group, who gets what, and how far they are.
//!
//! | subject | module |
//! |---|---|
//! | a group: members, generations, rebalances | [`group`] |
//! | what of it lies in the topic of groups, in Kafka's formats | [`records`] |
//! | joining, syncing, heartbeats, leaving | `membership` |
//! | offsets: committed, fetched, deleted | `offsets` |
//! | describing, listing, deleting groups | `listing` |
//! | partitions of the topic taken over and given up | `loading` |
#![allow(clippy::unused_async, reason = "every handler has the same shape")]

pub mod group;
mod listing;
mod loading;
mod membership;
mod offsets;
pub mod records;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::protocol::StrBytes;
use replication::types::{LeaderEpoch, Offset};
use tokio::sync::Notify;

use group::Group;

/// Where groups are kept: a replicated topic.
#[async_trait]
pub trait OffsetsTopic: Send + Sync + 'static {
    /// How many partitions it has; 0: it is not there.
    fn partitions(&self) -> i32;

    /// Appends to a partition, in this leader epoch alone; returns once that is committed.
    ///
    /// # Errors
    /// [`StoreError`]: nobody may count on it.
    async fn append(
        &self,
        partition: i32,
        leader_epoch: LeaderEpoch,
        records: Vec<(Bytes, Option<Bytes>)>,
    ) -> Result<(), StoreError>;

    /// Some records of a partition from `from` on, and where to go on; none at the end.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn read(
        &self,
        partition: i32,
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
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self {
            initial_rebalance_delay: Duration::from_secs(3),
            min_session: Duration::from_secs(6),
            max_session: Duration::from_secs(1800),
            max_size: usize::MAX,
            metadata_max_bytes: 4096,
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

/// The groups of one partition of the topic.
#[derive(Debug)]
struct Shard {
    epoch: LeaderEpoch,
    loaded: bool,
    groups: BTreeMap<String, Group>,
    offsets: BTreeMap<String, BTreeMap<Place, Committed>>,
}

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
        work(partition, shard)
    }
}

#[cfg(test)]
mod tests;
