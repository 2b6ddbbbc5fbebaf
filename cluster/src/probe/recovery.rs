//! Waiting until a healed cluster has recovered; what has not by the deadline is a finding about
//! the cluster, not an error of the rig.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use history::Key;
use serde::Serialize;
use tokio::time::sleep;

use super::ready::lacking;
use super::view::{View, cluster_view};
use crate::node::{NodeName, NodeSpec};

const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

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
            && self.silent.is_empty()
            && self.behind.is_empty()
    }
}

/// Waits until every broker answers and sees every key led and at full ISR, or `deadline` passes.
pub async fn await_recovery(
    nodes: &[NodeSpec],
    keys: &[Key],
    deadline: Duration,
) -> RecoveryReport {
    let begun = Instant::now();
    loop {
        let view = cluster_view(nodes, keys).await;
        let mut report = judge(&view, keys);
        report.deadline_ms = millis(deadline);
        report.waited_ms = millis(begun.elapsed());
        if report.is_recovered() || begun.elapsed() > deadline {
            return report;
        }
        sleep(BETWEEN_LOOKS).await;
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
        }
    }

    fn view(seen: &PartitionView, silent: &[u32]) -> View {
        let answer = |id: u32| {
            if silent.contains(&id) {
                return Err(ProbeError::Deadline {
                    address: "n".into(),
                    waited_ms: 1,
                });
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
}
