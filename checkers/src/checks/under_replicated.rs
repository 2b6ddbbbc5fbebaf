//! `ack-under-replicated`: an acks=all write was acknowledged although too few replicas had it (R19).
//!
//! What was acknowledged stays where it is: a log that ends before it later on, did not have it. That
//! does not hold once disks lost what they held, an election may be unclean, or replicas were moved: from then
//! on no look at a replica proves anything.

use std::collections::{BTreeMap, BTreeSet};

use history::{History, NEVER, NameId, Outcome, Probe, TopicPromise};

use crate::findings::Findings;
use crate::order::{KeyOrder, Orders};
use crate::verdict::{Example, Validity};

pub(crate) const ACK_UNDER_REPLICATED: &str = "ack-under-replicated";

/// After these a log may end before what it once held.
const TAKES_AWAY: [&str; 3] = ["power-off", "spoil", "reassign"];

/// A look at one replica: when, how far its log was, in which event.
#[derive(Clone, Copy)]
struct Look {
    asked_ns: u64,
    log_end: i64,
    index: u64,
}

pub(super) fn check(orders: &Orders<'_>, history: &History, findings: &mut Findings) {
    if history.promise.topics.is_empty() {
        return;
    }
    let until = history
        .nemesis
        .iter()
        .find(|note| TAKES_AWAY.contains(&note.function.as_str()))
        .map_or(u64::MAX, |note| note.time_ns);
    let looks = looks(history, until);
    for order in &orders.keys {
        let topic = order.name().rsplit_once('-').map_or("", |(topic, _)| topic);
        let Some(promise) = history.promise.topics.get(topic).filter(|one| !one.unclean) else {
            continue;
        };
        if let Some(looks) = looks.get(order.name()) {
            judge(order, history, *promise, looks, findings);
        }
    }
}

/// By key and node, in order; each with the least log end from there on.
fn looks(history: &History, until: u64) -> BTreeMap<&str, BTreeMap<NameId, Vec<Look>>> {
    let mut by_key: BTreeMap<&str, BTreeMap<NameId, Vec<Look>>> = BTreeMap::new();
    let mut lives: BTreeMap<NameId, BTreeSet<NameId>> = BTreeMap::new();
    let seen = history.probes.iter().filter(|probe: &&Probe| probe.answered_ns < until);
    for probe in seen {
        lives.entry(probe.key).or_default().insert(probe.topic_id);
        let of_key = by_key.entry(history.probed.get(probe.key)).or_default();
        of_key.entry(probe.node).or_default().push(Look {
            asked_ns: probe.asked_ns,
            log_end: probe.state.log_end,
            index: probe.index,
        });
    }
    // A topic that was made anew begins anew.
    for (key, ids) in lives {
        if ids.len() > 1 {
            by_key.remove(history.probed.get(key));
        }
    }
    for looks in by_key.values_mut().flat_map(BTreeMap::values_mut) {
        looks.sort_by_key(|look| look.asked_ns);
        let mut least: Option<Look> = None;
        for look in looks.iter_mut().rev() {
            match least {
                Some(lower) if lower.log_end <= look.log_end => {
                    (look.log_end, look.index) = (lower.log_end, lower.index);
                }
                _ => least = Some(*look),
            }
        }
    }
    by_key
}

fn judge(
    order: &KeyOrder<'_>,
    history: &History,
    promise: TopicPromise,
    looks: &BTreeMap<NameId, Vec<Look>>,
    findings: &mut Findings,
) {
    let exempt = |value: i64| {
        let of_key = history.exempt.iter().filter(|one| one.key == order.name());
        of_key.into_iter().any(|one| (one.first..=one.last).contains(&value))
    };
    for sent in &order.log.sends {
        let op = history.op(sent.op);
        let Some(offset) = sent.offset().filter(|_| op.outcome == Outcome::Ok) else { continue };
        if op.completed == NEVER || exempt(sent.value) {
            continue;
        }
        let lacking: Vec<(NameId, Look)> = looks
            .iter()
            .filter_map(|(node, looks)| {
                let after = looks.partition_point(|look| look.asked_ns < op.completed_ns);
                Some((*node, *looks.get(after)?)).filter(|(_, look)| look.log_end <= offset)
            })
            .collect();
        if lacking.len() + promise.min_isr <= promise.replicas {
            continue;
        }
        findings.add(ACK_UNDER_REPLICATED, Validity::False, || {
            let nodes: Vec<&str> =
                lacking.iter().map(|(node, _)| history.probed.get(*node)).collect();
            let text = format!(
                "{}: {} at offset {offset} was acknowledged; after that, the logs of {} ended before it, and \
                 {} of {} replicas must have it.",
                order.name(),
                sent.value,
                nodes.join(" and "),
                promise.min_isr,
                promise.replicas
            );
            let mut example = Example::new(order.name(), text)
                .offsets([offset])
                .values([sent.value])
                .lines([op.invoked, op.completed]);
            example.ops.extend(lacking.iter().map(|(_, look)| look.index));
            example.ops.sort_unstable();
            example
        });
    }
}
