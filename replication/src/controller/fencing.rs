//! A broker is fenced, or not any more: R27.

use crate::controller::World;
use crate::controller::election::{Leaving, Wanted};
use crate::metadata::{PartitionState, Record};
use crate::types::{NodeId, PartitionId};

/// R27: first the broker leaves ISRs and others are elected, then the fence is recorded. Nothing
/// for a broker that is fenced, or not registered.
pub fn fence(world: World<'_>, broker: NodeId) -> Vec<Record> {
    let Some(known) = world.image.broker(broker).filter(|broker| !broker.fenced) else {
        return Vec::new();
    };
    let mut records = leave_isrs(world, broker, Leaving { unclean: false });
    records.push(Record::ChangeBroker {
        id: broker,
        epoch: known.epoch,
        fenced: Some(true),
        in_controlled_shutdown: Some(false),
    });
    records
}

/// The broker leaves every ISR, and others lead what it led.
pub fn leave_isrs(world: World<'_>, broker: NodeId, leaving: Leaving) -> Vec<Record> {
    let concerned = |state: &PartitionState| {
        state.isr.contains(&broker)
            || state.leader == Some(broker)
            || (leaving.unclean && state.elr.contains(&broker))
    };
    world
        .image
        .partitions()
        .filter(|(_, state)| concerned(state))
        .filter_map(|(id, state)| without(world, id, state, broker, leaving))
        .collect()
}

fn without(
    world: World<'_>,
    id: PartitionId,
    state: &PartitionState,
    broker: NodeId,
    leaving: Leaving,
) -> Option<Record> {
    let isr: Vec<NodeId> = state.isr.iter().copied().filter(|id| *id != broker).collect();
    Wanted {
        isr: Some(isr),
        going: Some(broker),
        unclean: leaving.unclean.then_some(broker),
        ..Wanted::as_is(id, state)
    }
    .record(world)
}

/// The broker serves; partitions without a leader get one if it is the one they waited for.
pub fn unfence(world: World<'_>, broker: NodeId) -> Vec<Record> {
    let Some(known) = world.image.broker(broker).filter(|broker| broker.fenced) else {
        return Vec::new();
    };
    let unfenced = Record::ChangeBroker {
        id: broker,
        epoch: known.epoch,
        fenced: Some(false),
        in_controlled_shutdown: None,
    };
    let waiting = world
        .image
        .partitions()
        .filter(|(_, state)| state.leader.is_none() && state.replicas.contains(&broker));
    std::iter::once(unfenced)
        .chain(waiting.filter_map(|(id, state)| {
            Wanted { coming: Some(broker), ..Wanted::as_is(id, state) }.record(world)
        }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::testing::Cluster;

    #[test]
    fn r27_partitions_change_before_the_fence_is_recorded() {
        let cluster = Cluster::of(3).with_topic("t", &[&[1, 2, 3], &[2, 3, 1]]);
        let records = fence(cluster.world(), NodeId(1));
        let fences: Vec<bool> =
            records.iter().map(|record| matches!(record, Record::ChangeBroker { .. })).collect();
        assert_eq!(fences, [false, false, true]);
    }

    #[test]
    fn r27_of_two_that_die_at_once_neither_is_elected() {
        // Fencing both over the same image would elect 2, which is dead as well.
        let mut cluster = Cluster::of(3).with_topic("t", &[&[1, 2, 3]]);
        cluster.fence(1);
        assert_eq!(cluster.partition("t", 0).leader, Some(NodeId(2)));
        cluster.fence(2);
        let state = cluster.partition("t", 0);
        assert_eq!((state.leader, state.isr.clone()), (Some(NodeId(3)), vec![NodeId(3)]));
    }

    #[test]
    fn fencing_twice_changes_nothing() {
        let mut cluster = Cluster::of(2).with_topic("t", &[&[1, 2]]);
        cluster.fence(1);
        assert_eq!(fence(cluster.world(), NodeId(1)), []);
        assert_eq!(fence(cluster.world(), NodeId(9)), []);
    }
}
