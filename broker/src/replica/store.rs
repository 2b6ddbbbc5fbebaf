//! A log and what it knows of producers, grown and cut together.

use bytes::{Bytes, BytesMut};
use kafka_protocol::ResponseError;
use replication::epochs::LeaderEpochs;
use replication::seeded::Bug;
use replication::types::{LeaderEpoch, Offset, PartitionId};
use thiserror::Error;
use tracing::info;

use crate::log::batch::{corrupt, place, stamp};
use crate::log::compaction::{Compacted, Compaction};
use crate::log::{
    Batch, Log, LogDirectory, LogError, LogSettings, SyncTicket, ValidationError,
    validate_from_producer,
};
use crate::producers::{BatchFacts, ProducerStates, ProducerSummary, SequenceError, Verdict};

/// Why a log was not appended to, read or cut.
#[derive(Debug, Error)]
pub enum StoreError {
    /// What a producer sent is not what it must be.
    #[error(transparent)]
    Invalid(#[from] ValidationError),
    /// An idempotent producer's batch is out of turn.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Anything else that a node does not go on after.
    #[error("{0}")]
    Broken(String),
}

impl StoreError {
    pub(super) const fn broken(reason: String) -> Self {
        Self::Broken(reason)
    }

    /// Kafka's code for it.
    pub fn response(&self) -> ResponseError {
        match self {
            Self::Invalid(error) => error.response(),
            Self::Sequence(error) => error.response(),
            Self::Log(error) => error.response(),
            Self::Broken(_) => ResponseError::KafkaStorageError,
        }
    }

    /// Is it the data that is bad, and not the disk?
    pub const fn is_bad_data(&self) -> bool {
        match self {
            Self::Invalid(_) | Self::Sequence(_) => true,
            Self::Log(error) => !error.is_disk(),
            Self::Broken(_) => false,
        }
    }
}

/// Where a producer's records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) base_offset: Offset,
    pub(super) last_offset: Offset,
    pub(super) log_append_time_ms: Option<i64>,
}

/// Records of a producer that were looked at outside any lock.
#[derive(Clone, Debug)]
pub struct Checked {
    bytes: Bytes,
    batches: Vec<(usize, Batch)>,
}

impl Checked {
    /// Looks at what a producer sent.
    ///
    /// # Errors
    /// [`StoreError::Invalid`].
    pub fn new(bytes: Bytes, settings: &LogSettings) -> Result<Self, StoreError> {
        let batches = validate_from_producer(&bytes, settings)?;
        Ok(Self { bytes, batches })
    }
}

/// A log and what it knows of producers.
#[derive(Debug)]
pub struct Store {
    log: Log,
    producers: ProducerStates,
}

impl Store {
    /// Opens (or makes) the log of a partition.
    ///
    /// # Errors
    /// The disk.
    pub(super) fn open(
        directory: &LogDirectory,
        topic: &str,
        id: PartitionId,
        settings: &LogSettings,
    ) -> Result<Self, StoreError> {
        let (log, report) = directory.open_log(topic, id, settings.clone())?;
        if report.cut.is_some() || report.indexes_rebuilt > 0 {
            info!(key = format!("{topic}-{}", id.index), ?report, "recovered");
        }
        let mut store = Self { log, producers: ProducerStates::default() };
        store.read_producers()?;
        Ok(store)
    }

    /// Learns from the log what it knows of producers.
    fn read_producers(&mut self) -> Result<(), StoreError> {
        self.producers.clear();
        let producers = &mut self.producers;
        self.log.each_batch(self.log.start(), |batch| {
            if let Some(facts) = BatchFacts::of(batch) {
                producers.appended(&facts);
            }
        })?;
        Ok(())
    }

    /// A leader appends a producer's records, unless they are here already.
    ///
    /// # Errors
    /// [`StoreError`]: nothing was appended.
    pub(super) fn append(
        &mut self,
        checked: &Checked,
        epoch: LeaderEpoch,
        now_ms: i64,
    ) -> Result<Written, StoreError> {
        let log_append_time_ms = self.log.settings().log_append_time.then_some(now_ms);
        let mut bytes = BytesMut::from(&checked.bytes[..]);
        let mut next = self.log.end();
        let mut facts = Vec::new();
        let mut duplicate: Option<Written> = None;
        // Several batches of one producer follow each other within one request.
        let mut scratch: Option<ProducerStates> = None;
        for (at, batch) in &checked.batches {
            let mut placed = *batch;
            placed.base_offset = next;
            if let Some(new) = BatchFacts::of(&placed) {
                let states = scratch.as_ref().unwrap_or(&self.producers);
                match states.check(&new)? {
                    Verdict::Append => {
                        if checked.batches.len() > 1 {
                            scratch.get_or_insert_with(|| self.producers.clone()).appended(&new);
                        }
                        facts.push(new);
                    }
                    Verdict::Duplicate { base_offset, last_offset, .. } => {
                        let known = duplicate.map_or(base_offset, |known| known.base_offset);
                        duplicate =
                            Some(Written { base_offset: known, last_offset, log_append_time_ms });
                        continue;
                    }
                }
            }
            let slice = &mut bytes[*at..*at + batch.bytes];
            if log_append_time_ms.is_some() {
                stamp(slice, now_ms);
            }
            place(slice, next, epoch);
            if Bug::ValueCorrupted.is_on() && next.0 % 50 == 7 {
                corrupt(slice);
            }
            next = placed.next_offset();
        }
        if let Some(written) = duplicate {
            // Producers send one batch a partition and request; what is here is not appended.
            return Ok(written);
        }
        let base_offset = self.log.end();
        self.log.append(&bytes)?;
        for facts in &facts {
            self.producers.appended(facts);
        }
        Ok(Written { base_offset, last_offset: next + -1, log_append_time_ms })
    }

    /// A follower appends what its leader has.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(super) fn append_fetched(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        for batch in crate::log::batches(bytes) {
            let (at, batch) = batch.map_err(LogError::from)?;
            crate::log::batch::check(&bytes[at..at + batch.bytes]).map_err(LogError::from)?;
        }
        for batch in self.log.append(bytes)? {
            if let Some(facts) = BatchFacts::of(&batch)
                && !Bug::DedupLostOnFailover.is_on()
            {
                self.producers.appended(&facts);
            }
        }
        Ok(())
    }

    /// R21.
    ///
    /// # Errors
    /// The disk.
    pub(super) fn begin_epoch(&mut self, epoch: LeaderEpoch) -> Result<(), StoreError> {
        Ok(self.log.begin_epoch(epoch)?)
    }

    /// Cuts the log, and forgets what was cut of producers.
    ///
    /// # Errors
    /// The disk.
    pub(super) fn truncate_to(&mut self, offset: Offset) -> Result<(), StoreError> {
        let before = self.log.end();
        self.log.truncate_to(offset)?;
        if self.log.end() == before { Ok(()) } else { self.read_producers() }
    }

    /// Removes everything; the log goes on at `offset`.
    ///
    /// # Errors
    /// The disk.
    pub(super) fn start_anew_at(&mut self, offset: Offset) -> Result<(), StoreError> {
        self.producers.clear();
        Ok(self.log.start_anew_at(offset)?)
    }

    /// The log begins later from now on.
    ///
    /// # Errors
    /// The disk.
    pub(super) fn advance_log_start(&mut self, offset: Offset) -> Result<(), StoreError> {
        Ok(self.log.advance_start(offset)?)
    }

    pub(super) fn read(
        &self,
        from: Offset,
        end: Offset,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<Bytes, StoreError> {
        Ok(self.log.read(from, end, max_bytes, at_least_one)?)
    }

    /// Does a segment begin at `offset`?
    pub(super) fn is_segment_start(&self, offset: Offset) -> bool {
        self.log.segment_starts().any(|start| start == offset)
    }

    pub(super) fn bytes_between(&self, from: Offset, end: Offset) -> u64 {
        self.log.bytes_between(from, end)
    }

    pub(super) fn offset_for_timestamp(
        &self,
        timestamp_ms: i64,
    ) -> Result<Option<(i64, Offset)>, StoreError> {
        Ok(self.log.offset_for_timestamp(timestamp_ms)?)
    }

    pub(super) fn offset_of_max_timestamp(&self) -> Result<Option<(i64, Offset)>, StoreError> {
        Ok(self.log.offset_of_max_timestamp()?)
    }

    pub(super) const fn epochs(&self) -> &LeaderEpochs {
        self.log.epochs()
    }

    pub(super) const fn log_start(&self) -> Offset {
        self.log.start()
    }

    pub(super) const fn log_end(&self) -> Offset {
        self.log.end()
    }

    pub(super) const fn synced_end(&self) -> Offset {
        self.log.synced_end()
    }

    pub(super) fn set_settings(&mut self, settings: LogSettings) {
        self.log.set_settings(settings);
    }

    pub(super) fn begin_sync(&mut self) -> SyncTicket {
        self.log.begin_sync()
    }

    pub(super) fn synced(&mut self, end: Offset) {
        self.log.synced(end);
    }

    pub(super) fn sync_now(&mut self) -> Result<(), StoreError> {
        Ok(self.log.flush()?)
    }

    pub(super) fn size(&self) -> u64 {
        self.log.size()
    }

    pub(super) fn clean(&mut self, high_watermark: Offset, now_ms: i64) -> Result<u64, StoreError> {
        Ok(self.log.clean(high_watermark, now_ms)?)
    }

    /// What there is to compact, if it is enough.
    pub(super) fn begin_compaction(
        &self,
        high_watermark: Offset,
        now_ms: i64,
    ) -> Option<Compaction> {
        self.log.begin_compaction(high_watermark, now_ms)
    }

    /// How many bytes it freed.
    ///
    /// # Errors
    /// The disk.
    pub(super) fn finish_compaction(&mut self, done: &Compacted) -> Result<u64, StoreError> {
        Ok(self.log.finish_compaction(done)?)
    }

    pub(super) const fn cleaned_to(&self) -> Offset {
        self.log.cleaned_to()
    }

    pub(super) fn expire_producers(&mut self, since_ms: i64) {
        self.producers.expire(since_ms);
    }

    pub(super) fn producers(&self) -> Vec<ProducerSummary> {
        self.producers.summaries().collect()
    }

    pub(super) fn close(&mut self) -> Result<(), StoreError> {
        Ok(self.log.close()?)
    }

    pub(super) fn delete(&mut self) -> Result<(), StoreError> {
        Ok(self.log.delete()?)
    }
}
