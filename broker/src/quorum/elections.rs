//! When a voter stands for election, when it lets another one stand, and when a leader that
//! nobody answers stops to speak. Functions of what was heard and when.
//!
//! Openraft draws each voter's time-out once in its life, so that two voters in step would split
//! every election; and a voter that was cut off comes back with a higher term and deposes a leader
//! that everyone else hears. So elections are paced here: voters stand one after the other, by
//! rank, and only once a majority says that it hears no leader either (as KIP-996 has it).

use std::time::Duration;

use super::types::LogId;

/// How fast a quorum is, and this voter's place in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// `controller.quorum.election.timeout.ms`.
    timeout: Duration,
    /// Voters with a lower node id.
    rank: u32,
    /// All of them.
    voters: usize,
}

impl Pace {
    pub(super) const fn new(timeout: Duration, rank: u32, voters: usize) -> Self {
        Self { timeout, rank, voters }
    }

    /// How often a leader speaks, and how often a voter looks whether it did.
    pub(super) fn beat(&self) -> Duration {
        self.timeout / 8
    }

    /// The longest a message and its answer may take. A link that is slower does not serve.
    pub(super) fn message_limit(&self) -> Duration {
        self.timeout * 3 / 4
    }

    /// How long others are asked whether they would let this voter stand.
    pub(super) fn asking_limit(&self) -> Duration {
        self.timeout / 2
    }

    /// How long after it last heard a leader, voted or stood this voter stands for election. Two
    /// voters are two beats apart, so that they do not stand in step; all wait longer than
    /// [`Pace::lets_stand`] asks for. A single voter does not wait.
    pub(super) fn stands_after(&self) -> Duration {
        if self.voters <= 1 {
            return Duration::ZERO;
        }
        self.timeout * 5 / 4 + self.timeout / 4 * self.rank
    }

    /// Is `count` a majority of the voters?
    pub(super) const fn is_majority(&self, count: usize) -> bool {
        count > self.voters / 2
    }

    /// Does this voter, which last heard a leader `since_heard` ago and whose log ends with `mine`,
    /// let one stand whose log ends with `theirs`? Not while it hears a leader, which it is about to
    /// lose then; and not if the other one's log is behind, since it could not win.
    pub(super) fn lets_stand(
        &self,
        since_heard: Duration,
        theirs: Option<LogId>,
        mine: Option<LogId>,
    ) -> bool {
        since_heard >= self.timeout && theirs >= mine
    }

    /// Does a node that openraft calls the leader lead, if a majority last answered it
    /// `since_answered` ago (none yet: just elected)? Others have elected another one by then.
    pub(super) fn leads(&self, since_answered: Option<Duration>) -> bool {
        since_answered.is_none_or(|since| since <= self.timeout * 2)
    }

    /// May it speak to its followers? A leader that is heard and does not hear (a link that works
    /// one way) keeps them from electing another. It falls silent for long enough for that, and
    /// then tries again: with a voter gone for good, it may be the only one that can lead.
    pub(super) fn may_speak(&self, since_answered: Option<Duration>) -> bool {
        since_answered.is_none_or(|since| {
            let round = self.timeout * 8;
            let within = Duration::from_nanos(
                u64::try_from(since.as_nanos() % round.as_nanos().max(1)).unwrap_or(u64::MAX),
            );
            within <= self.timeout * 2
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(1);

    fn voter(rank: u32) -> Pace {
        Pace::new(TIMEOUT, rank, 3)
    }

    fn log(term: u64, index: u64) -> LogId {
        LogId::new(openraft::CommittedLeaderId::new(term, 1), index)
    }

    fn lets_stand(since_heard: Duration, theirs: Option<LogId>, mine: Option<LogId>) -> bool {
        voter(0).lets_stand(since_heard, theirs, mine)
    }

    #[test]
    fn voters_stand_one_after_the_other_and_later_than_they_let_others_stand() {
        let waits: Vec<Duration> = (0..3).map(|rank| voter(rank).stands_after()).collect();
        for pair in waits.windows(2) {
            assert!(pair[1] >= pair[0] + voter(0).beat() * 2, "{waits:?}");
        }
        assert!(voter(2).lets_stand(waits[0], Some(log(1, 5)), Some(log(1, 5))));
        assert_eq!(Pace::new(TIMEOUT, 0, 1).stands_after(), Duration::ZERO);
    }

    #[test]
    fn who_hears_a_leader_lets_nobody_stand() {
        let just_now = Duration::from_millis(999);
        assert!(!lets_stand(just_now, Some(log(9, 9)), Some(log(1, 1))));
        assert!(lets_stand(TIMEOUT, Some(log(9, 9)), Some(log(1, 1))));
    }

    #[test]
    fn a_log_that_is_behind_does_not_stand() {
        assert!(!lets_stand(TIMEOUT, Some(log(2, 4)), Some(log(2, 5))));
        assert!(!lets_stand(TIMEOUT, Some(log(1, 9)), Some(log(2, 5))));
        assert!(!lets_stand(TIMEOUT, None, Some(log(1, 0))));
        assert!(lets_stand(TIMEOUT, Some(log(2, 5)), Some(log(2, 5))));
        assert!(lets_stand(TIMEOUT, None, None));
    }

    #[test]
    fn a_majority_is_more_than_half() {
        assert!(!voter(0).is_majority(1));
        assert!(voter(0).is_majority(2));
        assert!(!Pace::new(TIMEOUT, 0, 4).is_majority(2));
        assert!(Pace::new(TIMEOUT, 0, 1).is_majority(1));
    }

    #[test]
    fn a_leader_without_answers_is_none_after_two_time_outs() {
        assert!(voter(0).leads(None));
        assert!(voter(0).leads(Some(TIMEOUT * 2)));
        assert!(!voter(0).leads(Some(TIMEOUT * 2 + Duration::from_millis(1))));
    }

    #[test]
    fn a_leader_without_answers_is_silent_for_longer_than_any_voter_waits_and_then_tries_again() {
        let speaks: Vec<bool> =
            (0..160).map(|tenth| voter(0).may_speak(Some(TIMEOUT / 10 * tenth))).collect();
        let silent = speaks.iter().skip_while(|speaks| **speaks).take_while(|speaks| !**speaks);
        let silent = TIMEOUT / 10 * u32::try_from(silent.count()).unwrap();
        assert!(silent > voter(2).stands_after() * 2, "{silent:?}");
        assert!(speaks[0] && speaks[81], "speaks at first, and again");
    }
}
