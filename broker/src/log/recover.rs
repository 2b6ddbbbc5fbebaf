//! Opening a log, and what is left of it after an unclean stop.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use replication::epochs::{EpochStart, LeaderEpochs};
use replication::types::Offset;
use tracing::warn;

use crate::log::batch::{Batch, BatchError, check};
use crate::log::checkpoint;
use crate::log::log::Log;
use crate::log::read::header_at;
use crate::log::segment::Segment;
use crate::log::{LogError, LogSettings, swap};

/// What opening a log found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Bytes that were cut off, and the offset at which the log ends for that.
    pub cut: Option<Cut>,
    /// Segments whose indexes were made anew.
    pub indexes_rebuilt: usize,
}

/// A tail that was cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// So many bytes.
    pub bytes: u64,
    /// The log ends here.
    pub at: Offset,
    /// What was wrong there.
    pub reason: String,
}

impl Log {
    /// Opens the log in `dir`. After a clean stop its files are taken as they are; else everything
    /// from `recovery_point` on is looked at, and cut where it is torn or damaged. `start`: where
    /// the log begins, as the last life wrote down.
    ///
    /// # Errors
    /// The disk.
    pub fn open(
        dir: &Path,
        settings: LogSettings,
        clean: bool,
        recovery_point: Offset,
        start: Offset,
    ) -> Result<(Self, RecoveryReport), LogError> {
        fs::create_dir_all(dir).map_err(LogError::disk(dir))?;
        swap::recover(dir)?;
        let mut segments = BTreeMap::new();
        for base in bases(dir)? {
            segments.insert(base, Segment::open(dir, base)?);
        }
        let mut log = Self {
            dir: dir.to_owned(),
            settings,
            segments,
            epochs: LeaderEpochs::default(),
            start,
            end: start,
            synced_end: start,
            cleaned_to: Offset::ZERO,
            cuts: 0,
            unsynced: Vec::new(),
        };
        let checkpointed = checkpoint::read_epochs(dir)?;
        let report = log.recover(clean, recovery_point, &checkpointed)?;
        log.last()?;
        // What the process before has written is in the page cache at least.
        log.synced_end = if clean { log.end } else { log.start.max(recovery_point.min(log.end)) };
        Ok((log, report))
    }

    fn recover(
        &mut self,
        clean: bool,
        recovery_point: Offset,
        checkpointed: &[EpochStart],
    ) -> Result<RecoveryReport, LogError> {
        let mut report = RecoveryReport::default();
        let bases: Vec<Offset> = self.segments.keys().copied().collect();
        let last = bases.last().copied();
        let mut found: Vec<EpochStart> = Vec::new();
        let mut end = bases.first().copied().unwrap_or(self.start).max(self.start);
        for (number, base) in bases.iter().enumerate() {
            let next = bases.get(number + 1);
            let settled = next.is_some_and(|next| clean || *next <= recovery_point);
            let Some(segment) = self.segments.get_mut(base) else { continue };
            if settled && segment.indexes_fit() {
                end = next.copied().unwrap_or(end);
                continue;
            }
            let interval = self.settings.index_interval_bytes;
            let careful = !clean;
            let scanned = scan(segment, careful, interval, &mut found)?;
            report.indexes_rebuilt += usize::from(Some(*base) != last);
            end = scanned.end.unwrap_or(*base).max(end);
            if let Some((position, reason)) = scanned.bad {
                report.cut = Some(self.cut(*base, position, end, reason)?);
                break;
            }
        }
        self.end = end.max(self.start);
        if self.segments.keys().next().is_some_and(|first| self.start < *first) {
            self.start = self.segments.keys().next().copied().unwrap_or(self.start);
        }
        let known = checkpointed.iter().copied().filter(|entry| entry.start <= self.end);
        let mut all: Vec<EpochStart> = known.chain(found).collect();
        all.sort_by_key(|entry| (entry.epoch, entry.start));
        self.epochs = LeaderEpochs::from_entries(all);
        self.epochs.truncate_from_start(self.start);
        Ok(report)
    }

    /// Cuts everything from `position` in the segment at `base` on.
    fn cut(
        &mut self,
        base: Offset,
        position: u64,
        end: Offset,
        reason: String,
    ) -> Result<Cut, LogError> {
        let mut bytes = 0;
        if let Some(segment) = self.segments.get_mut(&base) {
            bytes += segment.size - position;
            segment.truncate(position)?;
            segment.sync()?;
        }
        let beyond: Vec<Offset> = self.segments.range(base + 1..).map(|(base, _)| *base).collect();
        for base in beyond {
            if let Some(segment) = self.segments.remove(&base) {
                bytes += segment.size;
                segment.remove()?;
            }
        }
        warn!(
            log = %self.dir.display(),
            bytes,
            at = %end,
            reason,
            "what the last process left unfinished is cut off"
        );
        Ok(Cut { bytes, at: end, reason })
    }
}

/// The segments in a folder. Other files in it are left alone.
pub(super) fn bases(dir: &Path) -> Result<Vec<Offset>, LogError> {
    let mut bases = Vec::new();
    for entry in fs::read_dir(dir).map_err(LogError::disk(dir))? {
        let entry = entry.map_err(LogError::disk(dir))?;
        let name = entry.file_name();
        let base = name
            .to_str()
            .and_then(|name| name.strip_suffix(".log"))
            .filter(|digits| digits.len() == 20)
            .and_then(|digits| digits.parse().ok())
            .filter(|base| *base >= 0);
        bases.extend(base.map(Offset));
    }
    bases.sort_unstable();
    Ok(bases)
}

/// What a scan of a segment found.
struct Scanned {
    /// The offset after its last good batch.
    end: Option<Offset>,
    /// Where the good part ends, if something follows it, and what is wrong there.
    bad: Option<(u64, String)>,
}

/// Looks at every batch, and makes the indexes anew. `careful`: checksums too.
fn scan(
    segment: &mut Segment,
    careful: bool,
    interval: u64,
    epochs: &mut Vec<EpochStart>,
) -> Result<Scanned, LogError> {
    segment.clear_indexes()?;
    let mut position = 0;
    let mut end: Option<Offset> = None;
    loop {
        let batch = match look(segment, position, careful) {
            Ok(Some(batch)) => batch,
            Ok(None) if position == segment.size => return Ok(Scanned { end, bad: None }),
            Ok(None) => {
                return Ok(Scanned { end, bad: Some((position, "a torn batch".to_owned())) });
            }
            Err(LogError::Damaged { reason, .. }) => {
                return Ok(Scanned { end, bad: Some((position, reason)) });
            }
            Err(error) => return Err(error),
        };
        if batch.base_offset < end.unwrap_or(segment.base) {
            let reason = format!("offset {} again", batch.base_offset);
            return Ok(Scanned { end, bad: Some((position, reason)) });
        }
        segment.note(&batch, position, interval)?;
        if epochs.last().is_none_or(|last| last.epoch < batch.leader_epoch) {
            epochs.push(EpochStart { epoch: batch.leader_epoch, start: batch.base_offset });
        }
        position += batch.bytes as u64;
        end = Some(batch.next_offset());
    }
}

fn look(segment: &Segment, position: u64, careful: bool) -> Result<Option<Batch>, LogError> {
    let Some(batch) = header_at(segment, position)? else { return Ok(None) };
    if position + batch.bytes as u64 > segment.size {
        return Ok(None);
    }
    if careful {
        let mut bytes = vec![0; batch.bytes];
        segment
            .file
            .read_exact_at(&mut bytes, position)
            .map_err(LogError::disk(segment.log_path()))?;
        check(&bytes).map_err(|error: BatchError| LogError::Damaged {
            path: segment.log_path(),
            position,
            reason: error.to_string(),
        })?;
    }
    Ok(Some(batch))
}

/// Makes the indexes of a segment anew that was cut.
pub(super) fn reindex(segment: &mut Segment, interval: u64) -> Result<(), LogError> {
    scan(segment, false, interval, &mut Vec::new()).map(drop)
}
