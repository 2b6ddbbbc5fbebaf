//! Numbers and their dense ranks, holes left out.

/// Room a bit map may take for each number in it, in bits, before a sorted list is cheaper.
const BITS_EACH: u64 = 64;
const WORD: usize = u64::BITS as usize;

/// A set of integers that knows which place each takes among them.
#[derive(Debug)]
pub(crate) enum Ranks {
    /// Close together: one bit for each from `base` up, and how many there are before each word.
    Dense { base: i64, words: Vec<u64>, before: Vec<u32> },
    /// Far apart: in order. An offset of 10^12 costs no more than any other.
    Sparse(Vec<i64>),
}

impl Ranks {
    /// The ranks of `numbers`, which may repeat.
    pub(crate) fn new(numbers: impl Iterator<Item = i64> + Clone) -> Self {
        let mut count = 0_u64;
        let (mut least, mut most) = (i64::MAX, i64::MIN);
        for number in numbers.clone() {
            count += 1;
            least = least.min(number);
            most = most.max(number);
        }
        if count == 0 {
            return Self::Sparse(Vec::new());
        }
        let span = most.abs_diff(least);
        if span / BITS_EACH > count {
            let mut list: Vec<i64> = numbers.collect();
            list.sort_unstable();
            list.dedup();
            return Self::Sparse(list);
        }
        let length = usize::try_from(span).unwrap_or(usize::MAX) / WORD + 1;
        let mut words = vec![0_u64; length];
        for number in numbers {
            let (word, bit) = place(least, number);
            words[word] |= 1 << bit;
        }
        let mut total = 0;
        let before = words
            .iter()
            .map(|word| {
                let here = total;
                total += word.count_ones();
                here
            })
            .collect();
        Self::Dense { base: least, words, before }
    }

    /// How many distinct numbers there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Dense { words, before, .. } => match (words.last(), before.last()) {
                (Some(word), Some(before)) => (before + word.count_ones()) as usize,
                _ => 0,
            },
            Self::Sparse(list) => list.len(),
        }
    }

    /// The place of `number` among them, from 0; `None` where it is not among them.
    pub(crate) fn rank(&self, number: i64) -> Option<u32> {
        match self {
            Self::Dense { base, words, before } => {
                if number < *base {
                    return None;
                }
                let (place, bit) = place(*base, number);
                let word = *words.get(place)?;
                let below = (word & ((1 << bit) - 1)).count_ones();
                (word >> bit & 1 == 1).then(|| before[place] + below)
            }
            Self::Sparse(list) => {
                let place = list.binary_search(&number).ok()?;
                u32::try_from(place).ok()
            }
        }
    }

    /// The number at place `rank`.
    pub(crate) fn number(&self, rank: u32) -> Option<i64> {
        match self {
            Self::Dense { base, words, before } => {
                let place = before.partition_point(|before| *before <= rank).checked_sub(1)?;
                let mut word = words[place];
                for _ in before[place]..rank {
                    word &= word.wrapping_sub(1);
                }
                let bit = i64::from((word != 0).then(|| word.trailing_zeros())?);
                base.checked_add(i64::try_from(place * WORD).ok()? + bit)
            }
            Self::Sparse(list) => list.get(rank as usize).copied(),
        }
    }
}

/// Word and bit of `number`, which is at least `base`.
fn place(base: i64, number: i64) -> (usize, u32) {
    let distance = number.abs_diff(base);
    let word = usize::try_from(distance / WORD as u64).unwrap_or(usize::MAX);
    let bit = u32::try_from(distance % WORD as u64).unwrap_or(0);
    (word, bit)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn agrees(numbers: &[i64]) {
        let ranks = Ranks::new(numbers.iter().copied());
        let expected: BTreeSet<i64> = numbers.iter().copied().collect();
        assert_eq!(ranks.len(), expected.len());
        for (rank, number) in (0..).zip(&expected) {
            assert_eq!(ranks.rank(*number), Some(rank), "{number}");
            assert_eq!(ranks.number(rank), Some(*number), "{rank}");
        }
        let past = u32::try_from(expected.len()).unwrap();
        assert_eq!(ranks.number(past), None);
        for number in expected.iter().flat_map(|n| [n.saturating_sub(1), n.saturating_add(1)]) {
            assert_eq!(ranks.rank(number).is_some(), expected.contains(&number));
        }
    }

    #[test]
    fn extremes_and_far_offsets_cost_nothing() {
        agrees(&[]);
        agrees(&[7]);
        agrees(&[i64::MIN, 0, i64::MAX]);
        agrees(&[1_000_000_000_000, 3, 2, 2]);
        agrees(&(0..200).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn ranks_are_those_of_a_sorted_set(
            dense in prop::collection::vec(-300_i64..300, 0..200),
            sparse in prop::collection::vec(any::<i64>(), 0..50),
        ) {
            agrees(&dense);
            agrees(&sparse);
        }
    }
}
