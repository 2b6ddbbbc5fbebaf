//! What the replicas of a node say of themselves, asked through the protocol alone: any
//! Kafka-compatible system tells it.
//!
//! | question | answer |
//! |---|---|
//! | Metadata | who leads in which epoch, and the ISR, from the node's own cache |
//! | `ListOffsets` as replica -2 | the log end of the node's own replica, leader or not |
//! | Fetch at that log end | high watermark and log start of that replica; no record comes along |
//! | `ListOffsets` again | a log end that the high watermark before cannot be above |
//!
//! All but the first carry the leader epoch of the first, so that a replica in another epoch refuses
//! (R31): whatever is told belongs to that epoch. All go over one connection, so that one process
//! answers.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use history::{Key, ReplicaState};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{FetchRequest, FetchResponse};

use super::connection::{Dialogue, ProbeError, within};
use super::fetches::{self, Asked};
use super::offsets::{self, End};
use super::replicas::Replica;
use super::view::{METADATA_VERSIONS, PartitionView, metadata_request, read_metadata};
use crate::node::{NodeName, NodeSpec, OBSERVER_PORT};

/// From 4 on they carry a leader epoch.
const LIST_OFFSETS_VERSIONS: RangeInclusive<i16> = 4..=7;

/// Asks `node` for its replicas of `keys`. Those that refuse, because they are in another epoch
/// by now or are not there, are left out.
///
/// # Errors
/// No answer within `limit`, or one that cannot be read.
pub async fn replicas_by_protocol(
    node: &NodeSpec,
    keys: &[Key],
    limit: Duration,
) -> Result<Vec<Replica>, ProbeError> {
    within(node.address, OBSERVER_PORT, limit, async {
        let mut dialogue = Dialogue::open(node.address, OBSERVER_PORT).await?;
        let seen = dialogue.ask(METADATA_VERSIONS, &metadata_request(keys)).await?;
        let mut views = read_metadata(&seen).keys;
        views.retain(|_, view| view.leader.is_some() && view.replicas.contains(&node.name));
        let before = log_ends(&mut dialogue, &views).await?;
        if before.is_empty() {
            return Ok(Vec::new());
        }
        let marks = dialogue.ask(fetches::VERSIONS, &fetch(&views, &before)).await?;
        let after = log_ends(&mut dialogue, &views).await?;
        Ok(put_together(node.name, &views, &before, &read_fetch(&marks), &after))
    })
    .await
}

/// What a fetch tells of a replica besides records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Marks {
    high_watermark: i64,
    log_start: i64,
}

async fn log_ends(
    dialogue: &mut Dialogue,
    views: &BTreeMap<Key, PartitionView>,
) -> Result<BTreeMap<Key, i64>, ProbeError> {
    if views.is_empty() {
        return Ok(BTreeMap::new());
    }
    let epochs = views.iter().map(|(key, view)| (key, view.leader_epoch));
    let request = offsets::request(epochs, End::Log);
    let answer = dialogue.ask(LIST_OFFSETS_VERSIONS, &request).await?;
    let told = offsets::read(&answer).into_iter();
    Ok(told.filter_map(|(key, end)| Some((key, end.ok()?))).collect())
}

/// Each key at the end of its log, where there is nothing to send along.
fn fetch(views: &BTreeMap<Key, PartitionView>, ends: &BTreeMap<Key, i64>) -> FetchRequest {
    let asked = ends.iter().filter_map(|(key, end)| {
        Some(Asked { key, leader_epoch: views.get(key)?.leader_epoch, from: *end })
    });
    fetches::request(asked, 1, 1)
}

fn read_fetch(answer: &FetchResponse) -> BTreeMap<Key, Marks> {
    fetches::by_key(answer)
        .filter(|(_, partition)| ResponseError::try_from_code(partition.error_code).is_none())
        .map(|(key, partition)| {
            let marks = Marks {
                high_watermark: partition.high_watermark,
                log_start: partition.log_start_offset,
            };
            (key, marks)
        })
        .collect()
}

/// The replicas of `node` that answered everything, and whose log did not get shorter meanwhile.
fn put_together(
    node: NodeName,
    views: &BTreeMap<Key, PartitionView>,
    before: &BTreeMap<Key, i64>,
    marks: &BTreeMap<Key, Marks>,
    after: &BTreeMap<Key, i64>,
) -> Vec<Replica> {
    let replica = |(key, view): (&Key, &PartitionView)| {
        let (marks, log_end) = (marks.get(key)?, *after.get(key)?);
        if log_end < *before.get(key)? {
            return None;
        }
        let id = |node: &NodeName| i32::try_from(node.id()).unwrap_or(i32::MAX);
        Some(Replica {
            key: key.to_string(),
            topic_id: String::new(),
            role: if view.leader == Some(node) { "leader" } else { "follower" }.to_owned(),
            state: ReplicaState {
                leader_epoch: view.leader_epoch,
                partition_epoch: -1,
                isr: view.isr.iter().map(id).collect(),
                high_watermark: marks.high_watermark,
                log_end,
                log_start: marks.log_start,
            },
            epochs: Vec::new(),
        })
    };
    views.iter().filter_map(replica).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(leader: u32) -> BTreeMap<Key, PartitionView> {
        let view = PartitionView {
            leader: Some(NodeName::new(leader)),
            leader_epoch: 7,
            isr: [NodeName::new(1), NodeName::new(2)].into(),
            replicas: [NodeName::new(1), NodeName::new(2)].into(),
            ..PartitionView::default()
        };
        [(Key::from("t-0"), view)].into()
    }

    fn at(offset: i64) -> BTreeMap<Key, i64> {
        [(Key::from("t-0"), offset)].into()
    }

    fn marks() -> BTreeMap<Key, Marks> {
        [(Key::from("t-0"), Marks { high_watermark: 9, log_start: 2 })].into()
    }

    #[test]
    fn a_replica_is_told_with_the_epoch_that_it_was_asked_in() {
        let told = put_together(NodeName::new(2), &view(1), &at(9), &marks(), &at(11));
        let [replica] = &told[..] else { panic!("{told:?}") };
        assert_eq!(replica.role, "follower");
        assert_eq!(replica.state.isr, [1, 2]);
        let state = &replica.state;
        assert_eq!((state.leader_epoch, state.log_start, state.log_end), (7, 2, 11));
        let led = put_together(NodeName::new(1), &view(1), &at(9), &marks(), &at(9));
        assert_eq!(led[0].role, "leader");
    }

    #[test]
    fn one_that_refused_or_was_cut_off_meanwhile_is_left_out() {
        let none = BTreeMap::new();
        let me = NodeName::new(1);
        assert_eq!(put_together(me, &view(1), &at(9), &marks(), &at(8)), []);
        assert_eq!(put_together(me, &view(1), &at(9), &BTreeMap::new(), &at(9)), []);
        assert_eq!(put_together(me, &view(1), &at(9), &marks(), &none), []);
    }

    #[test]
    fn every_question_carries_the_leader_epoch() {
        let request = fetch(&view(1), &at(9));
        let asked = &request.topics[0].partitions[0];
        assert_eq!((asked.current_leader_epoch, asked.fetch_offset), (7, 9));
        assert_eq!((request.replica_id, request.max_wait_ms), (fetches::CONSUMER, 0));
    }
}
