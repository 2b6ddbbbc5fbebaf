//! Named random streams of one seed.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use sha2::{Digest, Sha256};

/// A stream of random numbers.
pub type Stream = ChaCha8Rng;

/// The stream called `name` of the run whose seed is `seed`.
///
/// Streams of different names are independent: one that is added, or that draws more than it
/// did, does not shift the others, so an old seed keeps its meaning.
pub fn stream(seed: u64, name: &str) -> Stream {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    hash.update(name.as_bytes());
    ChaCha8Rng::from_seed(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;

    fn first(seed: u64, name: &str) -> u64 {
        stream(seed, name).random()
    }

    #[test]
    fn a_stream_depends_on_its_seed_and_its_name_alone() {
        assert_eq!(first(7, "a"), first(7, "a"));
        assert_ne!(first(7, "a"), first(7, "b"));
        assert_ne!(first(7, "a"), first(8, "a"));
    }

    #[test]
    fn streams_keep_their_numbers_from_release_to_release() {
        assert_eq!(first(42, "queue/send/time"), 17_801_959_008_661_049_431);
    }
}
