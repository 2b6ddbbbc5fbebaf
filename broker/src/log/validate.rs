//! What a producer sent, checked before it is appended.

use bytes::Bytes;
use kafka_protocol::ResponseError;
use thiserror::Error;

use crate::log::LogSettings;
use crate::log::batch::{Batch, BatchError, batches, check};
use crate::log::records::each_record;

/// Why a producer's records are not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ValidationError {
    /// The bytes are no batches.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// Nothing was sent.
    #[error("no records")]
    Empty,
    /// A batch is too large.
    #[error("a batch of {bytes} bytes; max.message.bytes is {most}")]
    TooLarge {
        /// So large it is.
        bytes: usize,
        /// So large it may be.
        most: usize,
    },
    /// Only brokers write control batches; transactions are not supported.
    #[error("{0}")]
    NotAllowed(&'static str),
    /// What is inside contradicts the header, or cannot be decompressed.
    #[error("records that cannot be read: {0}")]
    Records(String),
    /// A compacted topic's records need keys.
    #[error("a record without a key, in a compacted topic")]
    NoKey,
}

impl ValidationError {
    /// Kafka's code for it.
    pub const fn response(&self) -> ResponseError {
        match self {
            Self::Batch(BatchError::Magic(_)) => ResponseError::UnsupportedForMessageFormat,
            Self::Batch(_) | Self::Records(_) => ResponseError::CorruptMessage,
            Self::TooLarge { .. } => ResponseError::MessageTooLarge,
            Self::Empty | Self::NotAllowed(_) | Self::NoKey => ResponseError::InvalidRecord,
        }
    }
}

/// Checks that `records` are whole v2 batches of a producer, with fitting checksums and counts,
/// not too large, and readable inside.
///
/// # Errors
/// The first thing that is wrong.
pub fn validate_from_producer(
    records: &Bytes,
    settings: &LogSettings,
) -> Result<Vec<(usize, Batch)>, ValidationError> {
    let mut found = Vec::with_capacity(1);
    for batch in batches(records) {
        let (at, batch) = batch?;
        if batch.bytes > settings.max_message_bytes {
            return Err(ValidationError::TooLarge {
                bytes: batch.bytes,
                most: settings.max_message_bytes,
            });
        }
        if batch.is_control() {
            return Err(ValidationError::NotAllowed("a control batch from a producer"));
        }
        if batch.is_transactional() {
            return Err(ValidationError::NotAllowed("transactions are not supported"));
        }
        if batch.count != batch.last_offset_delta.saturating_add(1) || batch.count <= 0 {
            return Err(ValidationError::Records(format!(
                "{} records, and a last offset of {}",
                batch.count, batch.last_offset_delta
            )));
        }
        let bytes = records.slice(at..at + batch.bytes);
        check(&bytes)?;
        inside(&bytes, &batch, settings.compacts)?;
        found.push((at, batch));
    }
    if found.is_empty() {
        return Err(ValidationError::Empty);
    }
    Ok(found)
}

fn inside(bytes: &Bytes, batch: &Batch, needs_keys: bool) -> Result<(), ValidationError> {
    let mut expected = 0;
    let mut are_numbered = true;
    let mut have_keys = true;
    each_record(bytes, batch, |record| {
        are_numbered &= record.offset_delta == expected;
        have_keys &= record.key.is_some();
        expected += 1;
    })
    .map_err(|error| ValidationError::Records(error.to_string()))?;
    if !are_numbered {
        return Err(ValidationError::Records("they are not numbered one after the other".into()));
    }
    if needs_keys && !have_keys {
        return Err(ValidationError::NoKey);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::log::batch::tests::batch;

    fn validate(bytes: Vec<u8>) -> Result<usize, ValidationError> {
        let settings = LogSettings { max_message_bytes: 1_000, ..LogSettings::default() };
        validate_from_producer(&Bytes::from(bytes), &settings).map(|found| found.len())
    }

    /// The batch with its checksum put right.
    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let crc = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    #[test]
    fn good_batches_pass_and_bad_ones_are_told_apart() {
        assert_eq!(validate(batch(0, 0, 3)), Ok(1));
        assert_eq!(validate([batch(0, 0, 3), batch(0, 0, 2)].concat()), Ok(2));
        assert_eq!(validate(Vec::new()), Err(ValidationError::Empty));
        let mut old = batch(0, 0, 1);
        old[16] = 1;
        assert_eq!(
            validate(old).unwrap_err().response(),
            ResponseError::UnsupportedForMessageFormat
        );
        let mut flipped = batch(0, 0, 1);
        flipped[65] ^= 1;
        assert_eq!(validate(flipped).unwrap_err().response(), ResponseError::CorruptMessage);
        let mut control = batch(0, 0, 1);
        control[22] |= 0x20;
        assert!(matches!(validate(sealed(control)), Err(ValidationError::NotAllowed(_))));
        let mut count = batch(0, 0, 2);
        count[60] = 3;
        assert!(matches!(validate(sealed(count)), Err(ValidationError::Records(_))));
        let mut delta = batch(0, 0, 2);
        let second = delta.len() - 5;
        delta[second] = 8;
        assert!(matches!(validate(sealed(delta)), Err(ValidationError::Records(_))));
        let cut = batch(0, 0, 2);
        assert!(matches!(validate(cut[..70].to_vec()), Err(ValidationError::Batch(_))));
    }

    #[test]
    fn compacted_topics_need_keys_and_large_batches_are_refused() {
        let settings = LogSettings { compacts: true, ..LogSettings::default() };
        let keyless = validate_from_producer(&Bytes::from(batch(0, 0, 1)), &settings);
        assert_eq!(keyless, Err(ValidationError::NoKey));
        let settings = LogSettings { max_message_bytes: 62, ..LogSettings::default() };
        let large = validate_from_producer(&Bytes::from(batch(0, 0, 1)), &settings);
        assert!(matches!(large, Err(ValidationError::TooLarge { .. })));
    }

    proptest! {
        #[test]
        fn whatever_is_inside_nothing_panics(at in 61..80_usize, with: u8, codec in 0..8_u8) {
            let mut bytes = batch(0, 0, 4);
            let at = at.min(bytes.len() - 1);
            bytes[at] = with;
            bytes[22] = codec;
            // Either is fine; it must say which.
            let _ = validate(sealed(bytes));
        }
    }
}
