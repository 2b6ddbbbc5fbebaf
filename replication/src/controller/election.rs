//! Who leads a partition: R29 and R30, and the one place where a wanted state becomes a record.

use std::collections::BTreeSet;

use crate::controller::{ControllerError, ErrorKind, World, features};
use crate::metadata::settings::{effective_flag, effective_number};
use crate::metadata::{PartitionChange, PartitionState, Record};
use crate::seeded::Bug;
use crate::types::{NodeId, PartitionId, Recovery};

/// Who may be elected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Election {
    /// Whoever leads stays, if possible; else an active member of the ISR (or the ELR).
    Clean,
    /// The first replica, if it is in the ISR and active; else as clean.
    Preferred,
    /// As clean; where nobody can be elected so, any active replica (R29).
    Unclean,
}

/// What a partition shall become.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// Which partition.
    pub id: PartitionId,
    /// As it is.
    pub state: &'a PartitionState,
    /// The ISR; `None`: as it is.
    pub isr: Option<Vec<NodeId>>,
    /// Replicas, adding, removing; `None`: as they are.
    pub replicas: Option<[Vec<NodeId>; 3]>,
    /// Who may be elected.
    pub election: Election,
    /// Counts as inactive, whatever the image says: it is about to be.
    pub going: Option<NodeId>,
    /// Counts as active, whatever the image says: it is about to be.
    pub coming: Option<NodeId>,
    /// May have lost what it had not synced: is trusted neither in the ISR nor in the ELR.
    pub unclean: Option<NodeId>,
    /// The recovery state that a leader proposes.
    pub recovery: Option<Recovery>,
}

/// How a broker leaves ISRs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// It may have lost what it had not synced.
    pub unclean: bool,
}

impl<'a> Wanted<'a> {
    /// A partition as it is, to be changed field by field.
    pub const fn as_is(id: PartitionId, state: &'a PartitionState) -> Self {
        Self {
            id,
            state,
            isr: None,
            replicas: None,
            election: Election::Clean,
            going: None,
            coming: None,
            unclean: None,
            recovery: None,
        }
    }

    fn is_active(&self, world: World<'_>, id: NodeId) -> bool {
        self.coming == Some(id) || (world.image.is_active(id) && self.going != Some(id))
    }

    /// The record that makes it so; none where nothing changes.
    pub fn record(self, world: World<'_>) -> Option<Record> {
        let topic = world.image.topic(self.id.topic)?;
        let allowed = Bug::R29IgnoreTopic.is_on()
            || effective_flag(
                world.image,
                world.defaults,
                &topic.name,
                "unclean.leader.election.enable",
            );
        let election = if self.election == Election::Clean && allowed {
            Election::Unclean
        } else {
            self.election
        };
        let change = self.change(world, election, &topic.name);
        (change != PartitionChange::default())
            .then_some(Record::ChangePartition { id: self.id, change })
    }

    fn change(&self, world: World<'_>, election: Election, topic: &str) -> PartitionChange {
        let state = self.state;
        let [replicas, adding, removing] = self.replicas.clone().unwrap_or_else(|| {
            [state.replicas.clone(), state.adding.clone(), state.removing.clone()]
        });
        let mut isr = self.isr.clone().unwrap_or_else(|| state.isr.clone());
        let with_elr = features::has_elr(world.image);
        let min_isr =
            effective_number(world.image, world.defaults, None, topic, "min.insync.replicas");
        let min_isr = usize::try_from(min_isr).unwrap_or(1).min(replicas.len());
        let (mut elr, mut last_known) = self.elr(&replicas, &isr, min_isr, with_elr);
        let elected = self.elect(world, election, &replicas, &isr, (&elr, &last_known));
        let mut recovery = self.recovery.unwrap_or(state.recovery);
        if let Some(Elected { id, how }) = elected {
            match how {
                How::FromIsr => {}
                How::FromElr => {
                    isr = vec![id];
                    elr.retain(|member| *member != id);
                    last_known.clear();
                }
                How::Uncleanly => {
                    isr = vec![id];
                    elr.clear();
                    last_known.clear();
                    recovery = Recovery::Recovering;
                }
            }
        } else if isr.is_empty() && !with_elr && !Bug::R30EmptyIsr.is_on() {
            // R30: it, and only it, can be elected cleanly.
            isr.clone_from(&state.isr);
        }
        let leader = elected.map(|elected| elected.id);
        // Who is taken away shall notice: a follower that is no replica any more would go on.
        let loses_replica = state.replicas.iter().any(|id| !replicas.contains(id));
        let changed = |new: Vec<NodeId>, old: &Vec<NodeId>| (new != *old).then_some(new);
        PartitionChange {
            leader: (leader != state.leader || (loses_replica && leader.is_some()))
                .then_some(leader),
            isr: changed(isr, &state.isr),
            replicas: changed(replicas, &state.replicas),
            adding: changed(adding, &state.adding),
            removing: changed(removing, &state.removing),
            recovery: (recovery != state.recovery).then_some(recovery),
            elr: changed(elr, &state.elr),
            last_known_elr: changed(last_known, &state.last_known_elr),
        }
    }

    /// KIP-966: while the ISR is below its minimum, whoever leaves it still holds all that is
    /// committed, since nothing is committed meanwhile. When the ISR empties, the leader that was
    /// the last one is kept in mind: the second value. Whoever holds no replica any more is neither
    /// waited for nor kept in mind.
    fn elr(
        &self,
        replicas: &[NodeId],
        isr: &[NodeId],
        min_isr: usize,
        with_elr: bool,
    ) -> (Vec<NodeId>, Vec<NodeId>) {
        if !with_elr || isr.len() >= min_isr {
            return (Vec::new(), Vec::new());
        }
        let state = self.state;
        let trusted: BTreeSet<NodeId> = state
            .elr
            .iter()
            .chain(&state.isr)
            .copied()
            .filter(|id| !isr.contains(id) && self.unclean != Some(*id) && replicas.contains(id))
            .collect();
        let mut last_known = match state.leader {
            Some(leader) if isr.is_empty() => vec![leader],
            _ => state.last_known_elr.clone(),
        };
        last_known.retain(|id| replicas.contains(id));
        (trusted.into_iter().collect(), last_known)
    }

    fn elect(
        &self,
        world: World<'_>,
        election: Election,
        replicas: &[NodeId],
        isr: &[NodeId],
        (elr, last_known): (&[NodeId], &[NodeId]),
    ) -> Option<Elected> {
        let active = |id: &NodeId| self.is_active(world, *id);
        let from_isr = |id: &NodeId| isr.contains(id) && active(id);
        let elected = |id: NodeId, how| Elected { id, how };
        if election == Election::Preferred
            && let Some(first) = replicas.first().filter(|id| from_isr(id))
        {
            return Some(elected(*first, How::FromIsr));
        }
        if let Some(leader) = self.state.leader.filter(|id| from_isr(id)) {
            return Some(elected(leader, How::FromIsr));
        }
        if let Some(member) = replicas.iter().find(|id| from_isr(id)) {
            return Some(elected(*member, How::FromIsr));
        }
        if let Some(member) = replicas.iter().find(|id| elr.contains(id) && active(id)) {
            return Some(elected(*member, How::FromElr));
        }
        // Nobody is trusted any more: all of them stopped without syncing. The last leader is the
        // one that most likely has everything; without it the partition would be gone.
        if isr.is_empty()
            && elr.is_empty()
            && let [last] = last_known
            && active(last)
        {
            return Some(elected(*last, How::Uncleanly));
        }
        if election == Election::Unclean {
            return replicas.iter().find(|id| active(id)).map(|id| elected(*id, How::Uncleanly));
        }
        None
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Elected {
    id: NodeId,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    FromIsr,
    FromElr,
    Uncleanly,
}

/// R29: gives leaderless partitions a leader where their topic allows an unclean one. At most
/// `limit` records; reaching it asks to be called again at once.
pub fn unclean_sweep(world: World<'_>, limit: usize) -> (Vec<Record>, bool) {
    let leaderless = world.image.partitions().filter(|(_, state)| state.leader.is_none());
    let records: Vec<Record> = leaderless
        .filter_map(|(id, state)| Wanted::as_is(id, state).record(world))
        .take(limit)
        .collect();
    let again = records.len() == limit;
    (records, again)
}

/// Gives leadership back to preferred replicas, as [`unclean_sweep`] bounded by `limit`.
pub fn preferred_sweep(world: World<'_>, limit: usize) -> (Vec<Record>, bool) {
    let astray = world.image.partitions().filter(|(_, state)| {
        state.leader.is_some() && state.leader != state.replicas.first().copied()
    });
    let records: Vec<Record> = astray
        .filter_map(|(id, state)| {
            Wanted { election: Election::Preferred, ..Wanted::as_is(id, state) }.record(world)
        })
        .take(limit)
        .collect();
    let again = records.len() == limit;
    (records, again)
}

/// ElectLeaders, for one partition: `unclean`, or the preferred replica.
///
/// # Errors
/// Kafka's, as the tools know them; `ELECTION_NOT_NEEDED` is one.
pub fn elect(world: World<'_>, id: PartitionId, unclean: bool) -> Result<Record, ControllerError> {
    let state = world.image.partition(id).ok_or_else(|| {
        ControllerError::new(ErrorKind::UnknownTopicOrPartition, format!("there is no {id}"))
    })?;
    let refused = |kind, reason: &str| Err(ControllerError::new(kind, reason));
    let leader = state.leader;
    if unclean && leader.is_some() {
        return refused(ErrorKind::ElectionNotNeeded, "it has a leader");
    }
    if !unclean && leader.is_some() && leader == state.replicas.first().copied() {
        return refused(ErrorKind::ElectionNotNeeded, "the preferred replica leads");
    }
    let election = if unclean { Election::Unclean } else { Election::Preferred };
    let record = Wanted { election, ..Wanted::as_is(id, state) }.record(world);
    let elects = |record: &Record| matches!(record, Record::ChangePartition { change, .. } if change.leader.is_some());
    match record.filter(elects) {
        Some(record) => Ok(record),
        None if unclean => refused(ErrorKind::EligibleLeadersNotAvailable, "no replica is active"),
        None => refused(
            ErrorKind::PreferredLeaderNotAvailable,
            "the preferred replica is not in the ISR, or not active",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::testing::Cluster;

    #[test]
    fn r29_off_by_default_and_on_where_the_topic_says_so() {
        let mut cluster =
            Cluster::of(3).with_topic("safe", &[&[1, 2, 3]]).with_topic("risky", &[&[1, 2, 3]]);
        cluster.set("risky", "unclean.leader.election.enable", "true");
        for topic in ["safe", "risky"] {
            cluster.shrink(topic, 0, &[1]);
        }
        cluster.fence(1);
        let safe = cluster.partition("safe", 0);
        assert_eq!((safe.leader, safe.isr.clone()), (None, vec![NodeId(1)]));
        let risky = cluster.partition("risky", 0);
        assert_eq!(risky.leader, Some(NodeId(2)));
        assert_eq!((risky.isr.clone(), risky.recovery), (vec![NodeId(2)], Recovery::Recovering));
    }

    #[test]
    fn r29_a_sweep_stops_at_its_limit_and_asks_for_more() {
        let mut cluster = Cluster::of(3);
        let replicas: &[&[i32]] = &[&[1, 2] as &[i32]; 5];
        cluster = cluster.with_topic("t", replicas);
        for index in 0..5 {
            cluster.shrink("t", index, &[1]);
        }
        cluster.fence(1);
        assert_eq!(unclean_sweep(cluster.world(), 2), (Vec::new(), false));
        cluster.set("t", "unclean.leader.election.enable", "true");
        let (records, again) = unclean_sweep(cluster.world(), 2);
        assert_eq!((records.len(), again), (2, true));
        cluster.apply(&records);
        let (records, again) = unclean_sweep(cluster.world(), 4);
        assert_eq!((records.len(), again), (3, false));
    }

    #[test]
    fn r30_the_last_member_stays_and_only_it_is_elected() {
        let mut cluster = Cluster::of(3).with_topic("t", &[&[1, 2, 3]]);
        cluster.fence(2);
        cluster.fence(3);
        cluster.fence(1);
        let state = cluster.partition("t", 0);
        assert_eq!((state.leader, state.isr.clone()), (None, vec![NodeId(1)]));
        cluster.unfence(2);
        assert_eq!(cluster.partition("t", 0).leader, None);
        cluster.unfence(1);
        assert_eq!(cluster.partition("t", 0).leader, Some(NodeId(1)));
    }

    #[test]
    fn r30_with_elr_the_isr_may_empty_and_its_members_stay_eligible() {
        let mut cluster = Cluster::of(3).with_elr().with_topic("t", &[&[1, 2, 3]]);
        cluster.set("t", "min.insync.replicas", "2");
        cluster.fence(3);
        cluster.fence(2);
        assert_eq!(cluster.partition("t", 0).elr, [NodeId(2)]);
        cluster.fence(1);
        let state = cluster.partition("t", 0);
        assert_eq!((state.isr.clone(), state.leader), (Vec::new(), None));
        assert_eq!(state.elr, [NodeId(1), NodeId(2)]);
        cluster.unfence(3);
        assert_eq!(cluster.partition("t", 0).leader, None, "it missed writes");
        cluster.unfence(2);
        let state = cluster.partition("t", 0);
        assert_eq!((state.leader, state.isr.clone()), (Some(NodeId(2)), vec![NodeId(2)]));
    }

    #[test]
    fn r30_when_nobody_is_trusted_any_more_the_last_leader_is_elected() {
        let mut cluster = Cluster::of(3).with_elr().with_topic("t", &[&[1, 2, 3]]);
        cluster.set("t", "min.insync.replicas", "2");
        // All are killed at once, and come back without a word on how they stopped.
        for id in [3, 2, 1] {
            cluster.reborn(id);
        }
        let state = cluster.partition("t", 0);
        assert_eq!((state.isr.clone(), state.elr.clone()), (Vec::new(), Vec::new()));
        assert_eq!((state.leader, state.last_known_elr.clone()), (None, vec![NodeId(1)]));
        cluster.unfence(3);
        assert_eq!(cluster.partition("t", 0).leader, None, "it may lack records");
        cluster.unfence(1);
        let state = cluster.partition("t", 0);
        assert_eq!((state.leader, state.recovery), (Some(NodeId(1)), Recovery::Recovering));
    }

    #[test]
    fn the_preferred_replica_gets_its_place_back_once_it_is_in_sync() {
        let mut cluster = Cluster::of(3).with_topic("t", &[&[1, 2, 3]]);
        cluster.fence(1);
        cluster.unfence(1);
        let id = cluster.id("t", 0);
        let early = elect(cluster.world(), id, false).unwrap_err();
        assert_eq!(early.kind, ErrorKind::PreferredLeaderNotAvailable);
        cluster.grow("t", 0, &[1, 2, 3]);
        let record = elect(cluster.world(), id, false).unwrap();
        cluster.apply(&[record]);
        assert_eq!(cluster.partition("t", 0).leader, Some(NodeId(1)));
        let twice = elect(cluster.world(), id, false).unwrap_err();
        assert_eq!(twice.kind, ErrorKind::ElectionNotNeeded);
    }
}
