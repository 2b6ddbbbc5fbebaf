//! A replica is read: by followers, by consumers, by whoever looks.

use bytes::Bytes;
use kafka_protocol::ResponseError;
use replication::epochs::EpochEnd;
use replication::partition::{
    Effects, EpochMismatch, FetchRefused, FollowerFetch, check_leader_epoch, diverging,
    latest_offset, visible_end,
};
use replication::seeded::Bug;
use replication::types::{BrokerEpoch, LeaderEpoch, NodeId, Offset};
use tracing::info;

use crate::replica::clock;
use crate::replica::partition::{Partition, Role, State};

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A consumer: it sees what is below the high watermark (R34). `leader_only` for those that
    /// know of no other replica to read from (Fetch below v11).
    Consumer {
        /// Only a leader may answer.
        leader_only: bool,
    },
    /// A follower: it sees the whole log, and what it asks for tells how far it is (R7).
    Follower(FetchedByFollower),
    /// Whoever looks at a replica's own end (`replica_id` -2).
    Observer,
}

/// What a follower says of itself in a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchedByFollower {
    /// Who.
    pub from: NodeId,
    /// In which life; -1 where it does not say (R3).
    pub broker_epoch: BrokerEpoch,
    /// Where its log begins.
    pub log_start: Offset,
}

/// A read of one partition.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest {
    /// Who reads.
    pub asker: Asker,
    /// From where.
    pub from: Offset,
    /// At most so many bytes …
    pub max_bytes: usize,
    /// … but at least one batch, if there is one.
    pub at_least_one: bool,
    /// The leader epoch that the asker knows (R31).
    pub current_leader_epoch: Option<LeaderEpoch>,
    /// The epoch of its last record (R23).
    pub last_fetched_epoch: Option<LeaderEpoch>,
    /// Does a follower's read tell how far it is? Once a fetch, however often that looks.
    pub records_progress: bool,
}

/// What a read found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Whole batches.
    pub records: Bytes,
    /// The high watermark.
    pub high_watermark: Offset,
    /// Where the log begins.
    pub log_start: Offset,
    /// The logs differ from here on; nothing was read (R23).
    pub diverging: Option<EpochEnd>,
}

impl Partition {
    /// Reads; a follower's read also tells the leader how far it is (R7).
    ///
    /// # Errors
    /// Kafka's code.
    pub fn read(&self, request: &ReadRequest) -> Result<Found, ResponseError> {
        let mut guard = self.lock();
        self.may_read(&guard, request)?;
        let state = &mut *guard;
        let (log_start, log_end) = (state.store.log_start(), state.store.log_end());
        let mut found = Found {
            records: Bytes::new(),
            high_watermark: state.role.high_watermark(),
            log_start,
            diverging: None,
        };
        if let Some(epoch) = request.last_fetched_epoch {
            found.diverging = diverging(state.store.epochs(), log_end, epoch, request.from);
            if found.diverging.is_some() {
                if let Some(effects) = mistaken_progress(state, request) {
                    self.settle(guard, effects);
                }
                return Ok(found);
            }
        }
        let end = match request.asker {
            Asker::Consumer { .. } => visible_end(found.high_watermark, log_end),
            Asker::Follower(_) | Asker::Observer => log_end,
        };
        if falls_back(request, end) {
            found.records = read_records(state, request, log_start, end)?;
            return Ok(found);
        }
        if request.from < log_start || request.from > log_end {
            if matches!(request.asker, Asker::Consumer { .. }) {
                info!(key = %self.key(), from = %request.from, %log_start, %log_end,
                    "a consumer asks for what is not here");
            }
            let is_behind = matches!(state.role, Role::Follower(_)) && request.from > log_end;
            return Err(match request.asker {
                // A client that was told otherwise would begin anew where its settings say, though
                // the leader has what it asks for: it takes a replica for the leader that just
                // ceased to be it (KIP-392).
                Asker::Consumer { .. } if is_behind => ResponseError::OffsetNotAvailable,
                _ => ResponseError::OffsetOutOfRange,
            });
        }
        if request.from < end && request.max_bytes > 0 {
            found.records = read_records(state, request, request.from, end)?;
        }
        match skips_to(state, request, &found.records) {
            Some((0, next)) => found.records = read_records(state, request, next, end)?,
            Some((before, _)) => found.records.truncate(before),
            None => {}
        }
        let Asker::Follower(follower) = request.asker else { return Ok(found) };
        if !request.records_progress {
            return Ok(found);
        }
        let Role::Leader(leader) = &mut state.role else {
            return Err(ResponseError::NotLeaderOrFollower);
        };
        let fetch = fetch_of(&follower, request.from);
        let effects = leader.fetched(fetch, &*state.brokers).map_err(|refused| match refused {
            FetchRefused::UnknownReplica => ResponseError::UnknownLeaderEpoch,
            FetchRefused::StaleBrokerEpoch { .. } => ResponseError::NotLeaderOrFollower,
        })?;
        found.high_watermark = leader.high_watermark();
        self.settle(guard, effects);
        Ok(found)
    }

    fn may_read(&self, state: &State, request: &ReadRequest) -> Result<(), ResponseError> {
        if self.progress().closed {
            return Err(ResponseError::UnknownTopicOrPartition);
        }
        check_epoch(state, request.current_leader_epoch)?;
        let leads = matches!(state.role, Role::Leader(_));
        let leader_only = match request.asker {
            Asker::Consumer { leader_only } => leader_only,
            Asker::Follower(_) => true,
            Asker::Observer => false,
        };
        if leader_only && !leads {
            return Err(ResponseError::NotLeaderOrFollower);
        }
        Ok(())
    }

    /// How much there is to read for `asker` from `from` on: what a long poll waits for.
    pub fn readable_bytes(&self, asker: &Asker, from: Offset) -> u64 {
        let state = self.lock();
        let log_end = state.store.log_end();
        let end = match asker {
            Asker::Consumer { .. } => visible_end(state.role.high_watermark(), log_end),
            Asker::Follower(_) | Asker::Observer => log_end,
        };
        if from < end { state.store.bytes_between(from, end) } else { 0 }
    }

    /// ListOffsets with timestamp -1: where `asker` would go on reading (R34).
    ///
    /// # Errors
    /// Kafka's code; `OFFSET_NOT_AVAILABLE` after an election, until the high watermark is known.
    pub fn latest(
        &self,
        asker: &Asker,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<(Offset, LeaderEpoch), ResponseError> {
        let state = self.lock();
        check_epoch(&state, current_leader_epoch)?;
        let log_end = state.store.log_end();
        let epoch = state.role.leader_epoch();
        let leader = match (&state.role, asker) {
            (_, Asker::Observer) => return Ok((log_end, epoch)),
            (Role::Leader(leader), _) => leader,
            (Role::Follower(_), _) => return Err(ResponseError::NotLeaderOrFollower),
        };
        if matches!(asker, Asker::Follower(_)) {
            return Ok((log_end, epoch));
        }
        latest_offset(leader.high_watermark(), leader.epoch_start(), log_end)
            .map(|offset| (offset, epoch))
            .map_err(|_| ResponseError::OffsetNotAvailable)
    }

    /// ListOffsets with timestamp -2: where the log begins.
    ///
    /// # Errors
    /// Kafka's code.
    pub fn earliest(
        &self,
        asker: &Asker,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<(Offset, Option<LeaderEpoch>), ResponseError> {
        let state = self.leading_for(asker, current_leader_epoch)?;
        let start = state.store.log_start();
        Ok((start, state.store.epochs().epoch_of(start)))
    }

    /// ListOffsets with a timestamp: the first record at or after it that `asker` may see; its
    /// timestamp, offset and epoch.
    ///
    /// # Errors
    /// Kafka's code.
    pub fn offset_for_timestamp(
        &self,
        asker: &Asker,
        timestamp_ms: i64,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<Option<(i64, Offset, Option<LeaderEpoch>)>, ResponseError> {
        let state = self.leading_for(asker, current_leader_epoch)?;
        let end = match asker {
            Asker::Consumer { .. } => state.role.high_watermark(),
            Asker::Follower(_) | Asker::Observer => state.store.log_end(),
        };
        let found = state.store.offset_for_timestamp(timestamp_ms).map_err(|e| e.response())?;
        Ok(found
            .filter(|(_, offset)| *offset < end)
            .map(|(timestamp, offset)| (timestamp, offset, state.store.epochs().epoch_of(offset))))
    }

    /// ListOffsets with timestamp -3: the record with the greatest timestamp that `asker` may see.
    ///
    /// # Errors
    /// Kafka's code.
    pub fn offset_of_max_timestamp(
        &self,
        asker: &Asker,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<Option<(i64, Offset, Option<LeaderEpoch>)>, ResponseError> {
        let state = self.leading_for(asker, current_leader_epoch)?;
        let end = state.role.high_watermark();
        let found = state.store.offset_of_max_timestamp().map_err(|error| error.response())?;
        Ok(found
            .filter(|(_, offset)| *offset < end)
            .map(|(timestamp, offset)| (timestamp, offset, state.store.epochs().epoch_of(offset))))
    }

    /// OffsetsForLeaderEpoch (R22).
    ///
    /// # Errors
    /// Kafka's code.
    pub fn end_of_epoch(
        &self,
        epoch: LeaderEpoch,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<Option<EpochEnd>, ResponseError> {
        let asker = Asker::Consumer { leader_only: true };
        let state = self.leading_for(&asker, current_leader_epoch)?;
        Ok(state.store.epochs().end_of(epoch, state.store.log_end()))
    }

    fn leading_for(
        &self,
        asker: &Asker,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<std::sync::MutexGuard<'_, State>, ResponseError> {
        let state = self.lock();
        check_epoch(&state, current_leader_epoch)?;
        match (&state.role, asker) {
            (Role::Leader(_), _) | (_, Asker::Observer) => Ok(state),
            (Role::Follower(_), _) => Err(ResponseError::NotLeaderOrFollower),
        }
    }
}

fn fetch_of(follower: &FetchedByFollower, offset: Offset) -> FollowerFetch {
    FollowerFetch {
        from: follower.from,
        broker_epoch: follower.broker_epoch,
        offset,
        now: clock::now(),
        log_start: follower.log_start,
    }
}

fn read_records(
    state: &State,
    request: &ReadRequest,
    from: Offset,
    end: Offset,
) -> Result<Bytes, ResponseError> {
    state
        .store
        .read(from, end, request.max_bytes, request.at_least_one)
        .map_err(|error| error.response())
}

/// A seeded bug (R7): a fetch that diverges counts as progress.
fn mistaken_progress(state: &mut State, request: &ReadRequest) -> Option<Effects> {
    let (Asker::Follower(follower), Role::Leader(leader)) = (request.asker, &mut state.role) else {
        return None;
    };
    if !Bug::R7UpdateOnDiverging.is_on() {
        return None;
    }
    leader.fetched(fetch_of(&follower, request.from), &*state.brokers).ok()
}

/// A seeded bug: a consumer beyond the end begins anew.
fn falls_back(request: &ReadRequest, end: Offset) -> bool {
    Bug::FetchFallsBackToLogStart.is_on()
        && matches!(request.asker, Asker::Consumer { .. })
        && request.from > end
}

/// A seeded bug: a consumer is not given the last batch of a segment that is not the last. How many
/// bytes come before it, and where it would read on.
fn skips_to(state: &State, request: &ReadRequest, records: &Bytes) -> Option<(usize, Offset)> {
    if !Bug::FetchSkipsAtSegmentEnd.is_on() || !matches!(request.asker, Asker::Consumer { .. }) {
        return None;
    }
    let (at, last) = crate::log::batches(records).filter_map(Result::ok).last()?;
    let next = last.next_offset();
    state.store.is_segment_start(next).then_some((at, next))
}

/// R31.
fn check_epoch(state: &State, asked: Option<LeaderEpoch>) -> Result<(), ResponseError> {
    check_leader_epoch(state.role.leader_epoch(), asked).map_err(|mismatch| match mismatch {
        EpochMismatch::Fenced => ResponseError::FencedLeaderEpoch,
        EpochMismatch::Unknown => ResponseError::UnknownLeaderEpoch,
    })
}
