//! What a follower cuts off: R23 to R26.

use crate::epochs::{EpochEnd, LeaderEpochs};
use crate::seeded::Bug;
use crate::types::{LeaderEpoch, Offset};

/// What a follower does with its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncation {
    /// Keeps it.
    Nothing,
    /// Cuts it at an offset.
    To {
        /// Where it ends afterwards, if it reached beyond.
        offset: Offset,
        /// Do the logs agree then? If not, the question is asked again for the epoch below.
        settled: bool,
    },
}

/// R23, the leader's side: a follower that fetches from `fetch_offset` on says that its last
/// record is of `last_fetched_epoch`. If that epoch ends earlier here, or is another one, the
/// logs differ: where that epoch ends here.
pub fn diverging(
    epochs: &LeaderEpochs,
    log_end: Offset,
    last_fetched_epoch: LeaderEpoch,
    fetch_offset: Offset,
) -> Option<EpochEnd> {
    if Bug::R25CompareLengths.is_on() && fetch_offset <= log_end {
        return None;
    }
    let end = epochs.end_of(last_fetched_epoch, log_end)?;
    (end.epoch < last_fetched_epoch || end.end < fetch_offset).then_some(end)
}

/// R23, R24, R25, the follower's side: the leader's answer is where an epoch ends in its log. The
/// follower cuts at the least of that, the end of the same epoch in its own log, and its log's
/// end: only what the leader does not have.
pub fn on_diverging(
    epochs: &LeaderEpochs,
    log_end: Offset,
    high_watermark: Offset,
    leader: EpochEnd,
) -> Truncation {
    if Bug::R23IgnoreOwnEnd.is_on() {
        return Truncation::To { offset: leader.end.min(log_end), settled: true };
    }
    match epochs.end_of(leader.epoch, log_end) {
        Some(own) if own.epoch == leader.epoch => {
            Truncation::To { offset: leader.end.min(own.end).min(log_end), settled: true }
        }
        // This log does not have the leader's epoch: cut to where its next older one ends, and
        // let the next fetch ask again from there.
        Some(own) => {
            Truncation::To { offset: own.end.min(leader.end).min(log_end), settled: false }
        }
        // No epoch here is comparable (R26), or the leader's is newer than all of this log's.
        None if epochs.latest().is_none() => {
            Truncation::To { offset: high_watermark.min(leader.end).min(log_end), settled: true }
        }
        None => Truncation::To { offset: leader.end.min(log_end), settled: true },
    }
}

/// R26: a follower whose log has no epoch cannot compare; what lies above the high watermark may
/// be of nobody's log.
pub fn on_becoming_follower(
    epochs: &LeaderEpochs,
    log_end: Offset,
    high_watermark: Offset,
) -> Truncation {
    let compares = epochs.latest().is_some() && !Bug::R24TruncateToHighWatermark.is_on();
    if Bug::R26StartAtLogEnd.is_on() {
        return Truncation::Nothing;
    }
    if !compares && log_end > high_watermark {
        return Truncation::To { offset: high_watermark, settled: true };
    }
    Truncation::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epochs::EpochStart;

    fn epochs(entries: &[(i32, i64)]) -> LeaderEpochs {
        LeaderEpochs::from_entries(
            entries.iter().map(|(epoch, start)| EpochStart {
                epoch: LeaderEpoch(*epoch),
                start: Offset(*start),
            }),
        )
    }

    fn end(epoch: i32, end: i64) -> EpochEnd {
        EpochEnd { epoch: LeaderEpoch(epoch), end: Offset(end) }
    }

    fn cut(own: &LeaderEpochs, log_end: i64, leader: EpochEnd) -> (i64, bool) {
        match on_diverging(own, Offset(log_end), Offset(0), leader) {
            Truncation::To { offset, settled } => (offset.0, settled),
            Truncation::Nothing => panic!("nothing is cut"),
        }
    }

    #[test]
    fn r23_the_own_end_of_the_answered_epoch_counts() {
        // The leader's epoch 1 ends at 20; this log left epoch 1 at 10 already.
        assert_eq!(cut(&epochs(&[(1, 0), (2, 10)]), 15, end(1, 20)), (10, true));
        assert_eq!(cut(&epochs(&[(1, 0), (2, 10)]), 15, end(1, 7)), (7, true));
    }

    #[test]
    fn r23_an_epoch_that_this_log_lacks_is_asked_about_again() {
        // KIP-279, fast failover: epochs 1 and 3 here, 2 there.
        assert_eq!(cut(&epochs(&[(1, 0), (3, 10)]), 15, end(2, 12)), (10, false));
    }

    #[test]
    fn r23_a_leader_answers_where_the_logs_part() {
        let leader = epochs(&[(1, 0), (2, 10)]);
        let ask = |epoch, offset| {
            diverging(&leader, Offset(20), LeaderEpoch(epoch), Offset(offset))
                .map(|answer| (answer.epoch.0, answer.end.0))
        };
        assert_eq!(ask(2, 20), None, "same epoch, within the log");
        assert_eq!(ask(1, 10), None, "an older epoch that ends there");
        assert_eq!(ask(1, 12), Some((1, 10)), "a tail of epoch 1 that this log lacks");
        assert_eq!(ask(2, 25), Some((2, 20)), "a tail of this epoch that this log lacks");
    }

    #[test]
    fn r24_a_restarted_follower_keeps_a_record_above_its_high_watermark() {
        // KIP-101, case 1: the record at 9 is committed, this follower's watermark is 9 still.
        let own = epochs(&[(4, 0)]);
        assert_eq!(on_becoming_follower(&own, Offset(10), Offset(9)), Truncation::Nothing);
        assert_eq!(diverging(&own, Offset(10), LeaderEpoch(4), Offset(10)), None);
    }

    #[test]
    fn r25_two_tails_of_different_length_end_alike() {
        // KIP-101, case 2: both lost power in epoch 1; the other one leads in epoch 2 from 8 on.
        let leader = epochs(&[(1, 0), (2, 8)]);
        let own = epochs(&[(1, 0)]);
        let answer = diverging(&leader, Offset(9), LeaderEpoch(1), Offset(10)).expect("they part");
        assert_eq!(answer, end(1, 8));
        assert_eq!(cut(&own, 10, answer), (8, true));
    }

    #[test]
    fn r26_without_an_epoch_only_what_is_committed_stays() {
        assert_eq!(
            on_becoming_follower(&epochs(&[]), Offset(10), Offset(6)),
            Truncation::To { offset: Offset(6), settled: true }
        );
        assert_eq!(on_becoming_follower(&epochs(&[]), Offset(6), Offset(6)), Truncation::Nothing);
    }
}
