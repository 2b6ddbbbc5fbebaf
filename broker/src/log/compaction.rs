//! Compaction: of a log's older records, the last one of each key stays. What stays is decided here;
//! the files are exchanged in `swap`.
//!
//! As in Kafka, records keep their offsets, so that holes are left; the segment that is written to
//! and whatever lies at or above the high watermark is not touched. That a key is gone is said for
//! `delete.retention.ms`, so that whoever reads the log from its beginning in that time learns it.

use std::collections::HashMap;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::{BufMut as _, BytesMut};
use kafka_protocol::compression::{Compressor, Gzip, Lz4, Snappy, Zstd};
use replication::types::Offset;

use crate::log::batch::{Batch, HEADER_BYTES, reseal};
use crate::log::records::{Record, RecordsError, each_record, put_length};
use crate::log::segment::Segment;
use crate::log::{Log, LogError};

/// Keys that are held in memory at once; what is behind waits for the next time.
const MOST_KEY_BYTES: usize = 64 * 1024 * 1024;

/// A segment as it was when its log was looked at.
#[derive(Clone, Debug)]
pub(super) struct Old {
    pub(super) base: Offset,
    /// Where the next one begins.
    pub(super) next: Offset,
    pub(super) file: Arc<std::fs::File>,
    pub(super) size: u64,
}

/// A log that shall be compacted, looked at under its owner's lock and worked on without it.
#[derive(Debug)]
pub struct Compaction {
    pub(super) dir: std::path::PathBuf,
    /// From the log's begin on, none that is written to.
    pub(super) segments: Vec<Old>,
    /// How often the log had been cut.
    pub(super) cuts: u64,
    /// Below, each key is there once.
    pub(super) cleaned_to: Offset,
    pub(super) segment_bytes: u64,
    /// Keys that are gone are forgotten if that was said before; milliseconds since 1970.
    pub(super) tombstones_before_ms: i64,
}

/// The last offset of each key.
type LastOffsets = HashMap<Vec<u8>, Offset>;

/// Does a record stay? Not if its key has a later one; nor, if it says that its key is gone, once that
/// was said for long enough: it lies where all earlier ones of its key are gone (`is_clean`).
fn stays(
    offset: Offset,
    record: &Record<'_>,
    last: &LastOffsets,
    is_clean: bool,
    is_old: bool,
) -> bool {
    let Some(key) = record.key else { return true };
    if last.get(key).is_some_and(|last| *last > offset) {
        return false;
    }
    record.value.is_some() || !(is_clean && is_old)
}

/// What is left of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// All of it, as it is.
    All,
    /// These bytes.
    Some(Vec<u8>),
    /// Nothing.
    Nothing,
}

/// Takes away the records of the whole batch `bytes` that do not `stay`. The header keeps its offsets,
/// epochs and sequences; `is_needed` keeps it even without a record: its producer would be forgotten.
///
/// # Errors
/// [`RecordsError`].
pub(super) fn left_of(
    bytes: &[u8],
    batch: &Batch,
    is_needed: bool,
    mut stay: impl FnMut(&Record<'_>) -> bool,
) -> Result<Left, RecordsError> {
    let mut kept = Vec::new();
    let mut count = 0;
    let mut max_timestamp = batch.base_timestamp;
    each_record(bytes, batch, |record| {
        if stay(record) {
            put_length(&mut kept, record.body.len());
            kept.extend_from_slice(record.body);
            max_timestamp = max_timestamp.max(batch.base_timestamp + record.timestamp_delta);
            count += 1;
        }
    })?;
    if count == batch.count {
        return Ok(Left::All);
    }
    if count == 0 && !is_needed {
        return Ok(Left::Nothing);
    }
    if batch.has_log_append_time() {
        max_timestamp = batch.max_timestamp;
    }
    let mut out = bytes.get(..HEADER_BYTES).unwrap_or_default().to_vec();
    // An empty batch is not packed.
    let codec = if count == 0 { 0 } else { batch.codec() };
    out.extend_from_slice(&packed(codec, &kept)?);
    reseal(&mut out, codec, count, max_timestamp);
    Ok(Left::Some(out))
}

fn packed(codec: i16, records: &[u8]) -> Result<BytesMut, RecordsError> {
    fn with<C: Compressor<BytesMut>>(records: &[u8]) -> Result<BytesMut, RecordsError>
    where
        C::BufMut: bytes::BufMut,
    {
        let mut out = BytesMut::new();
        C::compress(&mut out, |plain| {
            plain.put_slice(records);
            Ok(())
        })
        .map_err(|error| RecordsError::Packed(format!("{error:#}")))?;
        Ok(out)
    }
    match codec {
        0 => Ok(BytesMut::from(records)),
        1 => with::<Gzip>(records),
        2 => with::<Snappy>(records),
        3 => with::<Lz4>(records),
        4 => with::<Zstd>(records),
        other => Err(RecordsError::Packed(format!("codec {other} is not known"))),
    }
}

/// A row of segments, to become one.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) old: Vec<Old>,
    /// The bytes of the new one; `None`: nothing of it changes.
    pub(super) bytes: Option<u64>,
}

impl Group {
    pub(super) fn base(&self) -> Offset {
        self.old.first().map_or(Offset::ZERO, |old| old.base)
    }

    /// Where the segment behind it begins.
    pub(super) fn end(&self) -> Offset {
        self.old.last().map_or(Offset::ZERO, |old| old.next)
    }
}

/// Segments that fit into one become one, so that a log of many cleanings does not lie in crumbs.
pub(super) fn groups(segments: &[Old], segment_bytes: u64) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for old in segments {
        let fits = groups.last().is_some_and(|group| {
            let size: u64 = group.old.iter().map(|old| old.size).sum();
            size + old.size <= segment_bytes && old.next - group.base() <= i64::from(i32::MAX)
        });
        match groups.last_mut().filter(|_| fits) {
            Some(group) => group.old.push(old.clone()),
            None => groups.push(Group { old: vec![old.clone()], bytes: None }),
        }
    }
    groups
}

/// Shows `visit` every batch of a segment, header and bytes.
fn each_batch(
    dir: &std::path::Path,
    old: &Old,
    mut visit: impl FnMut(&Batch, &[u8]) -> Result<(), LogError>,
) -> Result<(), LogError> {
    let path = || super::segment::path(dir, old.base, "log");
    let damaged =
        |position: u64, reason: String| LogError::Damaged { path: path(), position, reason };
    let mut position = 0;
    let mut bytes = Vec::new();
    while position + HEADER_BYTES as u64 <= old.size {
        bytes.resize(HEADER_BYTES, 0);
        old.file.read_exact_at(&mut bytes, position).map_err(LogError::disk(path()))?;
        let batch = Batch::header(&bytes).map_err(|error| damaged(position, error.to_string()))?;
        if position + batch.bytes as u64 > old.size {
            return Err(damaged(position, "a torn batch".to_owned()));
        }
        bytes.resize(batch.bytes, 0);
        old.file.read_exact_at(&mut bytes, position).map_err(LogError::disk(path()))?;
        visit(&batch, &bytes)?;
        position += batch.bytes as u64;
    }
    Ok(())
}

impl Compaction {
    fn records(
        &self,
        old: &Old,
        bytes: &[u8],
        batch: &Batch,
        visit: impl FnMut(&Record<'_>),
    ) -> Result<(), LogError> {
        each_record(bytes, batch, visit).map_err(|error| self.unreadable(old, batch, &error))
    }

    fn unreadable(&self, old: &Old, batch: &Batch, error: &RecordsError) -> LogError {
        LogError::Damaged {
            path: super::segment::path(&self.dir, old.base, "log"),
            position: 0,
            reason: format!("the batch at offset {}: {error}", batch.base_offset),
        }
    }

    /// The last offset of each key in what is not clean yet, and up to where that was looked at.
    fn last_offsets(&self) -> Result<(LastOffsets, Offset), LogError> {
        let mut last = LastOffsets::new();
        let mut key_bytes = 0;
        let mut end = self.cleaned_to;
        for old in self.segments.iter().filter(|old| old.next > self.cleaned_to) {
            if key_bytes > MOST_KEY_BYTES {
                break;
            }
            each_batch(&self.dir, old, |batch, bytes| {
                if batch.is_control() {
                    return Ok(());
                }
                self.records(old, bytes, batch, |record| {
                    let Some(key) = record.key else { return };
                    let offset = batch.base_offset + record.offset_delta;
                    if last.insert(key.to_vec(), offset).is_none() {
                        key_bytes += key.len();
                    }
                })
            })?;
            end = old.next;
        }
        Ok((last, end))
    }

    /// For each producer, where its last batch is: the header of that one stays.
    fn last_batches(&self, end: Offset) -> Result<HashMap<i64, Offset>, LogError> {
        let mut last = HashMap::new();
        for old in self.segments.iter().filter(|old| old.next <= end) {
            each_batch(&self.dir, old, |batch, _| {
                if batch.has_producer() {
                    last.insert(batch.producer_id, batch.base_offset);
                }
                Ok(())
            })?;
        }
        Ok(last)
    }

    /// Reads the log and writes what stays beside it. Takes as long as the disk does; holds no lock.
    ///
    /// # Errors
    /// The disk; batches that cannot be read.
    pub fn run(self) -> Result<Compacted, LogError> {
        let (last, end) = self.last_offsets()?;
        let producers = self.last_batches(end)?;
        let within: Vec<Old> =
            self.segments.iter().filter(|old| old.next <= end).cloned().collect();
        let mut done = groups(&within, self.segment_bytes);
        for group in &mut done {
            self.rewrite(group, &last, &producers)?;
        }
        Ok(Compacted { dir: self.dir, groups: done, cuts: self.cuts, cleaned_to: end })
    }

    fn rewrite(
        &self,
        group: &mut Group,
        last: &LastOffsets,
        producers: &HashMap<i64, Offset>,
    ) -> Result<(), LogError> {
        let mut out = super::swap::Cleaned::create(&self.dir, group.base(), group.end())?;
        let mut is_same = group.old.len() == 1;
        for old in &group.old {
            each_batch(&self.dir, old, |batch, bytes| {
                if batch.is_control() {
                    return out.append(bytes);
                }
                let is_needed = producers.get(&batch.producer_id) == Some(&batch.base_offset);
                let is_old = batch.max_timestamp < self.tombstones_before_ms;
                let left = left_of(bytes, batch, is_needed, |record| {
                    let offset = batch.base_offset + record.offset_delta;
                    stays(offset, record, last, offset < self.cleaned_to, is_old)
                })
                .map_err(|error| self.unreadable(old, batch, &error))?;
                match left {
                    Left::All => out.append(bytes),
                    Left::Some(bytes) => {
                        is_same = false;
                        out.append(&bytes)
                    }
                    Left::Nothing => {
                        is_same = false;
                        Ok(())
                    }
                }
            })?;
        }
        group.bytes = if is_same { out.discard().map(|()| None)? } else { Some(out.finish()?) };
        Ok(())
    }
}

/// What was written beside a log.
#[derive(Debug)]
pub struct Compacted {
    pub(super) dir: std::path::PathBuf,
    pub(super) groups: Vec<Group>,
    pub(super) cuts: u64,
    pub(super) cleaned_to: Offset,
}

impl Log {
    /// Up to where each key is there once.
    pub const fn cleaned_to(&self) -> Offset {
        self.cleaned_to
    }

    /// What the last life wrote down of that.
    pub fn set_cleaned_to(&mut self, offset: Offset) {
        self.cleaned_to = offset.min(self.end);
    }

    /// What there is to compact below `high_watermark`, if that is enough of the log
    /// (`min.cleanable.dirty.ratio`).
    pub fn begin_compaction(&self, high_watermark: Offset, now_ms: i64) -> Option<Compaction> {
        if !self.settings.compacts {
            return None;
        }
        let bases: Vec<Offset> = self.segments.keys().copied().collect();
        let old = |pair: &[Offset]| {
            let Segment { file, size, .. } = self.segments.get(&pair[0])?;
            Some(Old { base: pair[0], next: pair[1], file: Arc::clone(file), size: *size })
        };
        let segments: Vec<Old> =
            bases.windows(2).take_while(|pair| pair[1] <= high_watermark).filter_map(old).collect();
        let all: u64 = segments.iter().map(|old| old.size).sum();
        let dirty = segments.iter().filter(|old| old.next > self.cleaned_to).map(|old| old.size);
        let dirty: u64 = dirty.sum();
        #[expect(clippy::cast_precision_loss, reason = "a share of the bytes, about")]
        let is_enough = dirty as f64 >= self.settings.min_dirty_ratio * all as f64;
        (dirty > 0 && is_enough).then(|| Compaction {
            dir: self.dir.clone(),
            segments,
            cuts: self.cuts,
            cleaned_to: self.cleaned_to,
            segment_bytes: self.settings.segment_bytes,
            tombstones_before_ms: now_ms.saturating_sub(self.settings.delete_retention_ms),
        })
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::records::Compression;

    use super::*;
    use crate::log::batch::check;
    use crate::log::batch::tests::from_producer;
    use crate::log::records::tests::encoded;

    fn record<'a>(key: &'a [u8], value: Option<&'a [u8]>) -> Record<'a> {
        Record { timestamp_delta: 0, offset_delta: 0, key: Some(key), value, body: &[] }
    }

    #[test]
    fn the_last_of_each_key_stays() {
        let last = LastOffsets::from([(b"k".to_vec(), Offset(7))]);
        let value = Some(&b"v"[..]);
        assert!(!stays(Offset(6), &record(b"k", value), &last, false, false));
        assert!(stays(Offset(7), &record(b"k", value), &last, false, false));
        assert!(stays(Offset(3), &record(b"other", value), &last, true, true));
    }

    #[test]
    fn that_a_key_is_gone_is_said_until_all_before_is_gone_and_it_was_said_for_long_enough() {
        let last = LastOffsets::new();
        let gone = record(b"k", None);
        assert!(stays(Offset(1), &gone, &last, false, true));
        assert!(stays(Offset(1), &gone, &last, true, false));
        assert!(!stays(Offset(1), &gone, &last, true, true));
    }

    #[test]
    fn a_batch_loses_records_and_keeps_its_place_whatever_its_codec() {
        let pairs: Vec<_> = (0..9_u8).map(|key| (Some(vec![key]), Some(vec![key; 40]))).collect();
        for codec in [
            Compression::None,
            Compression::Gzip,
            Compression::Snappy,
            Compression::Lz4,
            Compression::Zstd,
        ] {
            let bytes = encoded(100, &pairs, codec);
            let batch = Batch::header(&bytes).unwrap();
            let odd = |record: &Record<'_>| record.offset_delta % 2 == 1;
            let Left::Some(left) = left_of(&bytes, &batch, false, odd).unwrap() else {
                panic!("some of it")
            };
            check(&left).unwrap();
            let now = Batch::header(&left).unwrap();
            assert_eq!((now.base_offset, now.last_offset()), (Offset(100), Offset(108)));
            assert_eq!((now.count, now.codec()), (4, batch.codec()));
            assert_eq!(now.max_timestamp, 1_007);
            let mut found = Vec::new();
            each_record(&left, &now, |record| {
                found.push((record.offset_delta, record.key.unwrap().to_vec()));
            })
            .unwrap();
            assert_eq!(found, [1, 3, 5, 7].map(|key| (i64::from(key), vec![key])));
            assert_eq!(left_of(&bytes, &batch, false, |_| true).unwrap(), Left::All);
            assert_eq!(left_of(&bytes, &batch, false, |_| false).unwrap(), Left::Nothing);
        }
    }

    #[test]
    fn the_last_word_of_a_producer_stays_without_records() {
        let bytes = from_producer(10, 2, 3, 77, 1, 40);
        let batch = Batch::header(&bytes).unwrap();
        let Left::Some(left) = left_of(&bytes, &batch, true, |_| false).unwrap() else {
            panic!("its header")
        };
        check(&left).unwrap();
        let now = Batch::header(&left).unwrap();
        assert_eq!((now.count, now.bytes), (0, HEADER_BYTES));
        assert_eq!((now.producer_id, now.base_sequence, now.last_offset_delta), (77, 40, 2));
    }

    #[test]
    fn small_segments_become_one() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let old = |base: i64, size: u64| Old {
            base: Offset(base),
            next: Offset(base + 10),
            file: Arc::clone(&file),
            size,
        };
        let segments = [old(0, 60), old(10, 30), old(20, 20), old(30, 90), old(40, 1)];
        let groups = groups(&segments, 100);
        let ends: Vec<_> = groups.iter().map(|group| (group.base().0, group.end().0)).collect();
        assert_eq!(ends, [(0, 20), (20, 30), (30, 50)]);
    }
}
