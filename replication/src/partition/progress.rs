//! What a leader knows of a follower: R7 and R8.

use crate::seeded::Bug;
use crate::types::{BrokerEpoch, Millis, Offset};

/// What a leader knows of a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerProgress {
    /// Where its log ends; `None`: it has not fetched from this leader yet.
    pub log_end: Option<Offset>,
    /// Where its log begins.
    pub log_start: Offset,
    /// When it last had everything (R8); `None`: never, as far as this leader knows.
    pub last_caught_up: Option<Millis>,
    /// In which life it last fetched.
    pub broker_epoch: Option<BrokerEpoch>,
    /// Its last fetch: when, and the leader's log end then.
    last_fetch: Option<(Millis, Offset)>,
}

impl FollowerProgress {
    /// A follower that has not fetched yet. It counts as caught up when the leader begins, so
    /// that it has the time of R6 to show itself.
    pub const fn begin(now: Millis) -> Self {
        Self {
            log_end: None,
            log_start: Offset::ZERO,
            last_caught_up: Some(now),
            broker_epoch: None,
            last_fetch: None,
        }
    }

    /// A follower outside the ISR that has not fetched yet: never caught up.
    pub const fn begin_outside() -> Self {
        Self { last_caught_up: None, ..Self::begin(Millis(0)) }
    }

    /// R7 and R8: a fetch from `offset` on says that the log ends there. At the leader's end (or
    /// beyond), it is caught up now; at the end that the leader had at the fetch before, it was
    /// caught up then.
    pub fn fetched(
        &mut self,
        offset: Offset,
        leader_end: Offset,
        now: Millis,
        broker_epoch: BrokerEpoch,
        log_start: Offset,
    ) {
        let caught_up = if offset >= leader_end {
            Some(now)
        } else if Bug::R8NoSecondClause.is_on() {
            None
        } else {
            self.last_fetch.filter(|(_, end_then)| offset >= *end_then).map(|(when, _)| when)
        };
        self.last_caught_up = self.last_caught_up.max(caught_up);
        self.log_end = Some(offset);
        self.log_start = log_start;
        self.broker_epoch = Some(broker_epoch);
        self.last_fetch = Some((now, leader_end));
    }

    /// Did it fetch within `lag_max_ms`? Only a seeded bug asks.
    pub(super) fn fetches(&self, now: Millis, lag_max_ms: u64) -> bool {
        self.last_fetch.is_some_and(|(when, _)| now.since(when) <= lag_max_ms)
    }

    /// Is it caught up: at the leader's end, or within `lag_max_ms` of having been there (R6, R17)?
    pub fn is_caught_up(&self, leader_end: Offset, now: Millis, lag_max_ms: u64) -> bool {
        self.log_end == Some(leader_end)
            || self.last_caught_up.is_some_and(|when| now.since(when) <= lag_max_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: BrokerEpoch = BrokerEpoch(1);

    fn fetch(progress: &mut FollowerProgress, offset: i64, leader_end: i64, now: u64) {
        progress.fetched(Offset(offset), Offset(leader_end), Millis(now), EPOCH, Offset(0));
    }

    #[test]
    fn r8_steady_small_writes_do_not_make_a_follower_late() {
        let mut progress = FollowerProgress::begin(Millis(0));
        // Never at the leader's end, always at the end of the fetch before.
        for step in 1..=100_u64 {
            let offset = i64::try_from(step).unwrap() * 10;
            fetch(&mut progress, offset - 10, offset, step * 500);
        }
        assert_eq!(progress.last_caught_up, Some(Millis(99 * 500)));
        assert!(progress.is_caught_up(Offset(1000), Millis(50_100), 10_000));
    }

    #[test]
    fn r8_a_follower_that_falls_behind_is_late_in_time() {
        let mut progress = FollowerProgress::begin(Millis(0));
        fetch(&mut progress, 10, 10, 1_000);
        for step in 2..=40_u64 {
            // It fetches all the time, and gets a tenth of what is written.
            fetch(
                &mut progress,
                10 + i64::try_from(step).unwrap(),
                1000 * i64::try_from(step).unwrap(),
                step * 1_000,
            );
        }
        assert_eq!(progress.last_caught_up, Some(Millis(1_000)));
        assert!(!progress.is_caught_up(Offset(40_000), Millis(40_000), 30_000));
    }

    #[test]
    fn r7_a_fetch_tells_offset_time_and_life() {
        let mut progress = FollowerProgress::begin(Millis(0));
        assert_eq!(progress.log_end, None);
        fetch(&mut progress, 5, 9, 70);
        assert_eq!(progress.log_end, Some(Offset(5)));
        assert_eq!(progress.broker_epoch, Some(EPOCH));
    }
}
