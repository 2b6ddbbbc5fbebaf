//! `replica-divergence`, `read-uncommitted-hw`, `damaged-batch` and `misnumbered-batch`: what the disks of stopped nodes held,
//! one compared with the other, and with what raw consumers had been given.

use std::collections::BTreeMap;

use history::{BatchMark, Fetched, History, NameId, OnDisk};

use super::vanished::NAME as READ_UNCOMMITTED_HW;
use crate::findings::Findings;
use crate::order::Orders;
use crate::verdict::{Example, Validity};

pub(crate) const REPLICA_DIVERGENCE: &str = "replica-divergence";
pub(crate) const DAMAGED_BATCH: &str = "damaged-batch";
pub(crate) const MISNUMBERED_BATCH: &str = "misnumbered-batch";

/// The batches of a key that begin at one offset: which, on whose disks, in which event.
type Starts = BTreeMap<i64, Vec<Held>>;

struct Held {
    mark: BatchMark,
    nodes: Vec<NameId>,
    index: u64,
}

pub(super) fn check(_: &Orders<'_>, history: &History, findings: &mut Findings) {
    let mut keys: BTreeMap<NameId, (Vec<&OnDisk>, Starts)> = BTreeMap::new();
    for replica in &history.disks {
        keys.entry(replica.key).or_default().0.push(replica);
        let OnDisk { value, .. } = replica;
        for told in [
            (DAMAGED_BATCH, &value.damaged[..], "does not fit its checksum"),
            (
                MISNUMBERED_BATCH,
                &value.misnumbered[..],
                "does not follow the one that its producer sent before it",
            ),
        ] {
            batches(history, replica, told, findings);
        }
    }
    for stored in &history.stored {
        let Some((_, starts)) = keys.get_mut(&stored.key) else { continue };
        for mark in &stored.batches {
            starts.entry(mark.first).or_default().push(Held {
                mark: *mark,
                nodes: stored.nodes.clone(),
                index: stored.index,
            });
        }
    }
    for (replicas, starts) in keys.values() {
        divergence(history, replicas, starts, findings);
    }
    for fetched in &history.fetches {
        if let Some((replicas, starts)) = keys.get(&fetched.key) {
            taken_back(history, fetched, replicas, starts, findings);
        }
    }
}

/// Does the replica's disk owe this batch: is all of it committed there, as its high watermark says, and
/// not deleted?
fn owes(replica: &OnDisk, mark: &BatchMark) -> bool {
    let value = &replica.value;
    value.log_start <= mark.first
        && value.high_watermark.is_some_and(|high_watermark| mark.last < high_watermark)
}

/// Below both high watermarks two replicas have the same batches: offsets, epoch, checksum.
fn divergence(history: &History, replicas: &[&OnDisk], starts: &Starts, findings: &mut Findings) {
    for held in starts.values().flatten() {
        let holder = replicas.iter().find(|one| held.nodes.contains(&one.node));
        let Some(holder) = holder.filter(|holder| owes(holder, &held.mark)) else { continue };
        let lacking = replicas
            .iter()
            .find(|other| !held.nodes.contains(&other.node) && owes(other, &held.mark));
        let Some(lacking) = lacking else { continue };
        let instead = starts.get(&held.mark.first).into_iter().flatten();
        let instead = instead.into_iter().find(|other| other.nodes.contains(&lacking.node));
        findings.add(REPLICA_DIVERGENCE, Validity::False, || {
            let key = history.probed.get(lacking.key);
            let text = format!(
                "{key}: both {} and {} had committed {}; {} holds {}, {} {}.",
                holder.value.node,
                lacking.value.node,
                range(&held.mark),
                holder.value.node,
                told(&held.mark),
                lacking.value.node,
                instead.map_or("nothing there".to_owned(), |other| told(&other.mark)),
            );
            let mut example = Example::new(key, text);
            example.ops.extend([held.index, holder.index, lacking.index]);
            example.ops.extend(instead.map(|other| other.index));
            example.ops.sort_unstable();
            example.ops.dedup();
            example
        });
    }
}

/// What a consumer was given below the high watermark is on every disk that has come so far.
fn taken_back(
    history: &History,
    fetched: &Fetched,
    replicas: &[&OnDisk],
    starts: &Starts,
    findings: &mut Findings,
) {
    let value = &fetched.value;
    for mark in value.batches.iter().filter(|mark| mark.last < value.high_watermark) {
        let held = starts.get(&mark.first).into_iter().flatten();
        let holders: Vec<NameId> = held
            .filter(|held| held.mark == *mark)
            .flat_map(|held| held.nodes.iter().copied())
            .collect();
        let lacking = replicas.iter().find(|one| !holders.contains(&one.node) && owes(one, mark));
        let Some(lacking) = lacking else { continue };
        findings.add(READ_UNCOMMITTED_HW, Validity::False, || {
            let key = history.probed.get(fetched.key);
            let text = format!(
                "{key}: {} served {}, {}, with the high watermark {}; on the disk of {}, whose own high \
                 watermark is above that, it is not, or another one is.",
                value.node,
                range(mark),
                told(mark),
                value.high_watermark,
                lacking.value.node
            );
            let mut example = Example::new(key, text);
            example.ops.extend([fetched.index, lacking.index]);
            example
        });
    }
}

/// Tells of single batches on one disk, by their first offsets.
fn batches(
    history: &History,
    replica: &OnDisk,
    (anomaly, firsts, what): (&'static str, &[i64], &str),
    findings: &mut Findings,
) {
    for first in firsts {
        findings.add(anomaly, Validity::False, || {
            let key = history.probed.get(replica.key);
            let node = &replica.value.node;
            let text = format!("{key}: on the disk of {node}, the batch at {first} {what}.");
            let mut example = Example::new(key, text);
            example.ops.push(replica.index);
            example
        });
    }
}

fn range(mark: &BatchMark) -> String {
    format!("{} to {}", mark.first, mark.last)
}

fn told(mark: &BatchMark) -> String {
    format!("a batch to {} of epoch {} with checksum {:08x}", mark.last, mark.epoch, mark.crc)
}
