//! What others do with a replica besides reading and writing: syncing, cleaning, closing,
//! deleting, counting.

use kafka_protocol::ResponseError;
use replication::types::Offset;
use tokio::time::{Instant, timeout_at};

use crate::admin::metrics::Summary;
use crate::log::SyncTicket;
use crate::producers::ProducerSummary;
use crate::replica::clock;
use crate::replica::partition::{Partition, Role};
use crate::replica::store::StoreError;

/// How soon a follower's log start is seen, at the latest: it comes with its fetches.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(100);

impl Partition {
    /// What has to be synced; to be run outside any lock.
    pub(super) fn begin_sync(&self) -> SyncTicket {
        self.lock().store.begin_sync()
    }

    /// Brings the log to the disk and counts it as there. Takes as long as the disk does.
    ///
    /// # Errors
    /// Which log, and what the disk said.
    pub(super) fn sync(&self) -> Result<(), String> {
        let ticket = self.begin_sync();
        let end = ticket.run().map_err(|error| format!("{}: fsync: {error}", self.key()))?;
        self.synced(end);
        Ok(())
    }

    /// Everything before is on disk.
    pub(super) fn recovery_point(&self) -> Offset {
        self.lock().store.synced_end()
    }

    /// Where the log begins.
    pub(super) fn log_start(&self) -> Offset {
        self.lock().store.log_start()
    }

    /// Bytes of the log.
    pub fn log_bytes(&self) -> u64 {
        self.lock().store.size()
    }

    /// Retention: how many bytes it freed. Producers that were silent since before
    /// `producers_since_ms` are forgotten.
    pub(super) fn clean(&self, producers_since_ms: i64) -> Result<u64, StoreError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.store.expire_producers(producers_since_ms);
        let high_watermark = state.role.high_watermark();
        state.store.clean(high_watermark, clock::wall_ms())
    }

    /// Compaction, where the topic wants it and there is enough to do: how many bytes it freed. Takes
    /// as long as the disk does; the lock is held only to begin and to exchange files.
    pub(super) fn compact(&self) -> Result<u64, StoreError> {
        let compaction = {
            let state = self.lock();
            state.store.begin_compaction(state.role.high_watermark(), clock::wall_ms())
        };
        let Some(compaction) = compaction else { return Ok(0) };
        let done = compaction.run()?;
        self.lock().store.finish_compaction(&done)
    }

    /// Up to where the log is compacted.
    pub(super) fn cleaned_to(&self) -> Offset {
        self.lock().store.cleaned_to()
    }

    /// Brings everything to the disk; nobody waits for it any more.
    pub(super) fn close_log(&self) -> Result<(), StoreError> {
        self.close();
        self.lock().store.close()
    }

    /// Removes the log; nobody waits for it any more.
    pub(super) fn delete(&self) -> Result<(), StoreError> {
        self.close();
        self.lock().store.delete()
    }

    /// Adds itself to `summary`.
    pub(super) fn count(&self, summary: &mut Summary) {
        let state = self.lock();
        summary.replicas += 1;
        summary.log_bytes += i64::try_from(state.store.size()).unwrap_or(i64::MAX);
        if let Role::Leader(leader) = &state.role {
            summary.leading += 1;
            let isr = leader.isr().len();
            summary.under_replicated += i64::from(isr < leader.replicas().len());
            summary.under_min_isr += i64::from(isr < leader.effective_min_isr());
        }
    }

    /// Idempotent producers, as the leader knows them.
    ///
    /// # Errors
    /// `NOT_LEADER_OR_FOLLOWER`.
    pub fn active_producers(&self) -> Result<Vec<ProducerSummary>, ResponseError> {
        let state = self.lock();
        match &state.role {
            Role::Leader(_) => Ok(state.store.producers()),
            Role::Follower(_) => Err(ResponseError::NotLeaderOrFollower),
        }
    }

    /// DeleteRecords: the log begins at `before` (`None`: at the high watermark) from now on.
    ///
    /// # Errors
    /// Kafka's code.
    pub fn delete_records(&self, before: Option<Offset>) -> Result<Offset, ResponseError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Role::Leader(leader) = &state.role else {
            return Err(ResponseError::NotLeaderOrFollower);
        };
        let start = before.unwrap_or(leader.high_watermark());
        if start > leader.high_watermark() {
            return Err(ResponseError::OffsetOutOfRange);
        }
        state.store.advance_log_start(start).map_err(|error| error.response())?;
        let start = state.store.log_start();
        self.publish(&guard);
        Ok(start)
    }

    /// Waits until every replica that is in sync begins at `start` as well; where the last of them
    /// begins.
    ///
    /// # Errors
    /// Kafka's code; `REQUEST_TIMED_OUT` after `until`.
    pub async fn await_log_start(
        &self,
        start: Offset,
        until: Instant,
    ) -> Result<Offset, ResponseError> {
        let mut progress = self.watch();
        loop {
            {
                let state = self.lock();
                let Role::Leader(leader) = &state.role else {
                    return Err(ResponseError::NotLeaderOrFollower);
                };
                let least = leader
                    .followers()
                    .filter(|follower| leader.isr().contains(&follower.id))
                    .map(|follower| follower.log_start)
                    .fold(state.store.log_start(), Offset::min);
                if least >= start {
                    return Ok(least);
                }
            }
            if Instant::now() >= until {
                return Err(ResponseError::RequestTimedOut);
            }
            // A follower's log start moves without anyone's progress.
            let again = (Instant::now() + LOOK_AGAIN).min(until);
            let _ = timeout_at(again, progress.changed()).await;
        }
    }
}
