//! A leader asks for another ISR: R35 and R36.

use crate::controller::election::Wanted;
use crate::controller::{ControllerError, ErrorKind, World, reassignment};
use crate::metadata::{PartitionState, Record};
use crate::seeded::Bug;
use crate::types::{BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch, PartitionId, Recovery};

/// From this version on an ineligible replica is told apart (KIP-841).
const FIRST_WITH_INELIGIBLE: i16 = 2;

/// What is asked for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Which.
    pub id: PartitionId,
    /// The asker's leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// The partition epoch on which it builds.
    pub partition_epoch: PartitionEpoch,
    /// The ISR it wants, each member in the life it knows.
    pub isr: Vec<(NodeId, BrokerEpoch)>,
    /// Its recovery state.
    pub recovery: Recovery,
}

/// What became of one partition.
pub type Outcome = (PartitionId, Result<PartitionState, ControllerError>);

/// Decides a whole request of `broker` in its life `epoch`, in version `version`. The states in
/// the answer are those after the records.
///
/// # Errors
/// `STALE_BROKER_EPOCH`, for all of it.
pub fn alter(
    world: World<'_>,
    broker: NodeId,
    epoch: BrokerEpoch,
    asked: &[Asked],
    version: i16,
) -> Result<(Vec<Record>, Vec<Outcome>), ControllerError> {
    let known = world.image.broker(broker).map(|broker| broker.epoch);
    if known != Some(epoch) {
        return Err(ControllerError::new(
            ErrorKind::StaleBrokerEpoch,
            format!("broker {broker} asks in epoch {epoch}, and is registered in {known:?}"),
        ));
    }
    let mut image = world.image.clone();
    let mut records = Vec::new();
    let mut outcomes = Vec::with_capacity(asked.len());
    for asked in asked {
        // Each over what the ones before it have changed.
        let now = World { image: &image, defaults: world.defaults };
        let outcome =
            validate(now, broker, asked, version).and_then(|state| take(now, state, asked));
        outcomes.push((
            asked.id,
            outcome.map(|(state, record)| {
                if let Some(record) = record {
                    // It was made for this image.
                    let _ = image.apply(-1, &record);
                    records.push(record);
                }
                state
            }),
        ));
    }
    Ok((records, outcomes))
}

/// R35, in this order; R36 last.
///
/// # Errors
/// The first that applies.
pub fn validate<'a>(
    world: World<'a>,
    broker: NodeId,
    asked: &Asked,
    version: i16,
) -> Result<&'a PartitionState, ControllerError> {
    let refuse = |kind, reason: String| Err(ControllerError::new(kind, reason));
    if world.image.topic(asked.id.topic).is_none() {
        return refuse(ErrorKind::UnknownTopicId, format!("no topic {}", asked.id.topic));
    }
    let Some(state) = world.image.partition(asked.id) else {
        return refuse(ErrorKind::UnknownTopicOrPartition, format!("no {}", asked.id));
    };
    if asked.leader_epoch > state.leader_epoch || asked.partition_epoch > state.partition_epoch {
        return refuse(
            ErrorKind::NotController,
            format!("{broker} knows more than this controller"),
        );
    }
    if asked.leader_epoch < state.leader_epoch {
        return refuse(
            ErrorKind::FencedLeaderEpoch,
            format!("the leader epoch is {}", state.leader_epoch),
        );
    }
    if state.leader != Some(broker) {
        return refuse(ErrorKind::InvalidRequest, format!("{broker} does not lead"));
    }
    if asked.partition_epoch < state.partition_epoch && !Bug::R35NoPartitionEpoch.is_on() {
        return refuse(
            ErrorKind::InvalidUpdateVersion,
            format!("the partition epoch is {}", state.partition_epoch),
        );
    }
    let ids: Vec<NodeId> = asked.isr.iter().map(|(id, _)| *id).collect();
    let malformed = ids.iter().enumerate().any(|(index, id)| ids[..index].contains(id))
        || ids.iter().any(|id| !state.replicas.contains(id));
    if malformed {
        return refuse(
            ErrorKind::InvalidRequest,
            format!("{ids:?} is no ISR of {:?}", state.replicas),
        );
    }
    if !ids.contains(&broker) {
        return refuse(ErrorKind::InvalidRequest, "the leader is not in its ISR".to_owned());
    }
    if asked.recovery == Recovery::Recovering && state.recovery == Recovery::Recovered {
        return refuse(ErrorKind::InvalidRequest, "it has recovered already".to_owned());
    }
    if asked.recovery == Recovery::Recovering && ids.len() > 1 {
        return refuse(
            ErrorKind::InvalidRequest,
            "it recovers, and is alone until then".to_owned(),
        );
    }
    if let Some((id, why)) = asked.isr.iter().find_map(|member| ineligible(world, *member)) {
        let kind = if version >= FIRST_WITH_INELIGIBLE {
            ErrorKind::IneligibleReplica
        } else {
            ErrorKind::OperationNotAttempted
        };
        return refuse(kind, format!("replica {id} is {why}"));
    }
    Ok(state)
}

/// R36: why a member may not be in an ISR.
pub fn ineligible(
    world: World<'_>,
    (id, epoch): (NodeId, BrokerEpoch),
) -> Option<(NodeId, &'static str)> {
    if Bug::R36NoEligibility.is_on() {
        return None;
    }
    let another_life = |known: BrokerEpoch| {
        epoch != BrokerEpoch::BYPASS && epoch != known && !Bug::R3AcceptMismatch.is_on()
    };
    let why = match world.image.broker(id) {
        None => "not registered",
        Some(broker) if broker.in_controlled_shutdown => "on its way out",
        Some(broker) if broker.fenced => "fenced",
        Some(broker) if another_life(broker.epoch) => "in another life than the leader knows",
        Some(_) => return None,
    };
    Some((id, why))
}

fn take(
    world: World<'_>,
    state: &PartitionState,
    asked: &Asked,
) -> Result<(PartitionState, Option<Record>), ControllerError> {
    let isr: Vec<NodeId> = state
        .replicas
        .iter()
        .copied()
        .filter(|id| asked.isr.iter().any(|(asked, _)| asked == id))
        .collect();
    let mut wanted = Wanted::as_is(asked.id, state);
    wanted.recovery = Some(asked.recovery);
    let done = reassignment::completed(state, &isr);
    wanted.isr = Some(match &done {
        Some(replicas) => isr.iter().copied().filter(|id| replicas.contains(id)).collect(),
        None => isr,
    });
    wanted.replicas = done.map(|replicas| [replicas, Vec::new(), Vec::new()]);
    let Some(record) = wanted.record(world) else { return Ok((state.clone(), None)) };
    let Record::ChangePartition { change, .. } = &record else {
        return Ok((state.clone(), None));
    };
    if change.leader.is_some_and(|leader| leader != state.leader) {
        // The asker leads no more, since it is no replica any more: it hears of that by metadata.
        let mut image = world.image.clone();
        let _ = image.apply(-1, &record);
        return match image.partition(asked.id) {
            Some(state) => Ok((state.clone(), Some(record))),
            None => Err(ControllerError::new(ErrorKind::NewLeaderElected, "it has gone")),
        };
    }
    let after = state.with(change);
    Ok((after, Some(record)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::testing::Cluster;

    fn ask(cluster: &Cluster, isr: &[(i32, i64)]) -> Asked {
        let state = cluster.partition("t", 0);
        Asked {
            id: cluster.id("t", 0),
            leader_epoch: state.leader_epoch,
            partition_epoch: state.partition_epoch,
            isr: isr.iter().map(|(id, epoch)| (NodeId(*id), BrokerEpoch(*epoch))).collect(),
            recovery: Recovery::Recovered,
        }
    }

    fn refusal(cluster: &Cluster, broker: i32, asked: &Asked) -> Option<ErrorKind> {
        validate(cluster.world(), NodeId(broker), asked, 3).err().map(|error| error.kind)
    }

    fn cluster() -> Cluster {
        let mut cluster = Cluster::of(3).with_topic("t", &[&[1, 2, 3]]);
        cluster.shrink("t", 0, &[1, 2]);
        cluster
    }

    #[test]
    fn r35_checks_in_order() {
        let cluster = cluster();
        let good = ask(&cluster, &[(1, -1), (2, -1), (3, -1)]);
        let with = |change: &dyn Fn(&mut Asked)| {
            let mut asked = good.clone();
            change(&mut asked);
            asked
        };
        assert_eq!(refusal(&cluster, 1, &good), None);
        let cases: &[(Asked, i32, ErrorKind)] = &[
            (with(&|a| a.id.index = 9), 1, ErrorKind::UnknownTopicOrPartition),
            (with(&|a| a.partition_epoch.0 += 1), 1, ErrorKind::NotController),
            // Each of the following is wrong in what comes later, too.
            (
                with(&|a| {
                    a.leader_epoch.0 -= 1;
                    a.isr.clear();
                }),
                2,
                ErrorKind::FencedLeaderEpoch,
            ),
            (with(&|a| a.partition_epoch.0 -= 1), 2, ErrorKind::InvalidRequest),
            (
                with(&|a| {
                    a.partition_epoch.0 -= 1;
                    a.isr.clear();
                }),
                1,
                ErrorKind::InvalidUpdateVersion,
            ),
            (with(&|a| a.isr.push((NodeId(9), BrokerEpoch(-1)))), 1, ErrorKind::InvalidRequest),
            (with(&|a| a.isr.push((NodeId(1), BrokerEpoch(-1)))), 1, ErrorKind::InvalidRequest),
            (with(&|a| a.isr.retain(|(id, _)| id.0 != 1)), 1, ErrorKind::InvalidRequest),
            (with(&|a| a.recovery = Recovery::Recovering), 1, ErrorKind::InvalidRequest),
        ];
        for (asked, broker, expected) in cases {
            assert_eq!(refusal(&cluster, *broker, asked), Some(*expected), "{asked:?}");
        }
    }

    #[test]
    fn r35_a_fence_between_makes_an_expansion_fail() {
        let mut cluster = cluster();
        let expand = ask(&cluster, &[(1, -1), (2, -1), (3, -1)]);
        cluster.fence(2);
        assert_eq!(refusal(&cluster, 1, &expand), Some(ErrorKind::InvalidUpdateVersion));
    }

    #[test]
    fn r35_a_stale_life_is_refused_as_a_whole() {
        let cluster = cluster();
        let asked = [ask(&cluster, &[(1, -1)])];
        let error = alter(cluster.world(), NodeId(1), BrokerEpoch(0), &asked, 3).unwrap_err();
        assert_eq!(error.kind, ErrorKind::StaleBrokerEpoch);
    }

    #[test]
    fn r36_fenced_leaving_unregistered_or_reborn_replicas_stay_out() {
        let mut cluster = cluster();
        let epoch = cluster.image().broker(NodeId(3)).unwrap().epoch.0;
        let expand = |cluster: &Cluster, epoch| {
            refusal(cluster, 1, &ask(cluster, &[(1, -1), (2, -1), (3, epoch)]))
        };
        assert_eq!(expand(&cluster, epoch), None);
        assert_eq!(expand(&cluster, epoch - 1), Some(ErrorKind::IneligibleReplica));
        assert_eq!(expand(&cluster, -1), None, "the bypass of R3");
        cluster.fence(3);
        assert_eq!(expand(&cluster, -1), Some(ErrorKind::IneligibleReplica));
        cluster.unfence(3);
        cluster.begin_shutdown(3);
        assert_eq!(expand(&cluster, -1), Some(ErrorKind::IneligibleReplica));
        let old =
            validate(cluster.world(), NodeId(1), &ask(&cluster, &[(1, -1), (2, -1), (3, -1)]), 1);
        assert_eq!(old.unwrap_err().kind, ErrorKind::OperationNotAttempted);
    }

    #[test]
    fn what_is_answered_is_what_holds_afterwards() {
        let mut cluster = cluster();
        let epoch = cluster.image().broker(NodeId(1)).unwrap().epoch;
        let asked = [ask(&cluster, &[(1, -1), (2, -1), (3, -1)])];
        let (records, outcomes) = alter(cluster.world(), NodeId(1), epoch, &asked, 3).unwrap();
        cluster.apply(&records);
        assert_eq!(outcomes[0].1.as_ref().unwrap(), cluster.partition("t", 0));
        assert_eq!(cluster.partition("t", 0).isr, [NodeId(1), NodeId(2), NodeId(3)]);
    }
}
