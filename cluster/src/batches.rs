//! The headers of record batches, in the shape that brokers send and keep: magic 2.

use history::BatchMark;

/// From the first offset to the end of the length.
pub(crate) const LENGTH_END: usize = 12;
/// From the first offset to the end of the number of records.
pub(crate) const HEADER_BYTES: usize = 61;
/// What a header takes of the length.
const LEAST_LENGTH: usize = HEADER_BYTES - LENGTH_END;
const MAGIC: u8 = 2;

/// A batch's mark, and how many bytes it takes, from the 61 bytes of its header. None where that is no
/// header.
pub(crate) fn read_header(bytes: &[u8]) -> Option<(BatchMark, usize)> {
    let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
    let number =
        |at: usize| -> Option<u32> { Some(u32::from_be_bytes(*header.get(at..)?.first_chunk()?)) };
    let first = i64::from_be_bytes(*header.first_chunk()?);
    let length = usize::try_from(number(8)?).ok()?;
    let span = number(23)?.cast_signed();
    if length < LEAST_LENGTH || header[16] != MAGIC || first < 0 || span < 0 {
        return None;
    }
    let last = first.checked_add(i64::from(span))?;
    let mark = BatchMark { first, last, epoch: number(12)?.cast_signed(), crc: number(17)? };
    Some((mark, length.checked_add(LENGTH_END)?))
}

/// How a producer numbered the records of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// The producer, and in which epoch.
    pub(crate) producer: (i64, i16),
    /// Of the first record.
    pub(crate) first: i32,
    /// Of the last record. Numbers go from the greatest on with 0.
    pub(crate) last: i32,
}

/// The numbers in a header; none where no producer numbers its records, and in markers of transactions.
pub(crate) fn read_numbers(header: &[u8; HEADER_BYTES]) -> Option<Numbers> {
    const CONTROL: u8 = 1 << 5;
    let number =
        |at: usize| -> Option<i32> { Some(i32::from_be_bytes(*header.get(at..)?.first_chunk()?)) };
    let id = i64::from_be_bytes(*header.get(43..)?.first_chunk()?);
    let epoch = i16::from_be_bytes(*header.get(51..)?.first_chunk()?);
    let (first, span) = (number(53)?, number(23)?);
    if id < 0 || first < 0 || header[22] & CONTROL != 0 {
        return None;
    }
    let last = (i64::from(first) + i64::from(span)) % (i64::from(i32::MAX) + 1);
    Some(Numbers { producer: (id, epoch), first, last: i32::try_from(last).ok()? })
}

/// The whole batches in what a fetch returned; it may end in a part of one.
pub(crate) fn read_batches(mut bytes: &[u8]) -> Vec<BatchMark> {
    let mut batches = Vec::new();
    while let Some((mark, size)) = read_header(bytes) {
        let Some(rest) = bytes.get(size..) else { break };
        batches.push(mark);
        bytes = rest;
    }
    batches
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A batch with this mark and so many bytes after its header.
    pub(crate) fn batch(mark: BatchMark, body: usize) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES + body];
        let length = u32::try_from(LEAST_LENGTH + body).unwrap();
        bytes[..8].copy_from_slice(&mark.first.to_be_bytes());
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[12..16].copy_from_slice(&mark.epoch.to_be_bytes());
        bytes[16] = MAGIC;
        bytes[17..21].copy_from_slice(&mark.crc.to_be_bytes());
        let span = i32::try_from(mark.last - mark.first).unwrap();
        bytes[23..27].copy_from_slice(&span.to_be_bytes());
        bytes
    }

    pub(crate) const fn mark(first: i64, last: i64, epoch: i32, crc: u32) -> BatchMark {
        BatchMark { first, last, epoch, crc }
    }

    #[test]
    fn whole_batches_are_read_and_a_cut_one_is_not() {
        let (a, b) = (mark(3, 5, 1, 77), mark(6, 6, 2, u32::MAX));
        let mut bytes = batch(a, 10);
        bytes.extend(batch(b, 0));
        assert_eq!(read_batches(&bytes), [a, b]);
        bytes.extend(&batch(mark(7, 7, 2, 1), 20)[..70]);
        assert_eq!(read_batches(&bytes), [a, b]);
        bytes.truncate(HEADER_BYTES + 10 + HEADER_BYTES - 1);
        assert_eq!(read_batches(&bytes), [a]);
    }

    #[test]
    fn what_is_no_header_is_not_read() {
        for (spoilt, byte) in [(0, 0xff), (11, 3), (16, 1), (23, 0xff)] {
            let mut bytes = batch(mark(3, 5, 1, 77), 10);
            bytes[spoilt] = byte;
            assert_eq!(read_header(&bytes), None, "byte {spoilt}");
        }
        assert_eq!(read_header(&[0; HEADER_BYTES]), None);
    }
}
