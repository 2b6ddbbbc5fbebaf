//! What records of a bench hold.

/// Bytes at the front of a payload that tell when its record was due.
const STAMP_BYTES: usize = 8;

/// A payload of `bytes` bytes that no codec makes smaller: the same for the same seed.
pub(super) fn filler(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let mut filler = Vec::with_capacity(bytes + STAMP_BYTES);
    while filler.len() < bytes {
        // SplitMix64 (Steele, Lea, Flood 2014): every seed gives a full period of its own.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        filler.extend_from_slice(&(word ^ (word >> 31)).to_le_bytes());
    }
    filler.truncate(bytes);
    filler
}

/// Writes into the front of `payload` when its record is due, as far as there is room.
pub(super) fn stamp(payload: &mut [u8], due_us: u64) {
    if let Some(front) = payload.first_chunk_mut::<STAMP_BYTES>() {
        *front = due_us.to_be_bytes();
    }
}

/// When the record with this payload was due; `None` where the payload is too short to say.
pub(super) fn stamped(payload: &[u8]) -> Option<u64> {
    payload.first_chunk::<STAMP_BYTES>().map(|front| u64::from_be_bytes(*front))
}

/// The shortest payload that can be stamped.
pub(super) const fn shortest_stamped() -> usize {
    STAMP_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filler_depends_on_its_seed_alone_and_has_its_length() {
        assert_eq!(filler(7, 100), filler(7, 100));
        assert_ne!(filler(7, 100), filler(8, 100));
        assert_eq!([0, 1, 8, 13].map(|bytes| filler(1, bytes).len()), [0, 1, 8, 13]);
        // The first word of the sequence of seed 0, as published with the generator.
        assert_eq!(filler(0, 8), 0xE220_A839_7B1D_CDAF_u64.to_le_bytes());
    }

    #[test]
    fn a_stamp_is_read_as_it_was_written_and_short_payloads_have_none() {
        let mut payload = filler(1, 20);
        let tail = payload[8..].to_vec();
        stamp(&mut payload, 123_456_789);
        assert_eq!(stamped(&payload), Some(123_456_789));
        assert_eq!(payload[8..], tail);
        stamp(&mut payload[..7], 1);
        assert_eq!(stamped(&payload), Some(123_456_789));
        assert_eq!(stamped(&payload[..7]), None);
    }
}
