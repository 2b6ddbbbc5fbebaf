//! A partition moves to other brokers.

use crate::controller::election::Wanted;
use crate::controller::{ControllerError, ErrorKind, World, topics};
use crate::metadata::{PartitionState, Record};
use crate::types::{NodeId, PartitionId};

/// Begins to move a partition to `target` (`None`: undoes what is under way). It holds both sets
/// of replicas until the new ones are in sync.
///
/// # Errors
/// Kafka's.
pub fn reassign(
    world: World<'_>,
    id: PartitionId,
    target: Option<&[NodeId]>,
) -> Result<Option<Record>, ControllerError> {
    let state = world.image.partition(id).ok_or_else(|| {
        ControllerError::new(ErrorKind::UnknownTopicOrPartition, format!("there is no {id}"))
    })?;
    // What was there before any reassignment that is under way.
    let original: Vec<NodeId> =
        state.replicas.iter().copied().filter(|id| !state.adding.contains(id)).collect();
    let Some(target) = target else {
        if !state.is_reassigning() {
            return Err(ControllerError::new(
                ErrorKind::NoReassignmentInProgress,
                "no reassignment is under way",
            ));
        }
        keeps_a_member(state, &original)?;
        return Ok(settle(world, id, state, &original));
    };
    topics::check_replicas(world, target, target.len())?;
    let adding: Vec<NodeId> = target.iter().copied().filter(|id| !original.contains(id)).collect();
    let removing: Vec<NodeId> =
        original.iter().copied().filter(|id| !target.contains(id)).collect();
    if adding.is_empty() && target.iter().any(|id| state.isr.contains(id)) {
        return Ok(settle(world, id, state, target));
    }
    let replicas: Vec<NodeId> = target.iter().chain(&removing).copied().collect();
    keeps_a_member(state, &replicas)?;
    let isr = state.isr.iter().copied().filter(|id| replicas.contains(id)).collect();
    let mut wanted = Wanted::as_is(id, state);
    wanted.isr = Some(isr);
    wanted.replicas = Some([replicas, adding, removing]);
    Ok(wanted.record(world))
}

/// Would the partition lose everyone who surely holds what is committed, or, where nobody does, the
/// last leader, who most likely does?
///
/// # Errors
/// `INVALID_REPLICA_ASSIGNMENT`.
fn keeps_a_member(state: &PartitionState, replicas: &[NodeId]) -> Result<(), ControllerError> {
    let mut trusted: Vec<NodeId> = state.isr.iter().chain(&state.elr).copied().collect();
    if trusted.is_empty() {
        trusted.clone_from(&state.last_known_elr);
    }
    if trusted.is_empty() || trusted.iter().any(|id| replicas.contains(id)) {
        return Ok(());
    }
    Err(ControllerError::new(
        ErrorKind::InvalidReplicaAssignment,
        format!("{replicas:?}: none of them surely holds what is committed, as {trusted:?} do"),
    ))
}

/// The partition is held by `replicas` alone from now on.
fn settle(
    world: World<'_>,
    id: PartitionId,
    state: &PartitionState,
    replicas: &[NodeId],
) -> Option<Record> {
    let isr: Vec<NodeId> = state.isr.iter().copied().filter(|id| replicas.contains(id)).collect();
    let mut wanted = Wanted::as_is(id, state);
    wanted.isr = Some(isr);
    wanted.replicas = Some([replicas.to_vec(), Vec::new(), Vec::new()]);
    wanted.record(world)
}

/// The replicas that hold the partition from now on, if with this ISR a reassignment is done:
/// every new replica is in sync, and one that stays is.
pub fn completed(state: &PartitionState, isr: &[NodeId]) -> Option<Vec<NodeId>> {
    if !state.is_reassigning() || !state.adding.iter().all(|id| isr.contains(id)) {
        return None;
    }
    let stay: Vec<NodeId> =
        state.replicas.iter().copied().filter(|id| !state.removing.contains(id)).collect();
    stay.iter().any(|id| isr.contains(id)).then_some(stay)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::alter_partition::{Asked, alter};
    use crate::controller::testing::Cluster;
    use crate::types::{BrokerEpoch, Recovery};

    fn ids(ids: &[i32]) -> Vec<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    fn begin(cluster: &mut Cluster, target: &[i32]) {
        let id = cluster.id("t", 0);
        let record = reassign(cluster.world(), id, Some(&ids(target))).unwrap();
        cluster.apply(record.as_slice());
    }

    /// The leader asks for this ISR.
    fn leader_asks(cluster: &mut Cluster, isr: &[i32]) {
        let state = cluster.partition("t", 0).clone();
        let leader = state.leader.unwrap();
        let asked = [Asked {
            id: cluster.id("t", 0),
            leader_epoch: state.leader_epoch,
            partition_epoch: state.partition_epoch,
            isr: ids(isr).into_iter().map(|id| (id, BrokerEpoch::BYPASS)).collect(),
            recovery: Recovery::Recovered,
        }];
        let epoch = cluster.epoch(leader.0);
        let (records, outcomes) = alter(cluster.world(), leader, epoch, &asked, 3).unwrap();
        outcomes[0].1.as_ref().unwrap();
        cluster.apply(&records);
    }

    #[test]
    fn a_partition_moves_once_the_new_replicas_are_in_sync() {
        let mut cluster = Cluster::of(4).with_topic("t", &[&[1, 2]]);
        begin(&mut cluster, &[3, 4]);
        let state = cluster.partition("t", 0);
        assert_eq!(state.replicas, ids(&[3, 4, 1, 2]));
        assert_eq!((state.adding.clone(), state.removing.clone()), (ids(&[3, 4]), ids(&[1, 2])));
        assert_eq!(state.leader, Some(NodeId(1)));
        leader_asks(&mut cluster, &[1, 2, 3]);
        assert!(cluster.partition("t", 0).is_reassigning());
        leader_asks(&mut cluster, &[1, 2, 3, 4]);
        let state = cluster.partition("t", 0);
        assert_eq!(state.replicas, ids(&[3, 4]));
        assert_eq!((state.leader, state.isr.clone()), (Some(NodeId(3)), ids(&[3, 4])));
        assert!(!state.is_reassigning());
    }

    #[test]
    fn what_is_under_way_can_be_undone_and_replaced() {
        let mut cluster = Cluster::of(4).with_topic("t", &[&[1, 2]]);
        begin(&mut cluster, &[1, 3]);
        begin(&mut cluster, &[1, 4]);
        assert_eq!(cluster.partition("t", 0).adding, ids(&[4]));
        let id = cluster.id("t", 0);
        let record = reassign(cluster.world(), id, None).unwrap();
        cluster.apply(record.as_slice());
        assert_eq!(cluster.partition("t", 0).replicas, ids(&[1, 2]));
        let error = reassign(cluster.world(), id, None).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoReassignmentInProgress);
    }

    #[test]
    fn the_last_known_leader_is_not_reassigned_away() {
        let mut cluster = Cluster::of(2).with_elr().with_topic("t", &[&[2]]);
        cluster.set("t", "unclean.leader.election.enable", "true");
        begin(&mut cluster, &[1]);
        cluster.reborn(2);
        assert_eq!(cluster.partition("t", 0).leader, Some(NodeId(1)));
        cluster.reborn(1);
        let state = cluster.partition("t", 0);
        assert_eq!((state.isr.len(), state.elr.len()), (0, 0));
        assert_eq!(state.last_known_elr, ids(&[1]));
        let error = reassign(cluster.world(), cluster.id("t", 0), None).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidReplicaAssignment);
    }

    #[test]
    fn fewer_replicas_need_no_waiting() {
        let mut cluster = Cluster::of(3).with_topic("t", &[&[1, 2, 3]]);
        let before = cluster.partition("t", 0).leader_epoch;
        begin(&mut cluster, &[2]);
        let state = cluster.partition("t", 0);
        assert_eq!((state.replicas.clone(), state.leader), (ids(&[2]), Some(NodeId(2))));
        assert!(state.leader_epoch > before);
    }
}
