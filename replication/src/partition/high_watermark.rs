//! The high watermark: R17 to R20, R33.

use std::collections::{BTreeMap, BTreeSet};

use crate::partition::Brokers;
use crate::partition::eligibility::is_eligible;
use crate::partition::progress::FollowerProgress;
use crate::seeded::Bug;
use crate::types::{Millis, NodeId, Offset};

/// R17: the least log end of the leader, of everyone in the maximal ISR, and of every eligible
/// replica that is caught up: it is waited for, since otherwise it could never enter the ISR.
pub fn candidate(
    me: NodeId,
    log_end: Offset,
    maximal_isr: &BTreeSet<NodeId>,
    followers: &BTreeMap<NodeId, FollowerProgress>,
    now: Millis,
    lag_max_ms: u64,
    brokers: &impl Brokers,
) -> Offset {
    let waits_for = |id: NodeId, progress: &FollowerProgress| {
        maximal_isr.contains(&id)
            || (!Bug::R17NoWait.is_on()
                && progress.log_end.is_some()
                && progress.is_caught_up(log_end, now, lag_max_ms)
                && (is_eligible(id, progress.broker_epoch, brokers)
                    || Bug::R17NoEligibility.is_on()))
    };
    let known = followers
        .iter()
        .filter(|(id, progress)| **id != me && waits_for(**id, progress))
        .map(|(_, progress)| progress.log_end.unwrap_or(Offset::ZERO));
    // A member that the leader knows nothing of holds everything up.
    let unknown = maximal_isr
        .iter()
        .filter(|id| **id != me && !followers.contains_key(*id))
        .map(|_| Offset::ZERO);
    known.chain(unknown).fold(log_end, Offset::min)
}

/// R18: the leader's high watermark only rises, and never above its log's end.
pub fn raised(current: Offset, candidate: Offset, log_end: Offset) -> Option<Offset> {
    let may_fall = Bug::R18PlainAssignment.is_on() && candidate != current;
    ((candidate > current || may_fall) && candidate <= log_end).then_some(candidate)
}

/// R19: `min.insync.replicas`, but never more than there are replicas.
pub fn effective_min_isr(min_insync_replicas: usize, replicas: usize) -> usize {
    min_insync_replicas.min(replicas)
}

/// R19: may the high watermark move at all? Not while the committed ISR is too small.
pub fn may_advance(committed_isr: usize, effective_min_isr: usize) -> bool {
    committed_isr >= effective_min_isr || Bug::R19NoMinIsr.is_on()
}

/// A follower's high watermark after a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerHighWatermark {
    /// What it is now.
    pub value: Offset,
    /// It fell. Worth a line in the log, and legal (R33).
    pub regressed: bool,
}

/// R20 and R33: a follower takes its leader's high watermark, within its own log; a lower one,
/// too.
pub fn follower_high_watermark(
    current: Offset,
    leader_says: Offset,
    log_start: Offset,
    log_end: Offset,
) -> FollowerHighWatermark {
    let end = if Bug::R20NoUpperClamp.is_on() { leader_says } else { log_end };
    let value = leader_says.min(end).max(log_start);
    FollowerHighWatermark { value, regressed: value < current }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::BrokerState;
    use crate::types::BrokerEpoch;

    fn ids(ids: &[i32]) -> BTreeSet<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    fn brokers(shutting_down: bool) -> BTreeMap<NodeId, BrokerState> {
        let state = BrokerState {
            epoch: BrokerEpoch(1),
            fenced: false,
            in_controlled_shutdown: shutting_down,
        };
        BTreeMap::from([(NodeId(2), state)])
    }

    fn follower(log_end: i64, leader_end: i64, at: u64) -> BTreeMap<NodeId, FollowerProgress> {
        let mut progress = FollowerProgress::begin_outside();
        progress.fetched(
            Offset(log_end),
            Offset(leader_end),
            Millis(at),
            BrokerEpoch(1),
            Offset(0),
        );
        BTreeMap::from([(NodeId(2), progress)])
    }

    fn of(
        isr: &[i32],
        followers: &BTreeMap<NodeId, FollowerProgress>,
        brokers: &BTreeMap<NodeId, BrokerState>,
    ) -> i64 {
        candidate(NodeId(1), Offset(100), &ids(isr), followers, Millis(1_000), 500, brokers).0
    }

    #[test]
    fn r17_a_caught_up_eligible_replica_is_waited_for() {
        // It had everything at 900 (leader's end 90 then); the ISR is the leader alone.
        assert_eq!(of(&[1], &follower(90, 90, 900), &brokers(false)), 90);
        assert_eq!(of(&[1], &follower(90, 90, 400), &brokers(false)), 100, "too long ago");
    }

    #[test]
    fn r17_nobody_waits_for_a_replica_that_cannot_enter() {
        assert_eq!(of(&[1], &follower(90, 90, 900), &brokers(true)), 100);
    }

    #[test]
    fn r17_members_are_waited_for_however_late_and_unknown_ones_hold_everything_up() {
        assert_eq!(of(&[1, 2], &follower(40, 90, 1), &brokers(false)), 40);
        assert_eq!(of(&[1, 2], &BTreeMap::new(), &brokers(false)), 0);
    }

    #[test]
    fn r18_it_only_rises_and_not_above_the_log() {
        assert_eq!(raised(Offset(5), Offset(7), Offset(9)), Some(Offset(7)));
        assert_eq!(raised(Offset(5), Offset(4), Offset(9)), None);
        assert_eq!(raised(Offset(5), Offset(5), Offset(9)), None);
        assert_eq!(raised(Offset(5), Offset(10), Offset(9)), None);
    }

    #[test]
    fn r19_a_small_isr_stops_it() {
        assert_eq!(effective_min_isr(2, 3), 2);
        assert_eq!(effective_min_isr(2, 1), 1);
        assert!(!may_advance(1, 2));
        assert!(may_advance(2, 2));
    }

    #[test]
    fn r20_a_follower_stays_within_its_log_and_says_when_it_falls() {
        let take = |current, says| {
            let taken =
                follower_high_watermark(Offset(current), Offset(says), Offset(2), Offset(9));
            (taken.value.0, taken.regressed)
        };
        assert_eq!(take(5, 12), (9, false));
        assert_eq!(take(5, 7), (7, false));
        assert_eq!(take(5, 4), (4, true));
        assert_eq!(take(2, 0), (2, false));
    }
}
