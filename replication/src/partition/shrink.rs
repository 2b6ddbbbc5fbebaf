//! Who has fallen out of the ISR: R6.

use std::collections::{BTreeMap, BTreeSet};

use crate::partition::progress::FollowerProgress;
use crate::seeded::Bug;
use crate::types::{Millis, NodeId, Offset};

/// R6: members but the leader that the leader knows nothing of, or that are not caught up: their
/// log does not end where the leader's does, and they have not had everything for longer than
/// `lag_max_ms`. When they last fetched does not matter. Nobody while a change is in flight.
pub fn out_of_sync(
    me: NodeId,
    isr: &BTreeSet<NodeId>,
    followers: &BTreeMap<NodeId, FollowerProgress>,
    change_in_flight: bool,
    log_end: Offset,
    now: Millis,
    lag_max_ms: u64,
) -> BTreeSet<NodeId> {
    if change_in_flight {
        return BTreeSet::new();
    }
    isr.iter()
        .copied()
        .filter(|id| *id != me)
        .filter(|id| {
            followers.get(id).is_none_or(|progress| {
                let fetches = Bug::R6LastFetchTime.is_on() && progress.fetches(now, lag_max_ms);
                !fetches && !progress.is_caught_up(log_end, now, lag_max_ms)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::BrokerEpoch;

    fn ids(ids: &[i32]) -> BTreeSet<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn r6_a_slow_replica_leaves_although_it_fetches_all_the_time() {
        let mut slow = FollowerProgress::begin(Millis(0));
        for second in 1..=31_u64 {
            slow.fetched(
                Offset(i64::try_from(second).unwrap()),
                Offset(1_000 * i64::try_from(second).unwrap()),
                Millis(second * 1_000),
                BrokerEpoch(1),
                Offset(0),
            );
        }
        let followers = BTreeMap::from([(NodeId(2), slow)]);
        let out = |now| {
            out_of_sync(
                NodeId(1),
                &ids(&[1, 2]),
                &followers,
                false,
                Offset(31_000),
                Millis(now),
                30_000,
            )
        };
        assert_eq!(out(30_000), ids(&[]));
        assert_eq!(out(31_001), ids(&[2]));
    }

    #[test]
    fn r6_not_while_a_change_is_in_flight_and_never_the_leader() {
        let followers = BTreeMap::new();
        let out = |in_flight| {
            out_of_sync(NodeId(1), &ids(&[1, 2]), &followers, in_flight, Offset(1), Millis(9), 5)
        };
        assert_eq!(out(false), ids(&[2]), "the leader has no state for it");
        assert_eq!(out(true), ids(&[]));
    }

    #[test]
    fn r6_at_the_leaders_end_nobody_is_late() {
        let mut idle = FollowerProgress::begin(Millis(0));
        idle.fetched(Offset(7), Offset(7), Millis(1), BrokerEpoch(1), Offset(0));
        let followers = BTreeMap::from([(NodeId(2), idle)]);
        let isr = ids(&[1, 2]);
        assert_eq!(
            out_of_sync(NodeId(1), &isr, &followers, false, Offset(7), Millis(99_999), 10),
            ids(&[])
        );
    }
}
