//! One segment: records, a sparse offset index, a sparse time index, in Kafka's formats.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use replication::types::Offset;

use crate::log::LogError;
use crate::log::batch::Batch;

/// The part of an offset index's entry: offset from the base, position in the file.
const INDEX_ENTRY: usize = 8;
/// Of a time index: timestamp, offset from the base.
const TIME_ENTRY: usize = 12;

/// One segment.
#[derive(Debug)]
pub struct Segment {
    /// Offset of its first record, there or still to come.
    pub base: Offset,
    /// The folder.
    dir: PathBuf,
    /// Its records; shared with whoever reads or syncs.
    pub file: Arc<File>,
    /// Bytes of records.
    pub size: u64,
    index: Vec<(u32, u32)>,
    index_file: File,
    times: Vec<(i64, u32)>,
    time_file: File,
    bytes_since_index: u64,
    /// The greatest timestamp, and the offset of its batch's last record; -1: no record yet.
    pub max_timestamp: (i64, Offset),
    /// Timestamp of the first record, for `segment.ms`.
    pub first_timestamp: Option<i64>,
}

/// `00000000000000000042.log`
pub(super) fn path(dir: &Path, base: Offset, extension: &str) -> PathBuf {
    dir.join(format!("{:020}.{extension}", base.0))
}

fn open(path: &Path) -> Result<File, LogError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(LogError::disk(path))
}

fn read_all(file: &File, path: &Path) -> Result<Vec<u8>, LogError> {
    let length = file.metadata().map_err(LogError::disk(path))?.len();
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0).map_err(LogError::disk(path))?;
    Ok(bytes)
}

impl Segment {
    /// Opens or makes the segment. Its indexes are read as they are; whether they fit, the caller
    /// looks ([`Self::indexes_fit`]).
    pub(super) fn open(dir: &Path, base: Offset) -> Result<Self, LogError> {
        let log_path = path(dir, base, "log");
        let file = open(&log_path)?;
        let size = file.metadata().map_err(LogError::disk(&log_path))?.len();
        let (index_path, time_path) = (path(dir, base, "index"), path(dir, base, "timeindex"));
        let (index_file, time_file) = (open(&index_path)?, open(&time_path)?);
        let index = entries::<INDEX_ENTRY, _>(&read_all(&index_file, &index_path)?, |entry| {
            (number(&entry[..4]), number(&entry[4..]))
        });
        let times = entries::<TIME_ENTRY, _>(&read_all(&time_file, &time_path)?, |entry| {
            let mut timestamp = [0; 8];
            timestamp.copy_from_slice(&entry[..8]);
            (i64::from_be_bytes(timestamp), number(&entry[8..]))
        });
        let max_timestamp = times.last().map_or((-1, Offset::UNDEFINED), |(timestamp, offset)| {
            (*timestamp, base + i64::from(*offset))
        });
        Ok(Self {
            base,
            dir: dir.to_owned(),
            file: Arc::new(file),
            size,
            index,
            index_file,
            times,
            time_file,
            bytes_since_index: 0,
            max_timestamp,
            first_timestamp: None,
        })
    }

    /// Where its records lie.
    pub fn log_path(&self) -> PathBuf {
        path(&self.dir, self.base, "log")
    }

    /// Do the indexes rise, and stay within the records?
    pub(super) fn indexes_fit(&self) -> bool {
        let rises =
            self.index.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1);
        let times_rise = self.times.windows(2).all(|pair| pair[0].0 <= pair[1].0);
        let within = self.index.last().is_none_or(|(_, at)| u64::from(*at) < self.size);
        rises && times_rise && within
    }

    /// Forgets the indexes, to be made anew by [`Self::note`].
    pub(super) fn clear_indexes(&mut self) -> Result<(), LogError> {
        self.index.clear();
        self.times.clear();
        self.bytes_since_index = 0;
        self.max_timestamp = (-1, Offset::UNDEFINED);
        self.first_timestamp = None;
        self.index_file.set_len(0).map_err(LogError::disk(path(&self.dir, self.base, "index")))?;
        self.time_file.set_len(0).map_err(LogError::disk(path(&self.dir, self.base, "timeindex")))
    }

    /// Writes bytes of whole batches at the end.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        self.file.write_all_at(bytes, self.size).map_err(LogError::disk(self.log_path()))?;
        self.size += bytes.len() as u64;
        Ok(())
    }

    /// A batch lies at `position`: every so many bytes it gets an entry in the indexes.
    pub(super) fn note(
        &mut self,
        batch: &Batch,
        position: u64,
        interval_bytes: u64,
    ) -> Result<(), LogError> {
        self.first_timestamp.get_or_insert(batch.max_timestamp);
        if batch.max_timestamp > self.max_timestamp.0 {
            self.max_timestamp = (batch.max_timestamp, batch.last_offset());
        }
        if self.bytes_since_index > interval_bytes {
            self.write_entries(batch.last_offset(), position)?;
            self.bytes_since_index = 0;
        }
        self.bytes_since_index += batch.bytes as u64;
        Ok(())
    }

    fn write_entries(&mut self, last_offset: Offset, position: u64) -> Result<(), LogError> {
        let relative = |offset: Offset| u32::try_from(offset - self.base).ok();
        let (Some(offset), Ok(position)) = (relative(last_offset), u32::try_from(position)) else {
            // A segment is rolled long before; without an entry reads scan a little longer.
            return Ok(());
        };
        let entry = [offset.to_be_bytes(), position.to_be_bytes()].concat();
        let at = (self.index.len() * INDEX_ENTRY) as u64;
        self.index_file
            .write_all_at(&entry, at)
            .map_err(LogError::disk(path(&self.dir, self.base, "index")))?;
        self.index.push((offset, position));
        self.write_time()
    }

    /// The greatest timestamp so far gets an entry in the time index.
    pub(super) fn write_time(&mut self) -> Result<(), LogError> {
        let (timestamp, offset) = self.max_timestamp;
        let Ok(relative) = u32::try_from(offset - self.base) else { return Ok(()) };
        if self.times.last().is_some_and(|(last, _)| *last >= timestamp) {
            return Ok(());
        }
        let entry = [&timestamp.to_be_bytes()[..], &relative.to_be_bytes()[..]].concat();
        let at = (self.times.len() * TIME_ENTRY) as u64;
        self.time_file.write_all_at(&entry, at).map_err(LogError::disk(path(
            &self.dir,
            self.base,
            "timeindex",
        )))?;
        self.times.push((timestamp, relative));
        Ok(())
    }

    /// Where to begin looking for `offset`: at or before its batch.
    pub(super) fn floor(&self, offset: Offset) -> u64 {
        let wanted = u32::try_from(offset - self.base).unwrap_or(0);
        // An entry names the last offset of the batch that lies at its position.
        let next = self.index.partition_point(|(last, _)| *last < wanted);
        let at = next.checked_sub(1).and_then(|entry| self.index.get(entry));
        at.map_or(0, |(_, position)| u64::from(*position))
    }

    /// From which offset on records may have `timestamp` or a later one.
    pub(super) fn floor_by_time(&self, timestamp: i64) -> Offset {
        let next = self.times.partition_point(|(time, _)| *time < timestamp);
        let at = next.checked_sub(1).and_then(|entry| self.times.get(entry));
        at.map_or(self.base, |(_, relative)| self.base + i64::from(*relative))
    }

    /// Cuts the records at `position`, and the indexes with them.
    pub(super) fn truncate(&mut self, position: u64) -> Result<(), LogError> {
        self.file.set_len(position).map_err(LogError::disk(self.log_path()))?;
        self.size = position;
        Ok(())
    }

    /// Makes its files as durable as the disk can.
    pub(super) fn sync(&self) -> Result<(), LogError> {
        self.file.sync_data().map_err(LogError::disk(self.log_path()))
    }

    /// Removes its files.
    pub(super) fn remove(self) -> Result<(), LogError> {
        remove_files(&self.dir, self.base)
    }
}

/// Removes the files of the segment at `base`.
pub(super) fn remove_files(dir: &Path, base: Offset) -> Result<(), LogError> {
    for extension in ["log", "index", "timeindex", "snapshot"] {
        let path = path(dir, base, extension);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(LogError::disk(&path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Whole entries; what a torn write left behind them is not one.
fn entries<const N: usize, T>(bytes: &[u8], read: impl Fn(&[u8]) -> T) -> Vec<T> {
    bytes.chunks_exact(N).map(read).collect()
}
