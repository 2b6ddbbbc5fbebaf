//! A replica follows: it appends what its leader has, cuts off what its leader does not have,
//! and takes over the high watermark.

use bytes::Bytes;
use replication::epochs::EpochEnd;
use replication::partition::{
    Truncation, follower_high_watermark, on_becoming_follower, on_diverging,
};
use replication::seeded::Bug;
use replication::types::{LeaderEpoch, NodeId, Offset};
use tracing::{debug, info};

use crate::replica::partition::{Follower, Partition, Role, State};
use crate::replica::store::StoreError;

/// From where a follower fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FetchFrom {
    /// Its log's end.
    pub offset: Offset,
    /// The epoch of its last record; none: its log is empty, or from before epochs.
    pub last_epoch: Option<LeaderEpoch>,
    /// Where its log begins.
    pub log_start: Offset,
}

/// What a leader answered for one partition.
#[derive(Clone, Debug)]
pub(super) struct FromLeader {
    /// Whole batches from the offset on that was asked for.
    pub records: Bytes,
    /// The leader's high watermark.
    pub high_watermark: Offset,
    /// Where the leader's log begins.
    pub log_start: Offset,
}

impl Partition {
    /// From where it fetches from `leader` in `epoch`; `None` if it does not follow that one (any
    /// more).
    pub(super) fn fetch_from(&self, leader: NodeId, epoch: LeaderEpoch) -> Option<FetchFrom> {
        let state = self.lock();
        following(&state, leader, epoch)?;
        Some(place(&state))
    }

    /// It begins to follow: without a known epoch there is nothing to compare, and only what is
    /// below the high watermark is safe (R26).
    ///
    /// # Errors
    /// The disk.
    pub(super) fn begin_following(
        &self,
        leader: NodeId,
        epoch: LeaderEpoch,
    ) -> Result<(), StoreError> {
        let mut state = self.lock();
        let Some(follower) = following(&state, leader, epoch) else { return Ok(()) };
        let truncation = on_becoming_follower(
            state.store.epochs(),
            state.store.log_end(),
            follower.high_watermark,
        );
        self.truncate(&mut state, truncation, "no epoch is known, so only what was committed stays")
    }

    /// The leader says that the logs differ (R23); the follower cuts its own, and clamps its high
    /// watermark only then (R33): what the leader said of its own beside that does not count.
    ///
    /// # Errors
    /// The disk.
    pub(super) fn diverged(
        &self,
        leader: NodeId,
        epoch: LeaderEpoch,
        from: FetchFrom,
        answer: EpochEnd,
        leader_high_watermark: Offset,
    ) -> Result<(), StoreError> {
        let mut state = self.lock();
        let Some(follower) = following(&state, leader, epoch) else { return Ok(()) };
        if place(&state) != from {
            // An answer about a log that is another by now could cut what was acknowledged since.
            return Ok(());
        }
        let truncation = on_diverging(
            state.store.epochs(),
            state.store.log_end(),
            follower.high_watermark,
            answer,
        );
        let why = format!("the leader's epoch {} ends at {}", answer.epoch, answer.end);
        let log_end = state.store.log_end();
        self.truncate(&mut state, truncation, &why)?;
        if Bug::R33BeforeTruncating.is_on()
            && let Role::Follower(follower) = &mut state.role
        {
            follower.high_watermark = leader_high_watermark.min(log_end);
        }
        Ok(())
    }

    fn truncate(
        &self,
        state: &mut State,
        truncation: Truncation,
        why: &str,
    ) -> Result<(), StoreError> {
        let Truncation::To { offset, .. } = truncation else { return Ok(()) };
        let from = state.store.log_end();
        if offset >= from {
            // This replica led for a while without an append: its epoch is nobody else's, and as
            // long as it stands at the log's end the logs would seem to differ.
            return state.store.truncate_to(offset);
        }
        info!(
            key = self.key(),
            leader_epoch = state.role.leader_epoch().0,
            %from,
            to = %offset,
            why,
            "truncates"
        );
        state.store.truncate_to(offset)?;
        let log_end = state.store.log_end();
        if let Role::Follower(follower) = &mut state.role {
            follower.high_watermark = follower.high_watermark.min(log_end);
        }
        self.publish(state);
        Ok(())
    }

    /// The leader's log begins beyond this log's end, or this log reaches beyond the leader's:
    /// begins anew at `offset`.
    ///
    /// # Errors
    /// The disk.
    pub(super) fn begin_anew(
        &self,
        leader: NodeId,
        epoch: LeaderEpoch,
        offset: Offset,
    ) -> Result<(), StoreError> {
        let mut state = self.lock();
        let Some(_) = following(&state, leader, epoch) else { return Ok(()) };
        info!(
            key = self.key(),
            leader_epoch = epoch.0,
            was = %state.store.log_end(),
            now = %offset,
            "begins its log anew where the leader's begins"
        );
        state.store.start_anew_at(offset)?;
        if let Role::Follower(follower) = &mut state.role {
            follower.high_watermark = offset;
        }
        self.publish(&state);
        Ok(())
    }

    /// Appends what `leader` answered to a fetch from `from`, and takes over its high watermark
    /// (R20, R33). Whether anything was appended.
    ///
    /// # Errors
    /// The disk, or records that do not continue this log.
    pub(super) fn fetched(
        &self,
        leader: NodeId,
        epoch: LeaderEpoch,
        from: FetchFrom,
        answer: &FromLeader,
    ) -> Result<bool, StoreError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if following(state, leader, epoch).is_none() || place(state) != from {
            // It is another's follower now, or its log was cut: the answer is about the past.
            return Ok(false);
        }
        let grown = !answer.records.is_empty();
        if grown {
            state.store.append_fetched(&answer.records)?;
        }
        let (log_start, log_end) = (state.store.log_start(), state.store.log_end());
        if let Role::Follower(follower) = &mut state.role {
            let taken = follower_high_watermark(
                follower.high_watermark,
                answer.high_watermark,
                log_start,
                log_end,
            );
            if taken.regressed {
                debug!(
                    key = self.key(),
                    leader_epoch = epoch.0,
                    was = %follower.high_watermark,
                    now = %taken.value,
                    "the high watermark falls, as the leader says"
                );
            }
            follower.high_watermark = taken.value;
            let start = answer.log_start.min(taken.value);
            if start > log_start {
                state.store.advance_log_start(start)?;
            }
        }
        self.publish(&guard);
        Ok(grown)
    }
}

/// From where a replica would fetch.
fn place(state: &State) -> FetchFrom {
    FetchFrom {
        offset: state.store.log_end(),
        last_epoch: state.store.epochs().latest().map(|latest| latest.epoch),
        log_start: state.store.log_start(),
    }
}

fn following(state: &State, leader: NodeId, epoch: LeaderEpoch) -> Option<&Follower> {
    match &state.role {
        Role::Follower(follower)
            if follower.leader == Some(leader) && follower.leader_epoch == epoch =>
        {
            Some(follower)
        }
        _ => None,
    }
}
