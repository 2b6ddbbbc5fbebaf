//! A broker wants to be let go: R28.

use crate::controller::World;
use crate::controller::election::Leaving;
use crate::controller::fencing::leave_isrs;
use crate::controller::sessions::Sessions;
use crate::metadata::{Image, Record};
use crate::seeded::Bug;
use crate::types::NodeId;

/// R28: first it is recorded that the broker is on its way out, so that no leader takes it back
/// (R2, R36); then it leaves ISRs and others are elected. Nothing for one that is fenced: nobody
/// counts on it.
pub fn begin(world: World<'_>, broker: NodeId) -> Vec<Record> {
    let Some(known) = world.image.broker(broker).filter(|broker| !broker.fenced) else {
        return Vec::new();
    };
    let leaving = Record::ChangeBroker {
        id: broker,
        epoch: known.epoch,
        fenced: None,
        in_controlled_shutdown: Some(true),
    };
    if Bug::R28Reverse.is_on() {
        let moved = go_on(world, broker);
        return if moved.is_empty() { vec![leaving] } else { moved };
    }
    std::iter::once(leaving).chain(go_on(world, broker)).collect()
}

/// What it still leads, others lead now, if there are any by now.
pub fn go_on(world: World<'_>, broker: NodeId) -> Vec<Record> {
    leave_isrs(world, broker, Leaving { unclean: false })
}

/// R28: it may go once it leads nothing, and every active broker has read that it goes.
pub fn may_go(image: &Image, sessions: &Sessions, broker: NodeId) -> bool {
    let Some(told) = image.broker(broker).and_then(|broker| broker.shutdown_index) else {
        return false;
    };
    !image.leads_any(broker)
        && image
            .brokers()
            .filter(|other| other.is_active())
            .all(|other| sessions.read_up_to(other.id) >= told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::testing::Cluster;
    use crate::types::Millis;

    #[test]
    fn r28_the_state_is_recorded_first() {
        let cluster = Cluster::of(3).with_topic("t", &[&[1, 2, 3]]);
        let records = begin(cluster.world(), NodeId(1));
        assert!(matches!(
            records[0],
            Record::ChangeBroker { in_controlled_shutdown: Some(true), .. }
        ));
        assert!(matches!(records[1], Record::ChangePartition { .. }));
    }

    #[test]
    fn r28_granted_when_it_leads_nothing_and_everyone_knows() {
        let mut cluster = Cluster::of(3).with_topic("t", &[&[1, 2, 3]]);
        let mut sessions = Sessions::begin(100, cluster.image(), Millis(0));
        let index = cluster.apply(&begin(cluster.world(), NodeId(1)));
        assert_eq!(cluster.partition("t", 0).leader, Some(NodeId(2)));
        assert!(!may_go(cluster.image(), &sessions, NodeId(1)));
        sessions.has_read(NodeId(2), index);
        sessions.has_read(NodeId(3), index - 1);
        assert!(!may_go(cluster.image(), &sessions, NodeId(1)), "3 may take it back into an ISR");
        sessions.has_read(NodeId(3), index);
        assert!(may_go(cluster.image(), &sessions, NodeId(1)));
    }

    #[test]
    fn r28_not_while_it_is_the_only_one_that_can_lead() {
        let mut cluster = Cluster::of(2).with_topic("t", &[&[1]]);
        let mut sessions = Sessions::begin(100, cluster.image(), Millis(0));
        let index = cluster.apply(&begin(cluster.world(), NodeId(1)));
        sessions.has_read(NodeId(2), index);
        // Its ISR is itself, and nobody else has a replica: without a leader it may go.
        assert_eq!(cluster.partition("t", 0).leader, None);
        assert!(may_go(cluster.image(), &sessions, NodeId(1)));
    }
}
