//! Does a condition hold in what was seen? And if the cluster owes it: what is missing.

use std::collections::{BTreeMap, BTreeSet};

use cluster::NodeName;
use cluster::probe::{PartitionView, View};
use history::Key;
use serde_json::{Value as Json, json};

use super::step::{Condition, Mark};

/// How far a replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) log_end: i64,
    pub(super) high_watermark: i64,
}

/// What was seen: the brokers' view, and what the replicas say that were asked.
pub(super) struct Seen<'a> {
    pub(super) view: &'a View,
    pub(super) marks: &'a BTreeMap<(NodeName, Key), Marks>,
    /// How many messages were stopped, where that is asked.
    pub(super) stopped: u64,
}

/// Why it does not hold; none where it does. `nodes` are those that the condition names.
pub(super) fn lacking(
    condition: &Condition,
    nodes: &BTreeSet<NodeName>,
    seen: &Seen<'_>,
) -> Option<String> {
    (!holds(condition, nodes, seen)).then(|| found(condition, seen))
}

fn holds(condition: &Condition, nodes: &BTreeSet<NodeName>, seen: &Seen<'_>) -> bool {
    match condition {
        Condition::LeaderIs(key, _) => view_of(seen, key).is_some_and(|view| match view.leader {
            None => nodes.is_empty(),
            Some(leader) => nodes.contains(&leader),
        }),
        Condition::LeaderIsNot(key, _) => view_of(seen, key)
            .is_some_and(|view| view.leader.is_some_and(|leader| !nodes.contains(&leader))),
        Condition::IsrIs(key, _) => view_of(seen, key).is_some_and(|view| view.isr == *nodes),
        Condition::IsrHas(key, _) => {
            view_of(seen, key).is_some_and(|view| view.isr.is_superset(nodes))
        }
        Condition::IsrLacks(key, _) => {
            view_of(seen, key).is_some_and(|view| view.isr.is_disjoint(nodes))
        }
        Condition::EpochIs(key, epoch) => {
            view_of(seen, key).is_some_and(|view| view.leader_epoch == *epoch)
        }
        Condition::Answer(_) => {
            nodes.iter().all(|node| seen.view.answers.get(node).is_some_and(Result::is_ok))
        }
        Condition::Alive(_) => {
            let known = registered(seen);
            known.clone().next().is_some()
                && known.clone().all(|brokers| brokers.is_superset(nodes))
        }
        Condition::Gone(_) => registered(seen).any(|brokers| brokers.is_disjoint(nodes)),
        Condition::Stopped(_) => seen.stopped > 0,
        Condition::Reached(mark, key, _, offset) => nodes
            .iter()
            .all(|node| reached(seen, *node, key, *mark).is_some_and(|at| at >= *offset)),
    }
}

/// The brokers that each broker that answers holds for alive.
fn registered<'a>(seen: &Seen<'a>) -> impl Iterator<Item = &'a BTreeSet<NodeName>> + Clone {
    seen.view.answers.values().filter_map(|answer| Some(&answer.as_ref().ok()?.brokers))
}

/// The key as seen.
fn view_of<'a>(seen: &Seen<'a>, key: &Key) -> Option<&'a PartitionView> {
    seen.view.keys.get(key)
}

fn reached(seen: &Seen<'_>, node: NodeName, key: &Key, mark: Mark) -> Option<i64> {
    let marks = seen.marks.get(&(node, key.clone()))?;
    Some(match mark {
        Mark::LogEnd => marks.log_end,
        Mark::HighWatermark => marks.high_watermark,
    })
}

/// What was seen instead, in words.
fn found(condition: &Condition, seen: &Seen<'_>) -> String {
    match condition {
        Condition::LeaderIs(key, _) | Condition::LeaderIsNot(key, _) => {
            let leader = view_of(seen, key).and_then(|view| view.leader);
            leader.map_or_else(|| "nobody leads".to_owned(), |leader| format!("{leader} leads"))
        }
        Condition::IsrIs(key, _) | Condition::IsrHas(key, _) | Condition::IsrLacks(key, _) => {
            let isr = view_of(seen, key).map(|view| &view.isr);
            let names: Vec<String> = isr.into_iter().flatten().map(ToString::to_string).collect();
            format!("the ISR is {}", names.join(","))
        }
        Condition::EpochIs(key, _) => {
            let epoch = view_of(seen, key).map_or(-1, |view| view.leader_epoch);
            format!("the leader epoch is {epoch}")
        }
        Condition::Answer(_) => {
            let silent = seen.view.answers.iter().filter(|(_, answer)| answer.is_err());
            let names: Vec<String> = silent.map(|(node, _)| node.to_string()).collect();
            format!("{} do not answer", names.join(","))
        }
        Condition::Alive(_) | Condition::Gone(_) => {
            let told = seen.view.answers.iter().filter_map(|(node, answer)| {
                let brokers = &answer.as_ref().ok()?.brokers;
                let names: Vec<String> = brokers.iter().map(ToString::to_string).collect();
                Some(format!("{node} holds {} for alive", names.join(",")))
            });
            told.collect::<Vec<_>>().join("; ")
        }
        Condition::Stopped(words) => format!("there were no {words}"),
        Condition::Reached(..) => {
            let told = seen.marks.iter().map(|((node, key), marks)| {
                format!("{key} on {node} ends at {}, hw {}", marks.log_end, marks.high_watermark)
            });
            told.collect::<Vec<_>>().join("; ")
        }
    }
}

/// What the cluster owes and does not do, in the shape of a look at a recovered cluster.
pub(super) fn owed(condition: &Condition, nodes: &BTreeSet<NodeName>, seen: &Seen<'_>) -> Json {
    match condition {
        Condition::LeaderIs(key, _) | Condition::LeaderIsNot(key, _) => {
            json!({ "leaderless": [key] })
        }
        Condition::IsrLacks(key, _) => {
            let isr = view_of(seen, key).map(|view| view.isr.clone()).unwrap_or_default();
            let wrong: BTreeSet<NodeName> = nodes.intersection(&isr).copied().collect();
            json!({ "isr-invalid": { key.as_str(): wrong } })
        }
        Condition::IsrIs(key, _) | Condition::IsrHas(key, _) => {
            let isr = view_of(seen, key).map(|view| view.isr.clone()).unwrap_or_default();
            let out: BTreeSet<NodeName> = nodes.symmetric_difference(&isr).copied().collect();
            json!({ "stuck-replica": { key.as_str(): out } })
        }
        Condition::Reached(_, key, _, offset) => {
            let told = nodes.iter().find_map(|node| seen.marks.get(&(*node, key.clone())));
            let told = told.map(|marks| marks.high_watermark);
            json!({ "stuck-hw": { key.as_str(): { "high_watermark": told, "log_end": offset } } })
        }
        Condition::EpochIs(..)
        | Condition::Answer(_)
        | Condition::Alive(_)
        | Condition::Gone(_)
        | Condition::Stopped(_) => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(leader: Option<u32>, isr: &[u32]) -> View {
        let seen = PartitionView {
            leader: leader.map(NodeName::new),
            isr: isr.iter().copied().map(NodeName::new).collect(),
            ..PartitionView::default()
        };
        View { keys: [(Key::from("t-0"), seen)].into(), ..View::default() }
    }

    fn told(condition: &Condition, nodes: &[u32], view: &View) -> Option<String> {
        let marks = BTreeMap::from([(
            (NodeName::new(2), Key::from("t-0")),
            Marks { log_end: 9, high_watermark: 7 },
        )]);
        let nodes = nodes.iter().copied().map(NodeName::new).collect();
        lacking(condition, &nodes, &Seen { view, marks: &marks, stopped: 0 })
    }

    #[test]
    fn what_does_not_hold_is_told_with_what_was_seen() {
        let key = || Key::from("t-0");
        let led = view(Some(2), &[1, 2]);
        let leads = Condition::LeaderIs(key(), Vec::new());
        assert_eq!(told(&leads, &[2], &led), None);
        assert_eq!(told(&leads, &[1], &led).as_deref(), Some("n2 leads"));
        assert_eq!(told(&leads, &[], &view(None, &[])), None);
        let other = Condition::LeaderIsNot(key(), Vec::new());
        assert_eq!(told(&other, &[1], &led), None);
        assert!(told(&other, &[2], &led).is_some());
        assert!(told(&other, &[2], &view(None, &[])).is_some(), "nobody is nobody else");
        let has = Condition::IsrHas(key(), Vec::new());
        assert_eq!(told(&has, &[2], &led), None);
        assert_eq!(told(&has, &[2, 3], &led).as_deref(), Some("the ISR is n1,n2"));
        let reached = |mark, at| Condition::Reached(mark, key(), Vec::new(), at);
        assert_eq!(told(&reached(Mark::LogEnd, 9), &[2], &led), None);
        assert!(told(&reached(Mark::HighWatermark, 9), &[2], &led).is_some());
        assert!(told(&reached(Mark::LogEnd, 1), &[3], &led).is_some(), "n3 told nothing");
    }

    #[test]
    fn a_key_that_nobody_knows_fulfils_nothing() {
        let nothing = View::default();
        let key = || Key::from("t-0");
        for condition in [
            Condition::LeaderIs(key(), Vec::new()),
            Condition::IsrIs(key(), Vec::new()),
            Condition::IsrLacks(key(), Vec::new()),
        ] {
            assert!(told(&condition, &[], &nothing).is_some(), "{condition:?}");
        }
    }
}
