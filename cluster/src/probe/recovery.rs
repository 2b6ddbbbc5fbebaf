//! Waiting until a healed cluster has recovered; what has not by the deadline is a finding about
//! the cluster, not an error of the rig.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use history::Key;
use serde::Serialize;
use tokio::time::sleep;

use super::offsets::{LeaderEnds, leader_ends};
use super::ready::lacking;
use super::view::{View, cluster_view};
use crate::node::{NodeName, NodeSpec};

const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

/// How far a high watermark came, and how far it had to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct StuckHw {
    /// The high watermark that the leader tells; none where it tells none.
    pub high_watermark: Option<i64>,
    /// The leader's log end offset when it was first asked in this leader epoch; none where it
    /// tells none.
    pub log_end: Option<i64>,
}

/// What a healed cluster looks like when the time is over, or when all is well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecoveryReport {
    /// How long it could take.
    pub deadline_ms: u64,
    /// How long it took, or was waited for.
    pub waited_ms: u64,
    /// Keys without a leader, as those brokers say that answer.
    pub leaderless: BTreeSet<Key>,
    /// Keys whose ISR lacks live replicas, and which.
    #[serde(rename = "stuck-replica")]
    pub stuck_replica: BTreeMap<Key, BTreeSet<NodeName>>,
    /// Keys whose high watermark does not reach what their leader had at the first look: what was
    /// written with acks=all is not acknowledged.
    #[serde(rename = "stuck-hw")]
    pub stuck_hw: BTreeMap<Key, StuckHw>,
    /// Brokers that do not answer at all.
    pub silent: BTreeSet<NodeName>,
    /// Brokers that see something else than the newest state.
    pub behind: BTreeMap<NodeName, String>,
}

impl RecoveryReport {
    /// Is everything back where it should be?
    pub fn is_recovered(&self) -> bool {
        self.leaderless.is_empty()
            && self.stuck_replica.is_empty()
            && self.stuck_hw.is_empty()
            && self.silent.is_empty()
            && self.behind.is_empty()
    }
}

/// Waits until every broker answers and sees every key led and at full ISR, and every high
/// watermark has reached the log end that its leader had at the first look; or until `deadline`
/// passes.
pub async fn await_recovery(
    nodes: &[NodeSpec],
    keys: &[Key],
    deadline: Duration,
) -> RecoveryReport {
    let begun = Instant::now();
    let mut goals = Goals::default();
    loop {
        let view = cluster_view(nodes, keys).await;
        let mut report = judge(&view, keys);
        let ends = leader_ends(nodes, &view).await;
        report.stuck_hw = goals.missed(&view, &ends, &report.silent);
        report.deadline_ms = millis(deadline);
        report.waited_ms = millis(begun.elapsed());
        if report.is_recovered() || begun.elapsed() > deadline {
            return report;
        }
        sleep(BETWEEN_LOOKS).await;
    }
}

/// The log end that each high watermark has to reach: the one that its leader had when it was first
/// asked in its epoch. A later one would move on with every write; an earlier leader's may have
/// been cut off since.
#[derive(Debug, Default)]
struct Goals(BTreeMap<Key, (i32, i64)>);

impl Goals {
    /// Keys with a leader that answers, whose high watermark is not there.
    fn missed(
        &mut self,
        view: &View,
        ends: &BTreeMap<Key, LeaderEnds>,
        silent: &BTreeSet<NodeName>,
    ) -> BTreeMap<Key, StuckHw> {
        let mut missed = BTreeMap::new();
        for (key, seen) in &view.keys {
            if seen.leader.is_none_or(|leader| silent.contains(&leader)) {
                continue;
            }
            let now = ends.get(key).copied().unwrap_or_default();
            if self.0.get(key).is_none_or(|(epoch, _)| *epoch != seen.leader_epoch) {
                self.0.remove(key);
                if let Some(log_end) = now.log_end {
                    self.0.insert(key.clone(), (seen.leader_epoch, log_end));
                }
            }
            let goal = self.0.get(key).map(|(_, log_end)| *log_end);
            let is_reached = goal.is_some() && now.high_watermark >= goal;
            if !is_reached {
                let stuck = StuckHw { high_watermark: now.high_watermark, log_end: goal };
                missed.insert(key.clone(), stuck);
            }
        }
        missed
    }
}

/// What a view says of recovery. Pure.
fn judge(view: &View, keys: &[Key]) -> RecoveryReport {
    let mut report = RecoveryReport::default();
    for (name, answer) in &view.answers {
        if answer.is_err() {
            report.silent.insert(*name);
        }
    }
    for key in keys {
        match view.keys.get(key) {
            Some(seen) if seen.leader.is_some() => {
                // A replica that does not answer is not stuck but silent.
                let out: BTreeSet<NodeName> = seen
                    .replicas
                    .difference(&seen.isr)
                    .filter(|node| !report.silent.contains(node))
                    .copied()
                    .collect();
                if !out.is_empty() {
                    report.stuck_replica.insert(key.clone(), out);
                }
            }
            _ => drop(report.leaderless.insert(key.clone())),
        }
    }
    if report.is_recovered() {
        report.behind.extend(lacking(view, keys));
    }
    report
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{BrokerAnswer, PartitionView, ProbeError};

    fn key() -> Key {
        Key::from("t-0")
    }

    fn seen(leader: Option<u32>, isr: &[u32]) -> PartitionView {
        PartitionView {
            leader: leader.map(NodeName::new),
            leader_epoch: 3,
            isr: isr.iter().copied().map(NodeName::new).collect(),
            replicas: [1, 2, 3].map(NodeName::new).into(),
            offline: BTreeSet::new(),
        }
    }

    fn view(seen: &PartitionView, silent: &[u32]) -> View {
        let answer = |id: u32| {
            if silent.contains(&id) {
                return Err(ProbeError::Deadline { address: "n".into(), waited_ms: 1 });
            }
            Ok(BrokerAnswer {
                brokers: [1, 2, 3].map(NodeName::new).into(),
                keys: [(key(), seen.clone())].into(),
            })
        };
        View {
            controller: None,
            keys: [(key(), seen.clone())].into(),
            answers: (1..=3).map(|id| (NodeName::new(id), answer(id))).collect(),
        }
    }

    #[test]
    fn full_isr_everywhere_is_recovered() {
        assert!(judge(&view(&seen(Some(1), &[1, 2, 3]), &[]), &[key()]).is_recovered());
    }

    #[test]
    fn a_live_replica_out_of_the_isr_is_stuck_and_a_dead_one_is_silent() {
        let stuck = judge(&view(&seen(Some(1), &[1, 2]), &[]), &[key()]);
        assert_eq!(stuck.stuck_replica[&key()], [NodeName::new(3)].into());
        let silent = judge(&view(&seen(Some(1), &[1, 2]), &[3]), &[key()]);
        assert!(silent.stuck_replica.is_empty());
        assert_eq!(silent.silent, [NodeName::new(3)].into());
        assert!(!silent.is_recovered());
    }

    #[test]
    fn no_leader_and_unknown_keys_are_leaderless() {
        let none = judge(&view(&seen(None, &[1]), &[]), &[key(), Key::from("u-0")]);
        assert_eq!(none.leaderless, [key(), Key::from("u-0")].into());
    }

    #[test]
    fn one_broker_with_an_old_view_is_not_recovered_yet() {
        let mut view = view(&seen(Some(1), &[1, 2, 3]), &[]);
        if let Some(Ok(answer)) = view.answers.get_mut(&NodeName::new(2)) {
            answer.keys.insert(key(), seen(Some(3), &[3]));
        }
        let report = judge(&view, &[key()]);
        assert!(!report.is_recovered());
    }

    fn ends(log_end: i64, high_watermark: Option<i64>) -> BTreeMap<Key, LeaderEnds> {
        [(key(), LeaderEnds { log_end: Some(log_end), high_watermark })].into()
    }

    #[test]
    fn a_high_watermark_has_to_reach_the_first_log_end_of_its_epoch() {
        let mut goals = Goals::default();
        let mut view = view(&seen(Some(1), &[1, 2, 3]), &[]);
        let none = BTreeSet::new();
        let first = goals.missed(&view, &ends(10, Some(8)), &none);
        assert_eq!(first[&key()], StuckHw { high_watermark: Some(8), log_end: Some(10) });
        // Writes go on; the goal stays.
        assert!(goals.missed(&view, &ends(30, Some(10)), &none).is_empty());
        // Another leader, whose log is shorter, and whose high watermark is not known yet.
        if let Some(seen) = view.keys.get_mut(&key()) {
            seen.leader_epoch += 1;
        }
        let next = goals.missed(&view, &ends(7, None), &none);
        assert_eq!(next[&key()], StuckHw { high_watermark: None, log_end: Some(7) });
        assert!(goals.missed(&view, &ends(7, Some(7)), &none).is_empty());
    }

    #[test]
    fn a_leader_that_tells_no_offsets_is_stuck_and_a_silent_one_is_silent() {
        let view = view(&seen(Some(1), &[1, 2, 3]), &[]);
        let none = BTreeMap::new();
        let stuck = Goals::default().missed(&view, &none, &BTreeSet::new());
        assert_eq!(stuck[&key()], StuckHw { high_watermark: None, log_end: None });
        let silent = [NodeName::new(1)].into();
        assert!(Goals::default().missed(&view, &none, &silent).is_empty());
    }
}
