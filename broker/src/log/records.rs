//! The records inside a batch, one after the other. Compressed ones are unpacked as they are walked
//! over, in bounded memory: what a batch claims about itself reserves nothing.

use std::io::{self, BufRead, BufReader, Read};

use thiserror::Error;

use crate::log::batch::{Batch, HEADER_BYTES};

/// A batch may not become larger than this when it is unpacked: it costs time, if no memory.
pub(super) const MOST_UNPACKED_BYTES: u64 = 128 * 1024 * 1024;
/// Snappy makes at most 64 bytes out of 3; a block that claims more lies.
const SNAPPY_MOST_RATIO: usize = 22;
/// What Java's library puts before its blocks, and what follows of its header.
const XERIAL_MAGIC: &[u8; 8] = b"\x82SNAPPY\x00";
const XERIAL_HEADER_BYTES: usize = 16;

/// Why records cannot be walked over.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum RecordsError {
    /// One of them is not what its length says.
    #[error("record {0} of the batch is malformed")]
    Malformed(i32),
    /// There is more than the header says.
    #[error("bytes follow the last record")]
    Trailing,
    /// They cannot be unpacked.
    #[error("they cannot be unpacked: {0}")]
    Packed(String),
    /// They are too large.
    #[error("they are more than {MOST_UNPACKED_BYTES} bytes when unpacked")]
    TooLarge,
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// Its timestamp, from the batch's base.
    pub(super) timestamp_delta: i64,
    /// Its offset, from the batch's base.
    pub(super) offset_delta: i64,
    /// Its key.
    pub(super) key: Option<&'a [u8]>,
    /// Its value; `None`: the key is gone.
    pub(super) value: Option<&'a [u8]>,
    /// All of it but the length in front.
    pub(super) body: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads a record whose length was read before; `None` where it does not fill `body` exactly.
    fn parse(body: &'a [u8]) -> Option<Self> {
        let mut rest = body.get(1..)?;
        let timestamp_delta = varint(&mut rest)?;
        let offset_delta = varint(&mut rest)?;
        let key = bytes(&mut rest)?.0;
        let value = bytes(&mut rest)?.0;
        for _ in 0..varint(&mut rest).filter(|headers| *headers >= 0)? {
            bytes(&mut rest)?.0?;
            bytes(&mut rest)?;
        }
        rest.is_empty().then_some(Self { timestamp_delta, offset_delta, key, value, body })
    }
}

/// Bytes, or null.
struct Nullable<'a>(Option<&'a [u8]>);

/// Bytes with their length before them; -1: null.
fn bytes<'a>(rest: &mut &'a [u8]) -> Option<Nullable<'a>> {
    let length = varint(rest)?;
    if length == -1 {
        return Some(Nullable(None));
    }
    let (found, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = behind;
    Some(Nullable(Some(found)))
}

/// A zigzag varint of at most 64 bits.
fn varint(rest: &mut &[u8]) -> Option<i64> {
    decode_varint(|| {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        Some(*byte)
    })
}

fn decode_varint(mut next: impl FnMut() -> Option<u8>) -> Option<i64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = next()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()));
        }
    }
    None
}

/// A length as a zigzag varint.
pub(super) fn put_length(out: &mut Vec<u8>, length: usize) {
    let mut value = (length as u64) << 1;
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or_default());
}

/// Shows `visit` every record of the whole batch `bytes`.
///
/// # Errors
/// [`RecordsError`]; some may have been shown by then.
pub(super) fn each_record(
    bytes: &[u8],
    batch: &Batch,
    visit: impl FnMut(&Record<'_>),
) -> Result<(), RecordsError> {
    let packed = bytes.get(HEADER_BYTES..).unwrap_or_default();
    if batch.codec() == 0 {
        return walk(packed, batch.count, visit);
    }
    let unpacked = unpacked(batch.codec(), packed).map_err(packed_badly)?;
    walk_unpacked(unpacked, batch.count, visit)
}

fn packed_badly(error: impl std::fmt::Display) -> RecordsError {
    RecordsError::Packed(error.to_string())
}

fn walk(
    mut rest: &[u8],
    count: i32,
    mut visit: impl FnMut(&Record<'_>),
) -> Result<(), RecordsError> {
    for number in 0..count {
        let body = varint(&mut rest)
            .and_then(|length| rest.split_at_checked(usize::try_from(length).ok()?));
        let Some((body, behind)) = body else { return Err(RecordsError::Malformed(number)) };
        rest = behind;
        visit(&Record::parse(body).ok_or(RecordsError::Malformed(number))?);
    }
    if rest.is_empty() { Ok(()) } else { Err(RecordsError::Trailing) }
}

fn walk_unpacked(
    mut from: impl BufRead,
    count: i32,
    mut visit: impl FnMut(&Record<'_>),
) -> Result<(), RecordsError> {
    let mut left = MOST_UNPACKED_BYTES;
    let mut body = Vec::new();
    for number in 0..count {
        let mut failed = None;
        let length = decode_varint(|| match byte(&mut from) {
            Ok(byte) => byte,
            Err(error) => {
                failed = Some(error);
                None
            }
        });
        if let Some(error) = failed {
            return Err(packed_badly(error));
        }
        let length = length.and_then(|length| u64::try_from(length).ok());
        let length = length.ok_or(RecordsError::Malformed(number))?;
        left = left.checked_sub(length).ok_or(RecordsError::TooLarge)?;
        body.clear();
        // It grows with what is there, not with what is claimed.
        let read = (&mut from).take(length).read_to_end(&mut body).map_err(packed_badly)?;
        if read as u64 != length {
            return Err(RecordsError::Malformed(number));
        }
        visit(&Record::parse(&body).ok_or(RecordsError::Malformed(number))?);
    }
    match byte(&mut from) {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(RecordsError::Trailing),
        Err(error) => Err(packed_badly(error)),
    }
}

fn byte(from: &mut impl BufRead) -> io::Result<Option<u8>> {
    let byte = from.fill_buf()?.first().copied();
    if byte.is_some() {
        from.consume(1);
    }
    Ok(byte)
}

/// Unpacks as it is read.
fn unpacked(codec: i16, packed: &[u8]) -> io::Result<Box<dyn BufRead + '_>> {
    Ok(match codec {
        1 => Box::new(BufReader::new(flate2::read::GzDecoder::new(packed))),
        2 => match packed.strip_prefix(XERIAL_MAGIC) {
            Some(_) => {
                let rest = packed.get(XERIAL_HEADER_BYTES..).unwrap_or_default();
                Box::new(BufReader::new(XerialBlocks { rest, block: io::Cursor::default() }))
            }
            None => Box::new(io::Cursor::new(snappy_block(packed)?)),
        },
        3 => Box::new(BufReader::new(lz4::Decoder::new(packed)?)),
        4 => Box::new(BufReader::new(zstd::stream::read::Decoder::with_buffer(packed)?)),
        other => return Err(io::Error::other(format!("codec {other} is not known"))),
    })
}

fn snappy_block(packed: &[u8]) -> io::Result<Vec<u8>> {
    let claimed = snap::raw::decompress_len(packed).map_err(io::Error::other)?;
    if claimed > packed.len().saturating_mul(SNAPPY_MOST_RATIO) {
        return Err(io::Error::other(format!("{claimed} bytes cannot be in {}", packed.len())));
    }
    snap::raw::Decoder::new().decompress_vec(packed).map_err(io::Error::other)
}

/// Blocks as Java's library writes them, each behind its length.
struct XerialBlocks<'a> {
    rest: &'a [u8],
    block: io::Cursor<Vec<u8>>,
}

impl Read for XerialBlocks<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.block.read(out)?;
            if read > 0 || out.is_empty() || self.rest.is_empty() {
                return Ok(read);
            }
            let (length, behind) = self
                .rest
                .split_first_chunk::<4>()
                .ok_or_else(|| io::Error::other("a block without a length"))?;
            let length = usize::try_from(u32::from_be_bytes(*length)).map_err(io::Error::other)?;
            let (block, behind) = behind
                .split_at_checked(length)
                .ok_or_else(|| io::Error::other("a block that is cut"))?;
            self.rest = behind;
            self.block = io::Cursor::new(snappy_block(block)?);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::{Bytes, BytesMut};
    use kafka_protocol::records::{
        Compression, Record as Protocols, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
    };
    use proptest::prelude::*;

    use super::*;

    /// Key and value of a record.
    type Pair = (Option<Vec<u8>>, Option<Vec<u8>>);

    /// A batch as kafka-protocol makes it.
    pub(crate) fn encoded(base_offset: i64, records: &[Pair], compression: Compression) -> Bytes {
        let records: Vec<Protocols> = records
            .iter()
            .zip(0_i32..)
            .map(|((key, value), delta)| Protocols {
                transactional: false,
                control: false,
                delete_horizon: false,
                partition_leader_epoch: 0,
                producer_id: -1,
                producer_epoch: -1,
                timestamp_type: TimestampType::Creation,
                offset: base_offset + i64::from(delta),
                sequence: delta - 1,
                timestamp: 1_000 + i64::from(delta),
                key: key.clone().map(Bytes::from),
                value: value.clone().map(Bytes::from),
                headers: kafka_protocol::indexmap::IndexMap::default(),
            })
            .collect();
        let options = RecordEncodeOptions { version: 2, compression };
        let mut bytes = BytesMut::new();
        RecordBatchEncoder::encode(&mut bytes, &records, &options).unwrap();
        bytes.freeze()
    }

    const CODECS: [Compression; 5] = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];

    fn walked(bytes: &[u8]) -> Result<Vec<Pair>, RecordsError> {
        let batch = Batch::header(bytes).unwrap();
        let mut found = Vec::new();
        each_record(bytes, &batch, |record| {
            found.push((record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec)));
        })?;
        Ok(found)
    }

    fn with_header_of(bytes: &[u8], codec: u8, packed: &[u8]) -> Vec<u8> {
        let mut made = bytes[..HEADER_BYTES].to_vec();
        made[22] = codec;
        made.extend_from_slice(packed);
        made
    }

    #[test]
    fn snappy_without_blocks_is_read_too() {
        let records = [(None, Some(b"value".to_vec()))];
        let plain = encoded(0, &records, Compression::None);
        let packed = snap::raw::Encoder::new().compress_vec(&plain[HEADER_BYTES..]).unwrap();
        assert_eq!(walked(&with_header_of(&plain, 2, &packed)).unwrap(), records);
    }

    /// A few kilobytes that become hundreds of megabytes: refused, and nothing of that size is ever
    /// held.
    #[test]
    fn what_becomes_too_large_is_refused() {
        let plain = encoded(0, &[(None, Some(b"v".to_vec()))], Compression::None);
        let mut zeros = Vec::new();
        // One record that says it is so long, and is.
        put_length(&mut zeros, 300 << 20);
        let mut packed = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        io::Write::write_all(&mut packed, &zeros).unwrap();
        io::copy(&mut io::repeat(0).take(300 << 20), &mut packed).unwrap();
        let packed = packed.finish().unwrap();
        assert!(packed.len() < 100_000);
        assert_eq!(walked(&with_header_of(&plain, 4, &packed)), Err(RecordsError::TooLarge));
    }

    #[test]
    fn a_claim_reserves_nothing() {
        let plain = encoded(0, &[(None, Some(b"v".to_vec()))], Compression::None);
        // A block of snappy that says it has 4 GB.
        let lie = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0];
        assert!(matches!(walked(&with_header_of(&plain, 2, &lie)), Err(RecordsError::Packed(_))));
        // A record that says it has 100 MB.
        let mut long = Vec::new();
        put_length(&mut long, 100 << 20);
        long.extend_from_slice(&[0; 10]);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut packed, &long).unwrap();
        let packed = packed.finish().unwrap();
        let read = walked(&with_header_of(&plain, 1, &packed));
        assert_eq!(read, Err(RecordsError::Malformed(0)));
    }

    fn pair() -> impl Strategy<Value = Pair> {
        let bytes = || prop::option::of(prop::collection::vec(any::<u8>(), 0..300));
        (bytes(), bytes())
    }

    proptest! {
        #[test]
        fn every_codec_gives_back_what_was_put_in(records in prop::collection::vec(pair(), 1..20)) {
            for codec in CODECS {
                prop_assert_eq!(&walked(&encoded(5, &records, codec)).unwrap(), &records);
            }
        }

        #[test]
        fn damage_is_an_error_and_no_panic(
            records in prop::collection::vec(pair(), 1..5),
            at in any::<prop::sample::Index>(),
            with: u8,
            cut in any::<prop::sample::Index>(),
        ) {
            for codec in CODECS {
                let mut bytes = encoded(5, &records, codec).to_vec();
                let at = HEADER_BYTES + at.index(bytes.len() - HEADER_BYTES);
                bytes[at] = with;
                // Either is fine; it must say which.
                let _ = walked(&bytes);
                bytes.truncate(HEADER_BYTES + cut.index(bytes.len() - HEADER_BYTES));
                let _ = walked(&bytes);
            }
        }
    }
}
