//! The vector [leader epoch → start offset] that every replica keeps.
//!
//! | rule | function |
//! |---|---|
//! | R21 | [`LeaderEpochs::assign`] |
//! | R22 | [`LeaderEpochs::end_of`] |

use serde::{Deserialize, Serialize};

use crate::seeded::Bug;
use crate::types::{LeaderEpoch, Offset};

/// Where an epoch begins in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// The offset of its first record, present or still to come.
    pub start: Offset,
}

/// "This epoch ends here": the answer of R22.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochEnd {
    /// The largest epoch known that is not above the one asked for.
    pub epoch: LeaderEpoch,
    /// The offset after that epoch's last record.
    pub end: Offset,
}

/// Epochs and offsets both rise strictly from entry to entry, but for the last one, which may
/// begin where its predecessor does not (an epoch without records drops out).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderEpochs {
    entries: Vec<EpochStart>,
}

impl LeaderEpochs {
    /// A vector of `entries`, as read from a checkpoint. Entries that do not rise are dropped.
    pub fn from_entries(entries: impl IntoIterator<Item = EpochStart>) -> Self {
        let mut epochs = Self::default();
        for entry in entries {
            epochs.assign(entry.epoch, entry.start);
        }
        epochs
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> &[EpochStart] {
        &self.entries
    }

    /// The latest epoch.
    pub fn latest(&self) -> Option<EpochStart> {
        self.entries.last().copied()
    }

    /// R21: epoch `epoch` begins at `start`. A new leader says so before its first append, a
    /// follower with each batch of an epoch that it did not know. Returns whether it was new.
    ///
    /// An epoch at or before one already known that would begin later changes nothing. Entries
    /// that begin at or after `start` had no records and drop out.
    pub fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> bool {
        if epoch < LeaderEpoch(0) || start < Offset::ZERO {
            return false;
        }
        if self.latest().is_some_and(|last| epoch <= last.epoch) {
            return false;
        }
        self.entries.retain(|entry| entry.start < start);
        self.entries.push(EpochStart { epoch, start });
        true
    }

    /// R22: where `epoch` ends in a log that ends at `log_end`; `None` is "undefined".
    pub fn end_of(&self, epoch: LeaderEpoch, log_end: Offset) -> Option<EpochEnd> {
        let last = self.latest()?;
        let first = self.entries.first()?;
        if epoch < LeaderEpoch(0) || epoch > last.epoch {
            return None;
        }
        if epoch == last.epoch {
            return Some(EpochEnd { epoch, end: log_end });
        }
        if epoch < first.epoch {
            return Some(EpochEnd { epoch, end: first.start });
        }
        let next = self.entries.partition_point(|entry| entry.epoch <= epoch);
        let at = self.entries.get(next.checked_sub(1)?)?;
        let named = if Bug::R22OffsetWithoutEpoch.is_on() { epoch } else { at.epoch };
        Some(EpochEnd { epoch: named, end: self.entries.get(next)?.start })
    }

    /// The epoch of the record at `offset` in a log that ends at `log_end`.
    pub fn epoch_of(&self, offset: Offset) -> Option<LeaderEpoch> {
        let next = self.entries.partition_point(|entry| entry.start <= offset);
        Some(self.entries.get(next.checked_sub(1)?)?.epoch)
    }

    /// The log was cut at `log_end`: epochs that begin at or after it are gone.
    pub fn truncate_from_end(&mut self, log_end: Offset) {
        self.entries.retain(|entry| entry.start < log_end);
    }

    /// The log begins at `log_start` now: the epoch that covers it begins there, earlier ones are
    /// gone.
    pub fn truncate_from_start(&mut self, log_start: Offset) {
        let next = self.entries.partition_point(|entry| entry.start <= log_start);
        let Some(covering) = next.checked_sub(1) else { return };
        self.entries.drain(..covering);
        if let Some(first) = self.entries.first_mut() {
            first.start = first.start.max(log_start);
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(entries: &[(i32, i64)]) -> LeaderEpochs {
        LeaderEpochs::from_entries(
            entries.iter().map(|(epoch, start)| EpochStart {
                epoch: LeaderEpoch(*epoch),
                start: Offset(*start),
            }),
        )
    }

    fn end(epochs: &LeaderEpochs, epoch: i32, log_end: i64) -> Option<(i32, i64)> {
        epochs
            .end_of(LeaderEpoch(epoch), Offset(log_end))
            .map(|answer| (answer.epoch.0, answer.end.0))
    }

    #[test]
    fn r21_a_leader_without_an_append_still_has_its_epoch() {
        let mut two_quick_elections = epochs(&[(1, 0)]);
        assert!(two_quick_elections.assign(LeaderEpoch(2), Offset(5)));
        assert!(two_quick_elections.assign(LeaderEpoch(3), Offset(5)));
        assert_eq!(two_quick_elections, epochs(&[(1, 0), (3, 5)]));
        assert!(!two_quick_elections.assign(LeaderEpoch(2), Offset(9)));
    }

    #[test]
    fn r22_the_answer_names_the_epoch_that_it_is_about() {
        let log = epochs(&[(2, 10), (4, 20), (7, 30)]);
        assert_eq!(end(&log, 7, 42), Some((7, 42)), "the latest ends at the log's end");
        assert_eq!(end(&log, 4, 42), Some((4, 30)), "known: the start of the next");
        assert_eq!(end(&log, 5, 42), Some((4, 30)), "unknown: of the largest below it");
        assert_eq!(end(&log, 1, 42), Some((1, 10)), "older than all: the first start");
        assert_eq!(end(&log, 8, 42), None, "newer than all");
        assert_eq!(end(&log, -1, 42), None, "undefined");
        assert_eq!(end(&epochs(&[]), 0, 42), None, "no epoch is known");
    }

    #[test]
    fn a_cut_takes_the_epochs_beyond_it() {
        let mut log = epochs(&[(2, 10), (4, 20), (7, 30)]);
        log.truncate_from_end(Offset(30));
        assert_eq!(log, epochs(&[(2, 10), (4, 20)]));
        log.truncate_from_start(Offset(25));
        assert_eq!(log, epochs(&[(4, 25)]));
        assert_eq!(log.epoch_of(Offset(24)), None);
        assert_eq!(log.epoch_of(Offset(25)), Some(LeaderEpoch(4)));
    }
}
