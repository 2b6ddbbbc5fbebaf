//! The groups of one partition of the topic: what is committed, and what is on its way there.
//!
//! A change is appended to the log first, under the lock of the shard, so that the log's order is
//! the order in which it was decided. It is made here once the log holds it for good, in that
//! order, whoever waits for it or does not any more. So what is known here is always what the
//! committed part of the log says.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use kafka_protocol::ResponseError;
use replication::types::{LeaderEpoch, Offset};
use tokio::time::Instant;

use super::group::{Group, GroupState};
use super::records::{group_key, offset_key, offset_value};
use super::{Committed, Place};

/// A record of the topic: key and value; without one, what the key names is gone.
pub(super) type Record = (Bytes, Option<Bytes>);

/// What a record changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// An offset is committed; or is gone.
    Offset { group: String, place: Place, committed: Option<Committed> },
    /// A group is gone.
    GroupGone(String),
    /// The leader of a group has said who gets what, in a generation.
    Assigned { group: String, generation: i32, assignments: Vec<(String, Bytes)> },
}

impl Change {
    /// As it lies in the log; `stored` is the group's record, where it is about a group that stays.
    pub(super) fn record(&self, stored: Option<&Bytes>) -> Record {
        match self {
            Self::Offset { group, place: (topic, index), committed } => {
                (offset_key(group, topic, *index), committed.as_ref().map(offset_value))
            }
            Self::GroupGone(group) => (group_key(group), None),
            Self::Assigned { group, .. } => (group_key(group), stored.cloned()),
        }
    }
}

/// How far groups are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Offsets(BTreeMap<String, BTreeMap<Place, Committed>>);

impl Offsets {
    /// Takes a commit or a deletion, whether it was just committed or is read from the log.
    pub(super) fn take(&mut self, group: String, place: Place, committed: Option<Committed>) {
        if let Some(committed) = committed {
            self.0.entry(group).or_default().insert(place, committed);
        } else if let Some(known) = self.0.get_mut(&group) {
            known.remove(&place);
            if known.is_empty() {
                self.0.remove(&group);
            }
        }
    }

    /// Those of a group.
    pub(super) fn of(&self, group: &str) -> Option<&BTreeMap<Place, Committed>> {
        self.0.get(group)
    }

    /// Groups that have some.
    pub(super) fn groups(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }
}

/// Appended, and not committed yet.
#[derive(Debug)]
struct Pending {
    /// The log's end behind it.
    end: Offset,
    changes: Vec<Change>,
}

/// The groups of one partition of the topic.
#[derive(Debug)]
pub(super) struct Shard {
    /// In which leader epoch this node leads the partition.
    pub(super) epoch: LeaderEpoch,
    /// Whether its log was read.
    pub(super) loaded: bool,
    pub(super) groups: BTreeMap<String, Group>,
    pub(super) offsets: Offsets,
    pending: VecDeque<Pending>,
}

impl Shard {
    /// Nothing of it is known yet.
    pub(super) fn new(epoch: LeaderEpoch) -> Self {
        Self {
            epoch,
            loaded: false,
            groups: BTreeMap::new(),
            offsets: Offsets::default(),
            pending: VecDeque::new(),
        }
    }

    /// `changes` lie in the log, which ends at `end` now.
    pub(super) fn wrote(&mut self, end: Offset, changes: Vec<Change>) {
        self.pending.push_back(Pending { end, changes });
    }

    /// Makes the changes that lie below `committed`, in the log's order.
    pub(super) fn settle(&mut self, committed: Offset, now: Instant) {
        while self.pending.front().is_some_and(|pending| pending.end <= committed) {
            let Some(Pending { changes, .. }) = self.pending.pop_front() else { return };
            for change in changes {
                self.make(change, now);
            }
        }
    }

    fn make(&mut self, change: Change, now: Instant) {
        match change {
            Change::Offset { group, place, committed } => {
                if committed.is_some() {
                    self.groups.entry(group.clone()).or_default();
                }
                self.offsets.take(group, place, committed);
            }
            // Someone may have joined since: then it is a group again, and its record comes later.
            Change::GroupGone(group) => {
                if self.groups.get(&group).is_some_and(Group::is_abandoned) {
                    self.groups.remove(&group);
                }
            }
            Change::Assigned { group, generation, assignments } => {
                let Some(group) = self.groups.get_mut(&group) else { return };
                if group.state == GroupState::CompletingRebalance && group.generation == generation
                {
                    group.assigned(&assignments, now);
                }
            }
        }
    }

    /// Where `group` has an offset, or will have one once all is committed that is on its way.
    pub(super) fn places(&self, group: &str) -> Vec<Place> {
        let mut places: Vec<Place> =
            self.offsets.of(group).into_iter().flatten().map(|(place, _)| place.clone()).collect();
        let on_their_way = self.pending.iter().flat_map(|pending| &pending.changes);
        places.extend(on_their_way.filter_map(|change| match change {
            Change::Offset { group: of, place, .. } if of == group => Some(place.clone()),
            _ => None,
        }));
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Is something of `group` on its way?
    pub(super) fn is_changing(&self, group: &str) -> bool {
        self.pending.iter().flat_map(|pending| &pending.changes).any(|change| {
            let (Change::Offset { group: of, .. }
            | Change::GroupGone(of)
            | Change::Assigned { group: of, .. }) = change;
            of == group
        })
    }

    /// Whoever waits is told that the groups are elsewhere.
    pub(super) fn dismiss(&mut self) {
        for group in self.groups.values_mut() {
            group.dismiss(ResponseError::NotCoordinator);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed(offset: i64) -> Committed {
        Committed { offset, leader_epoch: -1, metadata: String::new(), timestamp_ms: 0 }
    }

    fn place() -> Place {
        ("t".to_owned(), 0)
    }

    fn commits(offset: i64) -> Change {
        Change::Offset { group: "g".to_owned(), place: place(), committed: Some(committed(offset)) }
    }

    fn deletes() -> Vec<Change> {
        let gone = Change::Offset { group: "g".to_owned(), place: place(), committed: None };
        vec![gone, Change::GroupGone("g".to_owned())]
    }

    fn known(shard: &Shard) -> Option<i64> {
        Some(shard.offsets.of("g")?.get(&place())?.offset)
    }

    #[tokio::test]
    async fn changes_are_made_in_the_logs_order_and_not_before_they_are_committed() {
        let mut shard = Shard::new(LeaderEpoch(1));
        shard.wrote(Offset(1), vec![commits(10)]);
        shard.wrote(Offset(2), vec![commits(20)]);
        shard.settle(Offset(0), Instant::now());
        assert_eq!(known(&shard), None);
        shard.settle(Offset(1), Instant::now());
        assert_eq!(known(&shard), Some(10));
        shard.settle(Offset(2), Instant::now());
        assert_eq!(known(&shard), Some(20));
    }

    #[tokio::test]
    async fn a_deletion_names_what_is_on_its_way() {
        let mut shard = Shard::new(LeaderEpoch(1));
        shard.wrote(Offset(1), vec![commits(10)]);
        assert_eq!(shard.places("g"), [place()]);
        shard.wrote(Offset(3), deletes());
        shard.settle(Offset(3), Instant::now());
        assert_eq!(known(&shard), None);
        assert!(shard.groups.is_empty());
    }

    #[tokio::test]
    async fn a_commit_behind_a_deletion_stays() {
        let mut shard = Shard::new(LeaderEpoch(1));
        shard.wrote(Offset(2), deletes());
        shard.wrote(Offset(3), vec![commits(7)]);
        shard.settle(Offset(3), Instant::now());
        assert_eq!(known(&shard), Some(7));
        assert!(shard.groups.contains_key("g"));
    }
}
