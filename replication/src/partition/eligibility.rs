//! Who may enter the ISR, and who is in sync: R1 to R5.

use crate::partition::progress::FollowerProgress;
use crate::partition::{BrokerState, Brokers};
use crate::seeded::Bug;
use crate::types::{BrokerEpoch, NodeId, Offset};

/// R2: known to the metadata, neither fenced nor on its way out, and in the life in which it last
/// fetched (R3).
pub fn is_eligible(id: NodeId, stored: Option<BrokerEpoch>, brokers: &impl Brokers) -> bool {
    brokers.broker(id).is_some_and(|broker: BrokerState| {
        (!broker.fenced || Bug::R2NoFencedCheck.is_on())
            && !broker.in_controlled_shutdown
            && epochs_match(stored, Some(broker.epoch))
    })
}

/// R3: both are there, and the stored one is -1, the bypass, or the cached one.
pub fn epochs_match(stored: Option<BrokerEpoch>, cached: Option<BrokerEpoch>) -> bool {
    match (stored, cached) {
        (Some(_), Some(_)) if Bug::R3AcceptMismatch.is_on() => true,
        (Some(stored), Some(cached)) => stored == BrokerEpoch::BYPASS || stored == cached,
        _ => false,
    }
}

/// R4: its log reaches the leader's high watermark, and the start of the leader's epoch. No time,
/// no distance (R5).
pub fn is_in_sync(follower_end: Offset, high_watermark: Offset, epoch_start: Offset) -> bool {
    if Bug::R4NoEpochClause.is_on() {
        return follower_end >= high_watermark;
    }
    if Bug::R5AdmitByLag.is_on() {
        return follower_end + 4_000 >= high_watermark;
    }
    follower_end >= high_watermark && follower_end >= epoch_start
}

/// R1: shall the leader propose to add the replica that just fetched? In this order: no change is
/// in flight, it is not in the ISR, it is eligible, it is in sync.
pub fn may_enter(
    id: NodeId,
    progress: &FollowerProgress,
    change_in_flight: bool,
    in_isr: bool,
    (high_watermark, epoch_start): (Offset, Offset),
    brokers: &impl Brokers,
) -> bool {
    !change_in_flight
        && !in_isr
        && is_eligible(id, progress.broker_epoch, brokers)
        && (progress.log_end.is_some_and(|end| is_in_sync(end, high_watermark, epoch_start))
            || Bug::R1NoRecheck.is_on() && progress.last_caught_up.is_some())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::types::Millis;

    fn brokers(state: BrokerState) -> BTreeMap<NodeId, BrokerState> {
        BTreeMap::from([(NodeId(2), state)])
    }

    const WELL: BrokerState =
        BrokerState { epoch: BrokerEpoch(7), fenced: false, in_controlled_shutdown: false };

    fn fetched(broker_epoch: i64, log_end: i64) -> FollowerProgress {
        let mut progress = FollowerProgress::begin(Millis(0));
        progress.fetched(
            Offset(log_end),
            Offset(100),
            Millis(1),
            BrokerEpoch(broker_epoch),
            Offset(0),
        );
        progress
    }

    #[test]
    fn r1_a_fetch_of_an_old_life_does_not_let_the_new_one_in() {
        // The follower bounced: its delayed fetch says epoch 7, the metadata epoch 9 already.
        let old_life = fetched(7, 100);
        let bounced = brokers(BrokerState { epoch: BrokerEpoch(9), ..WELL });
        let at = (Offset(50), Offset(0));
        assert!(!may_enter(NodeId(2), &old_life, false, false, at, &bounced));
        assert!(may_enter(NodeId(2), &fetched(9, 100), false, false, at, &bounced));
    }

    #[test]
    fn r1_not_while_a_change_is_in_flight_and_not_twice() {
        let (progress, brokers) = (fetched(7, 100), brokers(WELL));
        let at = (Offset(50), Offset(0));
        assert!(may_enter(NodeId(2), &progress, false, false, at, &brokers));
        assert!(!may_enter(NodeId(2), &progress, true, false, at, &brokers));
        assert!(!may_enter(NodeId(2), &progress, false, true, at, &brokers));
    }

    #[test]
    fn r2_fenced_leaving_and_unknown_replicas_stay_out() {
        let stored = Some(BrokerEpoch(7));
        assert!(is_eligible(NodeId(2), stored, &brokers(WELL)));
        assert!(!is_eligible(NodeId(2), stored, &brokers(BrokerState { fenced: true, ..WELL })));
        let leaving = BrokerState { in_controlled_shutdown: true, ..WELL };
        assert!(!is_eligible(NodeId(2), stored, &brokers(leaving)));
        assert!(!is_eligible(NodeId(3), stored, &brokers(WELL)));
    }

    #[test]
    fn r3_another_life_does_not_match_and_minus_one_does() {
        let some = |epoch| Some(BrokerEpoch(epoch));
        assert!(epochs_match(some(7), some(7)));
        assert!(epochs_match(some(-1), some(7)));
        assert!(!epochs_match(some(6), some(7)));
        assert!(!epochs_match(some(8), some(7)));
        assert!(!epochs_match(None, some(7)));
        assert!(!epochs_match(some(7), None));
    }

    #[test]
    fn r4_a_laggard_behind_the_epoch_start_stays_out_whatever_the_high_watermark() {
        // A new leader whose high watermark is stale (20) and whose epoch began at 30.
        assert!(!is_in_sync(Offset(25), Offset(20), Offset(30)));
        assert!(!is_in_sync(Offset(35), Offset(40), Offset(30)));
        assert!(is_in_sync(Offset(40), Offset(40), Offset(30)));
    }

    #[test]
    fn r5_being_close_is_not_being_in_sync() {
        // One record short, and fetched this very millisecond.
        assert!(!is_in_sync(Offset(39), Offset(40), Offset(0)));
    }
}
