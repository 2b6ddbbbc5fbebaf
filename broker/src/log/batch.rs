//! v2 batches as bytes.

use replication::types::{LeaderEpoch, Offset};
use thiserror::Error;

/// Bytes of a batch's header.
pub const HEADER_BYTES: usize = 61;
/// Base offset and length, before what the length counts.
pub const OVERHEAD_BYTES: usize = 12;
/// Where the bytes begin that the checksum covers.
const CRC_COVERS_FROM: usize = 21;
const CONTROL: i16 = 0x20;
const TRANSACTIONAL: i16 = 0x10;
const LOG_APPEND_TIME: i16 = 0x08;
const CODEC: i16 = 0x07;

/// Why bytes are no batch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BatchError {
    /// They end too early.
    #[error("a batch of {needed} bytes is cut at {found}")]
    Cut {
        /// So many there should be.
        needed: usize,
        /// So many there are.
        found: usize,
    },
    /// Another format than v2.
    #[error("format {0} is not supported, only 2 is")]
    Magic(i8),
    /// A length that cannot be.
    #[error("a batch cannot be {0} bytes long")]
    Length(i32),
    /// The checksum does not fit.
    #[error("the checksum is {found:08x}; the bytes have {computed:08x}")]
    Checksum {
        /// In the header.
        found: u32,
        /// Of the bytes.
        computed: u32,
    },
    /// Counts in the header contradict each other.
    #[error("{0}")]
    Inconsistent(String),
}

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// All of it, in bytes.
    pub bytes: usize,
    /// The leader epoch in which it was appended.
    pub leader_epoch: LeaderEpoch,
    /// Its checksum, of all that follows it.
    pub crc: u32,
    /// Codec, kind of timestamps, and so on.
    pub attributes: i16,
    /// Of the last record, from the base.
    pub last_offset_delta: i32,
    /// Of the first record.
    pub base_timestamp: i64,
    /// The greatest.
    pub max_timestamp: i64,
    /// Who produced it; -1: nobody in particular.
    pub producer_id: i64,
    /// In which epoch.
    pub producer_epoch: i16,
    /// The first record's number among the producer's.
    pub base_sequence: i32,
    /// How many records.
    pub count: i32,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

impl Batch {
    /// Reads the header at the start of `bytes`; the batch itself may reach beyond them.
    ///
    /// # Errors
    /// [`BatchError`].
    pub fn header(bytes: &[u8]) -> Result<Self, BatchError> {
        Self::parse(bytes)
            .unwrap_or(Err(BatchError::Cut { needed: HEADER_BYTES, found: bytes.len() }))
    }

    fn parse(bytes: &[u8]) -> Option<Result<Self, BatchError>> {
        let length = i32::from_be_bytes(array(bytes, 8)?);
        let magic = i8::from_be_bytes(array(bytes, 16)?);
        if magic != 2 {
            return Some(Err(BatchError::Magic(magic)));
        }
        let total = usize::try_from(length).ok().map(|length| length + OVERHEAD_BYTES);
        let Some(total) = total.filter(|total| *total >= HEADER_BYTES) else {
            return Some(Err(BatchError::Length(length)));
        };
        let batch = Self {
            base_offset: Offset(i64::from_be_bytes(array(bytes, 0)?)),
            bytes: total,
            leader_epoch: LeaderEpoch(i32::from_be_bytes(array(bytes, 12)?)),
            crc: u32::from_be_bytes(array(bytes, 17)?),
            attributes: i16::from_be_bytes(array(bytes, 21)?),
            last_offset_delta: i32::from_be_bytes(array(bytes, 23)?),
            base_timestamp: i64::from_be_bytes(array(bytes, 27)?),
            max_timestamp: i64::from_be_bytes(array(bytes, 35)?),
            producer_id: i64::from_be_bytes(array(bytes, 43)?),
            producer_epoch: i16::from_be_bytes(array(bytes, 51)?),
            base_sequence: i32::from_be_bytes(array(bytes, 53)?),
            count: i32::from_be_bytes(array(bytes, 57)?),
        };
        if batch.last_offset_delta < 0 || batch.base_offset < Offset::ZERO {
            return Some(Err(BatchError::Inconsistent(format!(
                "offsets from {} to {} past it",
                batch.base_offset, batch.last_offset_delta
            ))));
        }
        Some(Ok(batch))
    }

    /// Offset of its last record.
    pub fn last_offset(&self) -> Offset {
        self.base_offset + i64::from(self.last_offset_delta)
    }

    /// The offset after its last record.
    pub fn next_offset(&self) -> Offset {
        self.last_offset() + 1
    }

    /// 0: not compressed.
    pub const fn codec(&self) -> i16 {
        self.attributes & CODEC
    }

    /// Written by brokers, not by producers.
    pub const fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// Part of a transaction.
    pub const fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    /// Its records carry the broker's time.
    pub const fn has_log_append_time(&self) -> bool {
        self.attributes & LOG_APPEND_TIME != 0
    }

    /// From an idempotent producer.
    pub const fn has_producer(&self) -> bool {
        self.producer_id >= 0
    }
}

/// Does the checksum of the whole batch `bytes` fit?
///
/// # Errors
/// [`BatchError`].
pub fn check(bytes: &[u8]) -> Result<(), BatchError> {
    let batch = Batch::header(bytes)?;
    let covered = bytes
        .get(CRC_COVERS_FROM..batch.bytes)
        .ok_or(BatchError::Cut { needed: batch.bytes, found: bytes.len() })?;
    let computed = crc32c::crc32c(covered);
    if computed == batch.crc {
        return Ok(());
    }
    Err(BatchError::Checksum { found: batch.crc, computed })
}

/// Gives the batch `bytes` its place in the log. The checksum does not cover what changes.
pub fn place(bytes: &mut [u8], base_offset: Offset, leader_epoch: LeaderEpoch) {
    if let Some(field) = bytes.get_mut(0..8) {
        field.copy_from_slice(&base_offset.0.to_be_bytes());
    }
    if let Some(field) = bytes.get_mut(12..16) {
        field.copy_from_slice(&leader_epoch.0.to_be_bytes());
    }
}

/// Gives the batch `bytes` the broker's time (`message.timestamp.type=LogAppendTime`), and a new
/// checksum.
pub fn stamp(bytes: &mut [u8], now_ms: i64) {
    let Ok(batch) = Batch::header(bytes) else { return };
    let attributes = batch.attributes | LOG_APPEND_TIME;
    if let Some(field) = bytes.get_mut(21..23) {
        field.copy_from_slice(&attributes.to_be_bytes());
    }
    if let Some(field) = bytes.get_mut(35..43) {
        field.copy_from_slice(&now_ms.to_be_bytes());
    }
    if let Some(whole) = bytes.get_mut(..batch.bytes) {
        checksum(whole);
    }
}

/// Puts the header of the batch `bytes` right for the records that are in it now: its length, codec,
/// count, greatest timestamp and checksum.
pub(super) fn reseal(bytes: &mut [u8], codec: i16, count: i32, max_timestamp: i64) {
    let Ok(batch) = Batch::header(bytes) else { return };
    let length = i32::try_from(bytes.len() - OVERHEAD_BYTES).unwrap_or(i32::MAX);
    let attributes = (batch.attributes & !CODEC) | codec;
    let mut put = |at: usize, value: &[u8]| {
        if let Some(field) = bytes.get_mut(at..at + value.len()) {
            field.copy_from_slice(value);
        }
    };
    put(8, &length.to_be_bytes());
    put(21, &attributes.to_be_bytes());
    put(35, &max_timestamp.to_be_bytes());
    put(57, &count.to_be_bytes());
    checksum(bytes);
}

/// Changes the last value of the batch `bytes` and gives it a new checksum: a seeded bug. The value
/// ends one byte before the batch does, where a record has no headers.
pub fn corrupt(bytes: &mut [u8]) {
    if let Some(last) = bytes.len().checked_sub(2).and_then(|at| bytes.get_mut(at)) {
        *last ^= 1;
    }
    checksum(bytes);
}

fn checksum(bytes: &mut [u8]) {
    let crc = crc32c::crc32c(bytes.get(CRC_COVERS_FROM..).unwrap_or_default());
    if let Some(field) = bytes.get_mut(17..21) {
        field.copy_from_slice(&crc.to_be_bytes());
    }
}

/// Every whole batch in `bytes`: where it begins, and its header. Ends with an error where bytes
/// are no batch, or are cut.
pub fn batches(bytes: &[u8]) -> impl Iterator<Item = Result<(usize, Batch), BatchError>> {
    let mut at = 0;
    let mut failed = false;
    std::iter::from_fn(move || {
        if failed || at >= bytes.len() {
            return None;
        }
        let rest = &bytes[at..];
        let batch = Batch::header(rest).and_then(|batch| {
            if batch.bytes <= rest.len() {
                Ok(batch)
            } else {
                Err(BatchError::Cut { needed: batch.bytes, found: rest.len() })
            }
        });
        Some(match batch {
            Ok(batch) => {
                let begin = at;
                at += batch.bytes;
                Ok((begin, batch))
            }
            Err(error) => {
                failed = true;
                Err(error)
            }
        })
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A batch of `count` empty-keyed records with one-byte values, without a producer.
    pub(crate) fn batch(base_offset: i64, epoch: i32, count: i32) -> Vec<u8> {
        from_producer(base_offset, epoch, count, -1, -1, -1)
    }

    /// As [`batch`], of an idempotent producer.
    pub(crate) fn from_producer(
        base_offset: i64,
        epoch: i32,
        count: i32,
        producer_id: i64,
        producer_epoch: i16,
        base_sequence: i32,
    ) -> Vec<u8> {
        let mut records = Vec::new();
        for delta in 0..count {
            // length, attributes, timestamp delta, offset delta, no key, one byte, no headers
            let zigzag = u8::try_from(delta * 2).unwrap();
            let body = [0, 0, zigzag, 1, 2, b'v', 0];
            records.push(u8::try_from(body.len() * 2).unwrap());
            records.extend(body);
        }
        let mut bytes = Vec::new();
        bytes.extend(base_offset.to_be_bytes());
        bytes.extend(i32::try_from(HEADER_BYTES - 12 + records.len()).unwrap().to_be_bytes());
        bytes.extend(epoch.to_be_bytes());
        bytes.push(2);
        bytes.extend([0; 4]);
        bytes.extend(0_i16.to_be_bytes());
        bytes.extend((count - 1).to_be_bytes());
        bytes.extend(1_000_i64.to_be_bytes());
        bytes.extend((1_000 + base_offset).to_be_bytes());
        bytes.extend(producer_id.to_be_bytes());
        bytes.extend(producer_epoch.to_be_bytes());
        bytes.extend(base_sequence.to_be_bytes());
        bytes.extend(count.to_be_bytes());
        bytes.extend(records);
        let crc = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    #[test]
    fn a_header_says_what_it_says_and_placing_keeps_the_checksum() {
        let mut bytes = batch(7, 3, 5);
        check(&bytes).unwrap();
        place(&mut bytes, Offset(100), LeaderEpoch(9));
        check(&bytes).unwrap();
        let header = Batch::header(&bytes).unwrap();
        assert_eq!((header.base_offset, header.last_offset()), (Offset(100), Offset(104)));
        assert_eq!((header.leader_epoch, header.count), (LeaderEpoch(9), 5));
        stamp(&mut bytes, 77);
        check(&bytes).unwrap();
        assert_eq!(Batch::header(&bytes).unwrap().max_timestamp, 77);
    }

    #[test]
    fn a_flipped_bit_is_seen() {
        let mut bytes = batch(0, 0, 2);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert!(matches!(check(&bytes), Err(BatchError::Checksum { .. })));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_walked_without_a_panic(bytes: Vec<u8>) {
            let walked: usize = batches(&bytes).flatten().map(|(_, batch)| batch.bytes).sum();
            prop_assert!(walked <= bytes.len());
        }

        #[test]
        fn mutated_batches_are_walked_without_a_panic(at in 0..61_usize, with: u8) {
            let mut bytes = [batch(0, 0, 2), batch(2, 0, 3)].concat();
            bytes[at] = with;
            let walked: usize = batches(&bytes).flatten().map(|(_, batch)| batch.bytes).sum();
            prop_assert!(walked <= bytes.len());
        }
    }
}
