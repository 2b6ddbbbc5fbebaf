//! Whom a fault strikes.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use cluster::NodeName;
use history::Key;
use rand::seq::{IndexedRandom, IteratorRandom};
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::situation::{Leadership, Situation};

/// A way to choose nodes; resolved when the fault fires and recorded as node names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Target {
    /// Any one broker.
    One,
    /// As many brokers as still leave a majority: one of three.
    Minority,
    /// As few brokers as take the majority away: two of three.
    Majority,
    /// Every broker.
    All,
    /// Any number of brokers, at least one.
    Random,
    /// Leader of this key, or of any key.
    Leader(Option<Key>),
    /// The other replicas of this key, or of any key.
    Followers(Option<Key>),
    /// The active controller.
    Controller,
    /// These nodes.
    Nodes(BTreeSet<NodeName>),
}

/// Why a target names nobody now.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TargetError {
    /// The key is not one of the run's.
    #[error("there is no key `{0}` in this run")]
    NoSuchKey(Key),
    /// Nobody leads the key now.
    #[error("`{0}` has no leader now")]
    Leaderless(Key),
    /// Nobody says who leads the controllers.
    #[error("no broker knows an active controller now")]
    NoController,
    /// Other faults hold every broker already.
    #[error("no broker runs now that could be struck")]
    NobodyLeft,
    /// The run has no keys.
    #[error("no key is known now")]
    NoKeys,
    /// Such a node does not exist.
    #[error("there is no node {0} in this cluster")]
    NoSuchNode(NodeName),
}

impl Target {
    /// Targets a schedule may choose from when the user names none.
    pub const USUAL: [Self; 8] = [
        Self::One,
        Self::Minority,
        Self::Majority,
        Self::All,
        Self::Random,
        Self::Leader(None),
        Self::Followers(None),
        Self::Controller,
    ];

    /// Says how many, and leaves open which.
    const fn is_of_size(&self) -> bool {
        matches!(self, Self::One | Self::Minority | Self::Majority | Self::All | Self::Random)
    }

    /// The nodes meant, in this situation: of those that are not struck already, where the target
    /// leaves the choice. Pure: the same `rng` state gives the same nodes.
    ///
    /// # Errors
    /// [`TargetError`] when it names nobody now; the fault is then recorded as skipped.
    pub fn resolve(
        &self,
        situation: &Situation,
        rng: &mut impl Rng,
    ) -> Result<BTreeSet<NodeName>, TargetError> {
        let brokers = situation.brokers();
        let alive: Vec<NodeName> =
            brokers.iter().copied().filter(|node| situation.alive.contains(node)).collect();
        if alive.is_empty() && self.is_of_size() {
            return Err(TargetError::NobodyLeft);
        }
        let some = |count: usize, rng: &mut _| alive.sample(rng, count).copied().collect();
        Ok(match self {
            Self::One => some(1, rng),
            Self::Minority => some((brokers.len().saturating_sub(1) / 2).max(1), rng),
            Self::Majority => some(brokers.len() / 2 + 1, rng),
            Self::All => alive.into_iter().collect(),
            Self::Random => {
                let count = rng.random_range(1..=alive.len());
                some(count, rng)
            }
            Self::Leader(key) => {
                let (key, leadership) = choose_key(situation, key.as_ref(), rng)?;
                BTreeSet::from([leadership.leader.ok_or(TargetError::Leaderless(key))?])
            }
            Self::Followers(key) => {
                let (key, leadership) = choose_key(situation, key.as_ref(), rng)?;
                let leader = leadership.leader.ok_or(TargetError::Leaderless(key))?;
                leadership.replicas.iter().copied().filter(|node| *node != leader).collect()
            }
            Self::Controller => {
                BTreeSet::from([situation.controller.ok_or(TargetError::NoController)?])
            }
            Self::Nodes(nodes) => {
                if let Some(missing) = nodes.iter().find(|node| !situation.nodes.contains_key(node))
                {
                    return Err(TargetError::NoSuchNode(*missing));
                }
                nodes.clone()
            }
        })
    }
}

/// The named key, or any key that has a leader.
pub(crate) fn choose_key<'a>(
    situation: &'a Situation,
    wanted: Option<&Key>,
    rng: &mut impl Rng,
) -> Result<(Key, &'a Leadership), TargetError> {
    if let Some(key) = wanted {
        return situation
            .keys
            .get(key)
            .map(|leadership| (key.clone(), leadership))
            .ok_or_else(|| TargetError::NoSuchKey(key.clone()));
    }
    let led = situation.keys.iter().filter(|(_, leadership)| leadership.leader.is_some());
    if let Some((key, leadership)) = led.choose(rng) {
        return Ok((key.clone(), leadership));
    }
    let any = situation.keys.keys().next().ok_or(TargetError::NoKeys)?;
    Err(TargetError::Leaderless(any.clone()))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_key = |f: &mut fmt::Formatter<'_>, name: &str, key: &Option<Key>| match key {
            Some(key) => write!(f, "{name}:{key}"),
            None => f.write_str(name),
        };
        match self {
            Self::One => f.write_str("one"),
            Self::Minority => f.write_str("minority"),
            Self::Majority => f.write_str("majority"),
            Self::All => f.write_str("all"),
            Self::Random => f.write_str("random"),
            Self::Leader(key) => of_key(f, "leader", key),
            Self::Followers(key) => of_key(f, "followers", key),
            Self::Controller => f.write_str("controller"),
            Self::Nodes(nodes) => {
                let names: Vec<_> = nodes.iter().map(ToString::to_string).collect();
                f.write_str(&names.join("+"))
            }
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, key) = match text.split_once(':') {
            Some((name, key)) => (name, Some(Key::from(key))),
            None => (text, None),
        };
        let plain = |target| match &key {
            None => Ok(target),
            Some(key) => Err(format!("target `{name}` takes no key, `:{key}` was given")),
        };
        match name {
            "one" => plain(Self::One),
            "minority" => plain(Self::Minority),
            "majority" => plain(Self::Majority),
            "all" => plain(Self::All),
            "random" => plain(Self::Random),
            "controller" => plain(Self::Controller),
            "leader" => Ok(Self::Leader(key)),
            "followers" => Ok(Self::Followers(key)),
            nodes => {
                let named: Result<BTreeSet<_>, _> =
                    nodes.split('+').map(|node| NodeName::try_from(node.to_owned())).collect();
                named.map(Self::Nodes).map_err(|_| {
                    format!(
                        "there is no target `{text}`; there are one, minority, majority, all, \
                         random, leader[:KEY], followers[:KEY], controller, and node names \
                         joined by +, such as n1+n3"
                    )
                })
            }
        }
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use cluster::Role;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn five() -> Situation {
        let nodes: Vec<NodeName> = (1..=5).map(NodeName::new).collect();
        Situation {
            nodes: nodes.iter().map(|node| (*node, Role::Combined)).collect(),
            alive: nodes.iter().copied().collect(),
            controller: Some(NodeName::new(4)),
            keys: [(
                Key::from("t-0"),
                Leadership {
                    leader: Some(NodeName::new(2)),
                    replicas: [1, 2, 3].map(NodeName::new).into(),
                },
            )]
            .into(),
        }
    }

    fn resolve(text: &str, seed: u64) -> BTreeSet<NodeName> {
        let target: Target = text.parse().unwrap();
        target.resolve(&five(), &mut ChaCha8Rng::seed_from_u64(seed)).unwrap()
    }

    #[test]
    fn sizes_are_what_the_names_say() {
        for seed in 0..50 {
            assert_eq!(resolve("one", seed).len(), 1);
            assert_eq!(resolve("minority", seed).len(), 2);
            assert_eq!(resolve("majority", seed).len(), 3);
            assert_eq!(resolve("all", seed).len(), 5);
            assert!((1..=5).contains(&resolve("random", seed).len()));
        }
    }

    #[test]
    fn who_is_struck_already_is_not_chosen_again() {
        let mut situation = five();
        situation.alive = [2, 5].map(NodeName::new).into();
        for seed in 0..20 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            for target in [Target::One, Target::Majority, Target::Random, Target::All] {
                let struck = target.resolve(&situation, &mut rng).unwrap();
                assert!(struck.is_subset(&situation.alive), "{target}: {struck:?}");
            }
        }
        situation.alive.clear();
        let nobody = Target::All.resolve(&situation, &mut ChaCha8Rng::seed_from_u64(1));
        assert_eq!(nobody, Err(TargetError::NobodyLeft));
    }

    #[test]
    fn roles_are_looked_up_when_it_fires() {
        assert_eq!(resolve("leader", 1), [NodeName::new(2)].into());
        assert_eq!(resolve("followers:t-0", 1), [1, 3].map(NodeName::new).into());
        assert_eq!(resolve("controller", 1), [NodeName::new(4)].into());
        assert_eq!(resolve("n1+n5", 1), [1, 5].map(NodeName::new).into());
    }

    #[test]
    fn a_key_without_leader_or_unknown_is_an_error_not_a_guess() {
        let mut situation = five();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let target = Target::Leader(Some(Key::from("x-0")));
        assert_eq!(
            target.resolve(&situation, &mut rng),
            Err(TargetError::NoSuchKey(Key::from("x-0")))
        );
        if let Some(leadership) = situation.keys.get_mut(&Key::from("t-0")) {
            leadership.leader = None;
        }
        assert_eq!(
            Target::Leader(None).resolve(&situation, &mut rng),
            Err(TargetError::Leaderless(Key::from("t-0")))
        );
    }

    #[test]
    fn text_and_target_convert_both_ways() {
        for text in ["one", "leader", "leader:orders-0", "followers:a-b-1", "n1+n2", "controller"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        assert!("one:t-0".parse::<Target>().unwrap_err().contains("takes no key"));
        assert!("everyone".parse::<Target>().unwrap_err().contains("followers[:KEY]"));
    }
}
