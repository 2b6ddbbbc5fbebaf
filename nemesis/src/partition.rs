//! Which links a partition cuts.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use cluster::NodeName;
use cluster::network::{Cut, Endpoint};
use history::Key;
use rand::Rng;
use rand::seq::{IndexedRandom, SliceRandom};
use serde::{Deserialize, Serialize};

use crate::situation::Situation;
use crate::target::{Target, TargetError, choose_key};

/// A shape of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartitionKind {
    /// One node sees no other node, and they do not see it.
    IsolateOne,
    /// Two halves that do not see each other.
    Halves,
    /// Every node sees a majority, but no two see the same one (five nodes or more).
    MajoritiesRing,
    /// Two halves, and one node in the middle that sees both.
    Bridge,
    /// One node sends to the others but does not hear them, or the reverse.
    OneWay,
    /// The leader of a key and its followers do not see each other.
    LeaderFromFollowers,
    /// The leader of a key and the controllers do not see each other.
    LeaderFromControllers,
    /// Clients and the leader of a key do not see each other.
    ClientsFromLeader,
}

/// Every kind with its name and what it needs.
const KINDS: [(PartitionKind, &str); 8] = [
    (PartitionKind::IsolateOne, "isolate-one"),
    (PartitionKind::Halves, "halves"),
    (PartitionKind::MajoritiesRing, "majorities-ring"),
    (PartitionKind::Bridge, "bridge"),
    (PartitionKind::OneWay, "one-way"),
    (PartitionKind::LeaderFromFollowers, "leader-from-followers"),
    (PartitionKind::LeaderFromControllers, "leader-from-controllers"),
    (PartitionKind::ClientsFromLeader, "clients-from-leader"),
];

impl PartitionKind {
    /// Every kind.
    pub fn all() -> impl Iterator<Item = Self> {
        KINDS.iter().map(|(kind, _)| *kind)
    }

    /// How many nodes it needs to mean something of its own.
    pub const fn min_nodes(self) -> usize {
        match self {
            Self::ClientsFromLeader => 1,
            Self::Bridge => 3,
            Self::MajoritiesRing => 5,
            _ => 2,
        }
    }

    /// The links to cut in this situation. `target`, where given, says who is isolated or which
    /// key's leader is meant. Pure: the same `rng` state gives the same links.
    ///
    /// # Errors
    /// [`TargetError`] when the target names nobody now.
    pub fn cuts(
        self,
        situation: &Situation,
        target: Option<&Target>,
        rng: &mut impl Rng,
    ) -> Result<BTreeSet<Cut>, TargetError> {
        let mut nodes: Vec<NodeName> = situation.nodes.keys().copied().collect();
        nodes.shuffle(rng);
        let everyone: BTreeSet<NodeName> = nodes.iter().copied().collect();
        Ok(match self {
            Self::IsolateOne => {
                let alone = chosen(situation, target, rng)?;
                let others = everyone.difference(&alone).copied().collect();
                between(&alone, &others)
            }
            Self::Halves => {
                let (left, right) = nodes.split_at(nodes.len() / 2);
                between(&left.iter().copied().collect(), &right.iter().copied().collect())
            }
            Self::MajoritiesRing => majorities_ring(&nodes),
            Self::Bridge => {
                let rest = nodes.get(1..).unwrap_or_default();
                let (left, right) = rest.split_at(rest.len() / 2);
                between(&left.iter().copied().collect(), &right.iter().copied().collect())
            }
            Self::OneWay => {
                let one = chosen(situation, target, rng)?;
                let others: BTreeSet<_> = everyone.difference(&one).copied().collect();
                let deaf = [true, false].choose(rng).copied().unwrap_or(true);
                between(&one, &others)
                    .into_iter()
                    .filter(|cut| matches!(cut.to, Endpoint::Node(to) if one.contains(&to) == deaf))
                    .collect()
            }
            Self::LeaderFromFollowers => {
                let (leader, replicas) = led(situation, target, rng)?;
                let followers = replicas.into_iter().filter(|node| *node != leader).collect();
                between(&BTreeSet::from([leader]), &followers)
            }
            Self::LeaderFromControllers => {
                let (leader, _) = led(situation, target, rng)?;
                let controllers =
                    situation.controllers().into_iter().filter(|node| *node != leader).collect();
                between(&BTreeSet::from([leader]), &controllers)
            }
            Self::ClientsFromLeader => {
                let (leader, _) = led(situation, target, rng)?;
                Cut::both(Endpoint::Clients, Endpoint::Node(leader)).into()
            }
        })
    }
}

fn chosen(
    situation: &Situation,
    target: Option<&Target>,
    rng: &mut impl Rng,
) -> Result<BTreeSet<NodeName>, TargetError> {
    target.unwrap_or(&Target::One).resolve(situation, rng)
}

/// A led key's leader and its replicas: the target's key, or any.
fn led(
    situation: &Situation,
    target: Option<&Target>,
    rng: &mut impl Rng,
) -> Result<(NodeName, BTreeSet<NodeName>), TargetError> {
    let wanted: Option<&Key> = match target {
        Some(Target::Leader(key) | Target::Followers(key)) => key.as_ref(),
        _ => None,
    };
    let (key, leadership) = choose_key(situation, wanted, rng)?;
    let leader = leadership.leader.ok_or(TargetError::Leaderless(key))?;
    Ok((leader, leadership.replicas.clone()))
}

fn between(left: &BTreeSet<NodeName>, right: &BTreeSet<NodeName>) -> BTreeSet<Cut> {
    left.iter()
        .flat_map(|a| right.iter().map(move |b| (*a, *b)))
        .filter(|(a, b)| a != b)
        .flat_map(|(a, b)| Cut::both(Endpoint::Node(a), Endpoint::Node(b)))
        .collect()
}

/// Nodes on a ring see their neighbours only, just enough of them for a majority with themselves.
fn majorities_ring(ring: &[NodeName]) -> BTreeSet<Cut> {
    let count = ring.len();
    let reach = (count / 2 + 1).saturating_sub(1).div_ceil(2);
    let mut cuts = BTreeSet::new();
    for (i, a) in ring.iter().enumerate() {
        for (j, b) in ring.iter().enumerate().skip(i + 1) {
            let distance = (j - i).min(count - (j - i));
            if distance > reach {
                cuts.extend(Cut::both(Endpoint::Node(*a), Endpoint::Node(*b)));
            }
        }
    }
    cuts
}

impl fmt::Display for PartitionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = KINDS.iter().find(|(kind, _)| kind == self).map_or("", |(_, name)| *name);
        f.write_str(name)
    }
}

impl FromStr for PartitionKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        KINDS.iter().find(|(_, name)| *name == text).map(|(kind, _)| *kind).ok_or_else(|| {
            let names: Vec<_> = KINDS.iter().map(|(_, name)| *name).collect();
            format!("there is no partition `{text}`; there are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use cluster::Role;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::situation::Leadership;

    fn cluster_of(count: u32) -> Situation {
        Situation {
            nodes: (1..=count).map(|id| (NodeName::new(id), Role::Combined)).collect(),
            alive: (1..=count).map(NodeName::new).collect(),
            controller: Some(NodeName::new(1)),
            keys: [(
                Key::from("t-0"),
                Leadership {
                    leader: Some(NodeName::new(2)),
                    replicas: (1..=count.min(3)).map(NodeName::new).collect(),
                },
            )]
            .into(),
        }
    }

    fn cuts(kind: PartitionKind, count: u32, seed: u64) -> BTreeSet<Cut> {
        kind.cuts(&cluster_of(count), None, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap()
    }

    /// How many nodes each node can talk to in both directions, itself included.
    fn sees(count: u32, cuts: &BTreeSet<Cut>) -> Vec<usize> {
        let nodes: Vec<_> = (1..=count).map(NodeName::new).collect();
        let open = |a, b| !cuts.contains(&Cut::nodes(a, b)) && !cuts.contains(&Cut::nodes(b, a));
        nodes.iter().map(|a| nodes.iter().filter(|b| open(*a, **b)).count()).collect()
    }

    #[test]
    fn isolate_one_leaves_one_alone() {
        for seed in 0..20 {
            let mut seen = sees(3, &cuts(PartitionKind::IsolateOne, 3, seed));
            seen.sort_unstable();
            assert_eq!(seen, [1, 2, 2]);
        }
    }

    #[test]
    fn a_bridge_sees_both_halves() {
        let mut seen = sees(5, &cuts(PartitionKind::Bridge, 5, 7));
        seen.sort_unstable();
        assert_eq!(seen, [3, 3, 3, 3, 5]);
    }

    #[test]
    fn on_a_ring_everyone_sees_a_majority_and_not_all() {
        for count in [5, 7, 9] {
            for seen in sees(count, &cuts(PartitionKind::MajoritiesRing, count, 3)) {
                let majority = count as usize / 2 + 1;
                assert!((majority..count as usize).contains(&seen), "{count}: {seen}");
            }
        }
    }

    #[test]
    fn one_way_leaves_the_other_way_open() {
        let cuts = cuts(PartitionKind::OneWay, 3, 1);
        assert_eq!(cuts.len(), 2);
        for cut in &cuts {
            assert!(!cuts.contains(&Cut { from: cut.to, to: cut.from }));
        }
    }

    #[test]
    fn clients_from_leader_cuts_no_node_from_another() {
        let leader = Endpoint::Node(NodeName::new(2));
        assert_eq!(
            cuts(PartitionKind::ClientsFromLeader, 3, 1),
            Cut::both(Endpoint::Clients, leader).into()
        );
    }

    #[test]
    fn names_convert_both_ways() {
        for kind in PartitionKind::all() {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!("ring".parse::<PartitionKind>().unwrap_err().contains("majorities-ring"));
    }
}
