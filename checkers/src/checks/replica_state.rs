//! `hw-regression`, `isr-invalid` and `replica-bounds`: what replicas said of themselves while the
//! run went on. A replica saw itself at some moment between a probe's question and its answer; two
//! probes are compared only where the one was answered before the other was asked.

use std::collections::{BTreeMap, BTreeSet};

use history::{History, NameId, Probe};

use crate::findings::Findings;
use crate::order::Orders;
use crate::verdict::{Example, Validity};

pub(crate) const HW_REGRESSION: &str = "hw-regression";
pub(crate) const ISR_INVALID: &str = "isr-invalid";
pub(crate) const REPLICA_BOUNDS: &str = "replica-bounds";

pub(super) fn check(_: &Orders<'_>, history: &History, findings: &mut Findings) {
    // A topic that was deleted and made again begins anew.
    let mut by_partition: BTreeMap<(NameId, NameId), Vec<&Probe>> = BTreeMap::new();
    for probe in &history.probes {
        bounds(history, probe, findings);
        by_partition.entry((probe.key, probe.topic_id)).or_default().push(probe);
    }
    for probes in by_partition.values() {
        regressions(history, probes, findings);
        lagging_members(history, probes, findings);
        disagreements(history, probes, findings);
    }
}

/// log start <= HW <= LEO, in every probe of its own. Where they are not told at once, the LEO is the
/// later one.
fn bounds(history: &History, probe: &Probe, findings: &mut Findings) {
    let state = &probe.state;
    let (start, high_watermark, end) = (state.log_start, state.high_watermark, state.log_end);
    if start <= high_watermark && high_watermark <= end {
        return;
    }
    found(history, REPLICA_BOUNDS, &[probe], findings, |node| {
        format!(
            "{node} holds the log from {start} to {end}, and {high_watermark} for the high watermark"
        )
    });
}

/// Within one (broker, leader epoch) the HW of a leader does not go down (R18).
fn regressions(history: &History, probes: &[&Probe], findings: &mut Findings) {
    let mut highest: BTreeMap<(NameId, i32), &Probe> = BTreeMap::new();
    for probe in probes.iter().filter(|probe| probe.leads) {
        let known = highest.entry((probe.node, probe.state.leader_epoch)).or_insert(probe);
        if known.answered_ns <= probe.asked_ns
            && probe.state.high_watermark < known.state.high_watermark
        {
            let (before, after) = (known.state.high_watermark, probe.state.high_watermark);
            found(history, HW_REGRESSION, &[known, probe], findings, |node| {
                format!(
                    "the high watermark of {node}, leader in epoch {}, went down from {before} to {after}",
                    probe.state.leader_epoch
                )
            });
        }
        if probe.state.high_watermark > known.state.high_watermark {
            *known = probe;
        }
    }
}

/// A leader's HW is on every member of its ISR (R9, R10, R17). A partition epoch has one ISR: where
/// a leader says the same one before and after, the member was in it all the time between.
fn lagging_members(history: &History, probes: &[&Probe], findings: &mut Findings) {
    type Term = (i32, i32);
    let mut leaders: BTreeMap<Term, Vec<&Probe>> = BTreeMap::new();
    for probe in probes.iter().filter(|probe| probe.leads) {
        leaders
            .entry((probe.state.leader_epoch, probe.state.partition_epoch))
            .or_default()
            .push(probe);
    }
    // Through the protocol alone no partition epoch is told.
    let known = |probe: &Probe| probe.state.partition_epoch >= 0;
    for member in probes.iter().filter(|probe| !probe.leads && known(probe)) {
        let term = (member.state.leader_epoch, member.state.partition_epoch);
        let Some(leaders) = leaders.get(&term) else { continue };
        // Answers come in order, and so do questions to one node.
        let before = leaders.partition_point(|leader| leader.answered_ns <= member.asked_ns);
        let Some(before) = before.checked_sub(1).and_then(|last| leaders.get(last)) else {
            continue;
        };
        let after = leaders.partition_point(|leader| leader.asked_ns < member.answered_ns);
        let Some(after) = leaders.get(after).filter(|after| after.node == before.node) else {
            continue;
        };
        if !before.state.isr.contains(&member.id)
            || before.state.high_watermark <= member.state.log_end
        {
            continue;
        }
        let (high_watermark, end) = (before.state.high_watermark, member.state.log_end);
        found(history, ISR_INVALID, &[before, member, after], findings, |leader| {
            format!(
                "{leader} had {} in its ISR all the time, and the high watermark {high_watermark}, \
                 but that replica's log ended at {end}",
                history.probed.get(member.node)
            )
        });
    }
}

/// A partition epoch names one state of the partition, whoever tells of it (R11).
fn disagreements(history: &History, probes: &[&Probe], findings: &mut Findings) {
    let mut told: BTreeMap<i32, &Probe> = BTreeMap::new();
    let mut reported = BTreeSet::new();
    for probe in probes.iter().filter(|probe| probe.state.partition_epoch >= 0) {
        let epoch = probe.state.partition_epoch;
        let known = *told.entry(epoch).or_insert(probe);
        if sorted(&known.state.isr) == sorted(&probe.state.isr) || !reported.insert(epoch) {
            continue;
        }
        found(history, ISR_INVALID, &[known, probe], findings, |node| {
            format!(
                "in partition epoch {epoch} the ISR is {:?} for {node} and {:?} for {}",
                known.state.isr,
                probe.state.isr,
                history.probed.get(probe.node)
            )
        });
    }
}

fn sorted(isr: &[i32]) -> BTreeSet<i32> {
    isr.iter().copied().collect()
}

/// Adds a finding; `text` is told the first probe's node.
fn found(
    history: &History,
    anomaly: &'static str,
    probes: &[&Probe],
    findings: &mut Findings,
    text: impl FnOnce(&str) -> String,
) {
    let Some(first) = probes.first() else { return };
    findings.add(anomaly, Validity::False, || {
        let key = history.probed.get(first.key);
        let text = text(history.probed.get(first.node));
        let mut example = Example::new(key, format!("{key}: {text}."));
        example.ops = probes.iter().map(|probe| probe.index).collect();
        example.ops.sort_unstable();
        example
    });
}
