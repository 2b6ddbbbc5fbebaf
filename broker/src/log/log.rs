//! All segments of a partition's log.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use replication::epochs::LeaderEpochs;
use replication::seeded::Bug;
use replication::types::{LeaderEpoch, Offset};
use tracing::info;

use crate::log::batch::{Batch, batches};
use crate::log::checkpoint;
use crate::log::segment::Segment;
use crate::log::{LogError, LogSettings};

/// One replica's log. Its owner holds it behind a lock; reading and writing go through the page
/// cache, what takes a disk goes through a [`SyncTicket`].
#[derive(Debug)]
pub struct Log {
    pub(super) dir: PathBuf,
    pub(super) settings: LogSettings,
    /// By base offset; the last one is written to. There is always one.
    pub(super) segments: BTreeMap<Offset, Segment>,
    pub(super) epochs: LeaderEpochs,
    pub(super) start: Offset,
    pub(super) end: Offset,
    pub(super) synced_end: Offset,
    /// Below, compaction has left each key once.
    pub(super) cleaned_to: Offset,
    /// How often records were taken from its end.
    pub(super) cuts: u64,
    /// Files with records that may not be on disk yet, besides the last one.
    pub(super) unsynced: Vec<Arc<File>>,
}

/// Brings to the disk what a log held when the ticket was made.
#[derive(Debug)]
pub struct SyncTicket {
    files: Vec<Arc<File>>,
    end: Offset,
}

impl SyncTicket {
    /// Takes as long as the disk does; holds no lock.
    ///
    /// # Errors
    /// The disk's. What it holds afterwards is not known.
    pub fn run(&self) -> io::Result<Offset> {
        for file in &self.files {
            file.sync_data()?;
        }
        Ok(self.end)
    }
}

impl Log {
    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Offset of its first record.
    pub const fn start(&self) -> Offset {
        self.start
    }

    /// The next offset to be written.
    pub const fn end(&self) -> Offset {
        self.end
    }

    /// Everything before is on disk.
    pub const fn synced_end(&self) -> Offset {
        self.synced_end
    }

    /// The epoch vector (R21).
    pub const fn epochs(&self) -> &LeaderEpochs {
        &self.epochs
    }

    /// What it is told.
    pub const fn settings(&self) -> &LogSettings {
        &self.settings
    }

    /// It is told otherwise.
    pub fn set_settings(&mut self, settings: LogSettings) {
        self.settings = settings;
    }

    /// Bytes of all segments.
    pub fn size(&self) -> u64 {
        self.segments.values().map(|segment| segment.size).sum()
    }

    pub(super) fn last(&mut self) -> Result<&mut Segment, LogError> {
        if self.segments.is_empty() {
            let segment = Segment::open(&self.dir, self.end)?;
            self.segments.insert(segment.base, segment);
        }
        match self.segments.values_mut().next_back() {
            Some(segment) => Ok(segment),
            None => Err(LogError::Disk {
                path: self.dir.clone(),
                reason: io::Error::other("no segment"),
            }),
        }
    }

    /// Where each segment begins.
    pub fn segment_starts(&self) -> impl Iterator<Item = Offset> + '_ {
        self.segments.keys().copied()
    }

    /// R21: epoch `epoch` begins at the log's end. Written down before this returns.
    ///
    /// # Errors
    /// The disk.
    pub fn begin_epoch(&mut self, epoch: LeaderEpoch) -> Result<(), LogError> {
        if !Bug::R21RecordOnAppend.is_on() && self.epochs.assign(epoch, self.end) {
            self.write_epochs()?;
        }
        Ok(())
    }

    pub(super) fn write_epochs(&self) -> Result<(), LogError> {
        checkpoint::write_epochs(&self.dir, &self.epochs)
    }

    /// Appends whole batches that have their offsets and epochs: those of a leader, given their
    /// place before, or those that a follower fetched. They must continue the log.
    ///
    /// # Errors
    /// The disk, or records that do not continue the log; then nothing was appended.
    pub fn append(&mut self, bytes: &[u8]) -> Result<Vec<Batch>, LogError> {
        let mut found = Vec::with_capacity(1);
        let mut expected = self.end;
        for batch in batches(bytes) {
            let (at, batch) = batch?;
            // Compaction leaves holes, and nothing else may.
            if batch.base_offset < expected {
                return Err(LogError::Gap { expected, found: batch.base_offset });
            }
            expected = batch.next_offset();
            found.push((at, batch));
        }
        let mut new_epoch = false;
        for (at, batch) in &found {
            self.roll_if_full(batch)?;
            let interval = self.settings.index_interval_bytes;
            let segment = self.last()?;
            let position = segment.size;
            segment.append(&bytes[*at..*at + batch.bytes])?;
            segment.note(batch, position, interval)?;
            new_epoch |= self.epochs.assign(batch.leader_epoch, batch.base_offset);
            self.end = batch.next_offset();
        }
        if new_epoch {
            self.write_epochs()?;
        }
        Ok(found.into_iter().map(|(_, batch)| batch).collect())
    }

    fn roll_if_full(&mut self, next: &Batch) -> Result<(), LogError> {
        let (bytes, age) = (self.settings.segment_bytes, self.settings.segment_ms);
        let segment = self.last()?;
        let full = segment.size > 0 && segment.size + next.bytes as u64 > bytes;
        let old = segment
            .first_timestamp
            .is_some_and(|first| next.max_timestamp.saturating_sub(first) > age);
        // Indexes count offsets from the segment's base in 32 bits.
        let far = next.last_offset() - segment.base > i64::from(i32::MAX);
        if segment.size > 0 && (full || old || far) {
            self.roll(next.base_offset)?;
        }
        Ok(())
    }

    /// Begins another segment, at `base`.
    pub(super) fn roll(&mut self, base: Offset) -> Result<(), LogError> {
        let segment = self.last()?;
        segment.write_time()?;
        let file = Arc::clone(&segment.file);
        self.unsynced.push(file);
        let segment = Segment::open(&self.dir, base)?;
        self.segments.insert(base, segment);
        Ok(())
    }

    /// What has to be synced, to be done outside the owner's lock.
    pub fn begin_sync(&mut self) -> SyncTicket {
        let mut files = self.unsynced.clone();
        files.extend(self.segments.values().next_back().map(|segment| Arc::clone(&segment.file)));
        SyncTicket { files, end: self.end }
    }

    /// A ticket was run: everything before `end` is on disk.
    pub fn synced(&mut self, end: Offset) {
        if end <= self.synced_end || end > self.end {
            // Cut meanwhile, or synced already.
            return;
        }
        self.synced_end = end;
        let active = self.segments.keys().next_back().copied().unwrap_or_default();
        if end >= active {
            // Rolled files were part of that ticket, or of an earlier one.
            self.unsynced.clear();
        }
    }

    /// Brings everything to the disk, here and now.
    ///
    /// # Errors
    /// The disk.
    pub fn flush(&mut self) -> Result<(), LogError> {
        let end = self.begin_sync().run().map_err(LogError::disk(&self.dir))?;
        self.synced_end = end;
        self.unsynced.clear();
        Ok(())
    }

    /// Cuts the log at `offset`, or at the start of the batch that holds it. At or beyond its end
    /// only an epoch without records goes, which nobody else has.
    ///
    /// # Errors
    /// The disk.
    pub fn truncate_to(&mut self, offset: Offset) -> Result<(), LogError> {
        if offset >= self.end {
            let known = self.epochs.entries().len();
            self.epochs.truncate_from_end(offset);
            return if self.epochs.entries().len() < known { self.write_epochs() } else { Ok(()) };
        }
        self.cuts += 1;
        let first = self.segments.keys().next().copied().unwrap_or_default();
        if offset <= first {
            return self.start_anew_at(offset.max(Offset::ZERO));
        }
        let beyond: Vec<Offset> = self.segments.range(offset..).map(|(base, _)| *base).collect();
        for base in beyond {
            if let Some(segment) = self.segments.remove(&base) {
                segment.remove()?;
            }
        }
        let (position, end) = self.position_of(offset)?;
        let interval = self.settings.index_interval_bytes;
        let segment = self.last()?;
        segment.truncate(position)?;
        super::recover::reindex(segment, interval)?;
        self.end = end;
        self.start = self.start.min(end);
        self.synced_end = self.synced_end.min(end);
        self.cleaned_to = self.cleaned_to.min(end);
        self.epochs.truncate_from_end(end);
        self.write_epochs()
    }

    /// Removes everything; the log begins and ends at `offset`.
    ///
    /// # Errors
    /// The disk.
    pub fn start_anew_at(&mut self, offset: Offset) -> Result<(), LogError> {
        for (_, segment) in std::mem::take(&mut self.segments) {
            segment.remove()?;
        }
        self.unsynced.clear();
        self.cuts += 1;
        self.start = offset;
        self.end = offset;
        self.synced_end = offset;
        self.cleaned_to = Offset::ZERO;
        self.epochs.clear();
        self.last()?;
        self.write_epochs()
    }

    /// The log begins at `offset` from now on; segments before it go, but for the last one.
    ///
    /// # Errors
    /// The disk.
    pub fn advance_start(&mut self, offset: Offset) -> Result<(), LogError> {
        let offset = offset.min(self.end);
        if offset <= self.start {
            return Ok(());
        }
        self.start = offset;
        let bases: Vec<Offset> = self.segments.keys().copied().collect();
        for pair in bases.windows(2) {
            if pair[1] <= offset
                && let Some(segment) = self.segments.remove(&pair[0])
            {
                segment.remove()?;
            }
        }
        self.epochs.truncate_from_start(offset);
        self.write_epochs()
    }

    /// Removes segments that are too old or too many, all of them below `high_watermark`; how many
    /// bytes that freed.
    ///
    /// # Errors
    /// The disk.
    pub fn clean(&mut self, high_watermark: Offset, now_ms: i64) -> Result<u64, LogError> {
        if !self.settings.deletes {
            return Ok(0);
        }
        let before = self.size();
        let mut left = before;
        let bases: Vec<Offset> = self.segments.keys().copied().collect();
        let mut start = self.start;
        for pair in bases.windows(2) {
            let Some(segment) = self.segments.get(&pair[0]) else { break };
            let old = self
                .settings
                .retention_ms
                .is_some_and(|most| now_ms.saturating_sub(segment.max_timestamp.0) > most);
            let many =
                self.settings.retention_bytes.is_some_and(|most| left - segment.size >= most);
            if pair[1] > high_watermark || !(old || many) {
                break;
            }
            left -= segment.size;
            start = pair[1];
        }
        self.advance_start(start)?;
        Ok(before - self.size())
    }

    /// Brings everything to the disk before the log is closed.
    ///
    /// # Errors
    /// The disk.
    pub fn close(&mut self) -> Result<(), LogError> {
        self.last()?.write_time()?;
        self.flush()?;
        self.write_epochs()
    }

    /// Removes the log. Its folder is renamed first, so that a crash leaves nothing that looks
    /// like a log.
    ///
    /// # Errors
    /// The disk.
    pub fn delete(&mut self) -> Result<(), LogError> {
        self.segments.clear();
        let mut name = self.dir.file_name().unwrap_or_default().to_os_string();
        name.push(super::directory::DELETED_SUFFIX);
        let gone = self.dir.with_file_name(name);
        fs::rename(&self.dir, &gone).map_err(LogError::disk(&self.dir))?;
        info!(log = %gone.display(), "deleting");
        fs::remove_dir_all(&gone).map_err(LogError::disk(&gone))
    }
}

/// Bytes that are read from the page cache once.
pub(super) fn owned(bytes: Vec<u8>) -> Bytes {
    Bytes::from(bytes)
}
