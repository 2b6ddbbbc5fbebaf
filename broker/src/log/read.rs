//! Reading a log: whole batches, from the page cache, once.

use std::os::unix::fs::FileExt;

use bytes::Bytes;
use replication::types::Offset;

use crate::log::batch::{Batch, HEADER_BYTES};
use crate::log::log::{Log, owned};
use crate::log::records::each_record;
use crate::log::segment::Segment;
use crate::log::{LogError, batches};

impl Log {
    /// Whole batches from the one that holds `from` on, up to `end` (exclusive), at most
    /// `max_bytes`; with `at_least_one`, one batch is given however large it is.
    ///
    /// # Errors
    /// The disk, or an offset outside the log.
    pub fn read(
        &self,
        from: Offset,
        end: Offset,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<Bytes, LogError> {
        if from < self.start || from > self.end {
            return Err(LogError::OutOfRange { asked: from, start: self.start, end: self.end });
        }
        let mut begin = self.segments.range(..=from).next_back().map(|(base, _)| *base);
        while let Some(base) = begin {
            let Some(segment) = self.segments.get(&base) else { break };
            let found = read_segment(segment, from, end, max_bytes, at_least_one)?;
            if let Some(found) = found {
                return Ok(found);
            }
            // Compaction, or a cut, left nothing from here to the next segment.
            begin = self.segments.range(base + 1..).next().map(|(base, _)| *base);
        }
        Ok(Bytes::new())
    }

    /// The position of the batch that holds `offset` (or of the end of its segment), and the
    /// offset at which a log would end that is cut there.
    pub(super) fn position_of(&self, offset: Offset) -> Result<(u64, Offset), LogError> {
        let Some((_, segment)) = self.segments.range(..=offset).next_back() else {
            return Ok((0, offset));
        };
        let mut position = segment.floor(offset);
        let mut next = if position == 0 { segment.base } else { offset };
        while let Some(batch) = header_at(segment, position)? {
            if batch.last_offset() >= offset {
                return Ok((position, batch.base_offset.min(offset)));
            }
            position += batch.bytes as u64;
            next = batch.next_offset();
        }
        Ok((position, next))
    }

    /// About how many bytes lie from `from` to `end`; 0 only if there is nothing.
    pub fn bytes_between(&self, from: Offset, end: Offset) -> u64 {
        if from >= end {
            return 0;
        }
        let mut bytes = 0;
        for (base, segment) in &self.segments {
            if *base >= end {
                break;
            }
            if let Some((next, _)) = self.segments.range(*base + 1..).next()
                && *next <= from
            {
                continue;
            }
            bytes += segment.size - segment.floor(from.max(*base)).min(segment.size);
        }
        bytes.max(1)
    }

    /// The first record at or after `timestamp`: its timestamp and offset.
    ///
    /// # Errors
    /// The disk, or records that cannot be read.
    pub fn offset_for_timestamp(&self, timestamp: i64) -> Result<Option<(i64, Offset)>, LogError> {
        for segment in self.segments.values() {
            if segment.max_timestamp.0 < timestamp {
                continue;
            }
            let mut position = segment.floor(segment.floor_by_time(timestamp));
            while let Some(batch) = header_at(segment, position)? {
                if batch.max_timestamp >= timestamp && batch.last_offset() >= self.start {
                    let found = records_at(segment, position, &batch)?
                        .into_iter()
                        .find(|(time, offset)| *time >= timestamp && *offset >= self.start);
                    if found.is_some() {
                        return Ok(found);
                    }
                }
                position += batch.bytes as u64;
            }
        }
        Ok(None)
    }

    /// The record with the greatest timestamp.
    ///
    /// # Errors
    /// The disk, or records that cannot be read.
    pub fn offset_of_max_timestamp(&self) -> Result<Option<(i64, Offset)>, LogError> {
        let most = self.segments.values().map(|segment| segment.max_timestamp.0).max();
        match most {
            Some(most) if most >= 0 => self.offset_for_timestamp(most),
            _ => Ok(None),
        }
    }

    /// Every batch's header from `from` on.
    ///
    /// # Errors
    /// The disk, or what `each` says.
    pub fn each_batch(&self, from: Offset, mut each: impl FnMut(&Batch)) -> Result<(), LogError> {
        for segment in self.segments.values() {
            let mut position = if segment.base < from { segment.floor(from) } else { 0 };
            while let Some(batch) = header_at(segment, position)? {
                if batch.last_offset() >= from {
                    each(&batch);
                }
                position += batch.bytes as u64;
            }
        }
        Ok(())
    }
}

/// The header of the batch at `position`; `None` at the end.
pub(super) fn header_at(segment: &Segment, position: u64) -> Result<Option<Batch>, LogError> {
    if position + HEADER_BYTES as u64 > segment.size {
        return Ok(None);
    }
    let mut header = [0; HEADER_BYTES];
    segment
        .file
        .read_exact_at(&mut header, position)
        .map_err(LogError::disk(segment.log_path()))?;
    let damaged = |reason: String| LogError::Damaged { path: segment.log_path(), position, reason };
    let batch = Batch::header(&header).map_err(|error| damaged(error.to_string()))?;
    Ok(Some(batch))
}

fn read_segment(
    segment: &Segment,
    from: Offset,
    end: Offset,
    max_bytes: usize,
    at_least_one: bool,
) -> Result<Option<Bytes>, LogError> {
    let mut position = segment.floor(from);
    let first = loop {
        match header_at(segment, position)? {
            None => return Ok(None),
            Some(batch) if batch.last_offset() >= from => break batch,
            Some(batch) => position += batch.bytes as u64,
        }
    };
    if first.base_offset >= end {
        return Ok(Some(Bytes::new()));
    }
    if first.bytes > max_bytes && !at_least_one {
        return Ok(Some(Bytes::new()));
    }
    let left = usize::try_from(segment.size - position).unwrap_or(usize::MAX);
    let wanted = max_bytes.max(first.bytes).min(left);
    let mut bytes = vec![0; wanted];
    segment.file.read_exact_at(&mut bytes, position).map_err(LogError::disk(segment.log_path()))?;
    // Whole batches only, and none that reaches to `end`.
    let whole = batches(&bytes)
        .map_while(Result::ok)
        .take_while(|(_, batch)| batch.last_offset() < end)
        .last()
        .map_or(0, |(at, batch)| at + batch.bytes);
    bytes.truncate(whole);
    Ok(Some(owned(bytes)))
}

fn records_at(
    segment: &Segment,
    position: u64,
    batch: &Batch,
) -> Result<Vec<(i64, Offset)>, LogError> {
    let mut bytes = vec![0; batch.bytes];
    segment.file.read_exact_at(&mut bytes, position).map_err(LogError::disk(segment.log_path()))?;
    let mut found = Vec::new();
    each_record(&bytes, batch, |record| {
        let timestamp = if batch.has_log_append_time() {
            batch.max_timestamp
        } else {
            batch.base_timestamp + record.timestamp_delta
        };
        found.push((timestamp, batch.base_offset + record.offset_delta));
    })
    .map_err(|error| LogError::Damaged {
        path: segment.log_path(),
        position,
        reason: error.to_string(),
    })?;
    Ok(found)
}
