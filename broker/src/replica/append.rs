//! A leader appends, and its writers wait until their records count as written.

use bytes::Bytes;
use kafka_protocol::ResponseError;
use replication::partition::Acked;
use replication::seeded::Bug;
use replication::types::{LeaderEpoch, Offset};
use tokio::time::{Instant, timeout_at};

use crate::replica::clock;
use crate::replica::partition::{Partition, Role};
use crate::replica::store::{Checked, StoreError};

/// What a leader answers to an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record; of the earlier one, if it was there already.
    pub base_offset: Offset,
    /// The log's end must be replicated up to here for the write to count under acks=all.
    pub required: Offset,
    /// The leader epoch in which it was appended; in another one, nobody can say any more.
    pub leader_epoch: LeaderEpoch,
    /// Where the log begins.
    pub log_start: Offset,
    /// The broker's time, where the topic's records carry that.
    pub log_append_time_ms: Option<i64>,
}

/// Why nothing was appended, and for whom: the code for the client, words for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Kafka's error.
    pub error: ResponseError,
    /// What was wrong.
    pub reason: String,
}

impl Refused {
    pub(super) fn new(error: ResponseError, reason: impl Into<String>) -> Self {
        Self { error, reason: reason.into() }
    }
}

impl Partition {
    /// Appends `records`, complete v2 batches from a producer. With `acks_all`, only if enough
    /// replicas are in sync (R19). With `epoch`, only in that leader epoch.
    ///
    /// # Errors
    /// [`Refused`]: nothing was appended.
    pub fn append(
        &self,
        records: &Bytes,
        acks_all: bool,
        epoch: Option<LeaderEpoch>,
    ) -> Result<Appended, Refused> {
        // What takes long is done outside the lock.
        let settings = self.lock().settings.log.clone();
        let checked = Checked::new(records.clone(), &settings).map_err(|error| refused(&error))?;
        let mut guard = self.lock();
        let state = &mut *guard;
        let Role::Leader(leader) = &mut state.role else {
            return Err(Refused::new(
                ResponseError::NotLeaderOrFollower,
                "this replica does not lead",
            ));
        };
        let leader_epoch = leader.leader_epoch();
        if epoch.is_some_and(|epoch| epoch != leader_epoch) {
            return Err(Refused::new(
                ResponseError::NotLeaderOrFollower,
                format!("the leader epoch is {leader_epoch} now"),
            ));
        }
        if acks_all && let Some(few) = leader.refuse_acks_all() {
            return Err(Refused::new(
                ResponseError::NotEnoughReplicas,
                format!("{} replicas are in sync, and at least {} must be", few.in_sync, few.min),
            ));
        }
        let written = state
            .store
            .append(&checked, leader_epoch, clock::wall_ms())
            .inspect_err(|error| self.wrote_nothing(error))
            .map_err(|error| refused(&error))?;
        let appended = Appended {
            base_offset: written.base_offset,
            required: written.last_offset + 1,
            leader_epoch,
            log_start: state.store.log_start(),
            log_append_time_ms: written.log_append_time_ms,
        };
        if self.fsync {
            self.publish(&guard);
            drop(guard);
            self.wants_sync();
        } else {
            let effects = leader.appended(state.store.log_end(), clock::now(), &*state.brokers);
            self.settle(guard, effects);
        }
        Ok(appended)
    }

    /// Waits until `appended` counts under acks=all, no longer than `until`.
    ///
    /// # Errors
    /// Kafka's code for how it stands: the record is in this log, and its fate is open.
    pub async fn acked(&self, appended: &Appended, until: Instant) -> Result<(), ResponseError> {
        if Bug::AckBeforeReplication.is_on() {
            return Ok(());
        }
        self.counts(appended.leader_epoch, appended.required, until).await
    }

    /// Waits until everything below `end` counts under acks=all, in this leader epoch and no longer
    /// than `until`.
    ///
    /// # Errors
    /// As [`Partition::acked`].
    pub async fn counts(
        &self,
        leader_epoch: LeaderEpoch,
        end: Offset,
        until: Instant,
    ) -> Result<(), ResponseError> {
        let mut progress = self.watch();
        loop {
            let seen = *progress.borrow_and_update();
            if seen.closed || !seen.leads || seen.leader_epoch != leader_epoch {
                return Err(ResponseError::NotLeaderOrFollower);
            }
            if seen.high_watermark >= end {
                return self.judge(leader_epoch, end);
            }
            match timeout_at(until, progress.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(ResponseError::NotLeaderOrFollower),
                Err(_) => return Err(ResponseError::RequestTimedOut),
            }
        }
    }

    /// R19: enough replicas may have been in sync before and not after the append.
    fn judge(&self, leader_epoch: LeaderEpoch, end: Offset) -> Result<(), ResponseError> {
        match &self.lock().role {
            Role::Leader(leader) if leader.leader_epoch() == leader_epoch => {
                match leader.acked(end) {
                    Acked::Yes => Ok(()),
                    Acked::NotEnoughAfterAppend => Err(ResponseError::NotEnoughReplicasAfterAppend),
                    // The high watermark never falls within an epoch (R18).
                    Acked::NotYet => Err(ResponseError::UnknownServerError),
                }
            }
            _ => Err(ResponseError::NotLeaderOrFollower),
        }
    }

    /// Everything before `end` is on disk (`log.durability=fsync`): it counts now.
    pub(super) fn synced(&self, end: Offset) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.store.synced(end);
        if let Role::Leader(leader) = &mut state.role {
            let counts = state.store.synced_end();
            if counts > leader.log_end() {
                let effects = leader.appended(counts, clock::now(), &*state.brokers);
                self.settle(guard, effects);
            }
        }
    }
}

fn refused(error: &StoreError) -> Refused {
    Refused::new(error.response(), error.to_string())
}
