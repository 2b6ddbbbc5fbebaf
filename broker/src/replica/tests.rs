//! Replicas on real files, without a network: what a leader and a follower do with each other.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use replication::epochs::EpochEnd;
use replication::partition::{Assignment, BrokerState, Settings};
use replication::types::{
    BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch, PartitionId, Recovery, TopicId,
};
use tempfile::TempDir;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::follow::FromLeader;
use super::partition::{Brokers, Outbox, Partition, Proposed, TopicSettings};
use super::store::Store;
use super::{Asker, FetchedByFollower, ReadRequest};
use crate::fatal::Fatal;
use crate::log::batch::tests::{batch, from_producer};
use crate::log::{LogDirectory, LogSettings};

/// A replica, what it proposes, what it wants synced, and its disk.
struct Replica {
    partition: Arc<Partition>,
    proposed: mpsc::UnboundedReceiver<Proposed>,
    unsynced: Option<mpsc::UnboundedReceiver<Arc<Partition>>>,
    disk: TempDir,
}

fn brokers() -> Arc<Brokers> {
    let state = |id: i32| BrokerState {
        epoch: BrokerEpoch(10 + i64::from(id)),
        fenced: false,
        in_controlled_shutdown: false,
    };
    Arc::new((1..=3).map(|id| (NodeId(id), state(id))).collect())
}

fn open(node: i32, disk: TempDir, high_watermark: i64, fsync: bool) -> Replica {
    let directory = LogDirectory::open(disk.path(), NodeId(node), "c").unwrap();
    let id = PartitionId { topic: TopicId(Uuid::from_u128(1)), index: 0 };
    let log = LogSettings::default();
    let store = Store::open(&directory, "t", id, &log).unwrap();
    let (proposals, proposed) = mpsc::unbounded_channel();
    let (sync, unsynced) = mpsc::unbounded_channel();
    let outbox = Outbox { proposals, unsynced: fsync.then_some(sync), fatal: Fatal::default() };
    let settings =
        TopicSettings { replication: Settings { lag_max_ms: 60_000, min_insync_replicas: 1 }, log };
    let partition = Partition::new(
        id,
        "t".into(),
        NodeId(node),
        outbox,
        store,
        Offset(high_watermark),
        settings,
    );
    partition.set_brokers(brokers());
    Replica { partition, proposed, unsynced: fsync.then_some(unsynced), disk }
}

fn new(node: i32) -> Replica {
    open(node, tempfile::tempdir().unwrap(), 0, false)
}

fn assignment(leader_epoch: i32, isr: &[i32]) -> Assignment {
    Assignment {
        leader_epoch: LeaderEpoch(leader_epoch),
        partition_epoch: PartitionEpoch(leader_epoch),
        replicas: (1..=3).map(NodeId).collect(),
        isr: isr.iter().copied().map(NodeId).collect(),
        recovery: Recovery::Recovered,
    }
}

fn append(leader: &Replica, count: i32) -> Result<Offset, ResponseError> {
    let records = Bytes::from(batch(0, 0, count));
    leader.partition.append(&records, true, None).map(|done| done.base_offset).map_err(|r| r.error)
}

fn read_as(asker: Asker, from: i64, last_fetched_epoch: Option<i32>) -> ReadRequest {
    ReadRequest {
        asker,
        from: Offset(from),
        max_bytes: 1 << 20,
        at_least_one: true,
        current_leader_epoch: None,
        last_fetched_epoch: last_fetched_epoch.map(LeaderEpoch),
        records_progress: true,
    }
}

fn follower_asker(node: i32) -> Asker {
    Asker::Follower(FetchedByFollower {
        from: NodeId(node),
        broker_epoch: BrokerEpoch(10 + i64::from(node)),
        log_start: Offset(0),
    })
}

/// One round of a follower's fetch from `leader` in `epoch`; whether its log has grown.
fn fetch(leader: &Replica, follower: &Replica, epoch: i32) -> bool {
    let (source, epoch) = (leader.partition.me, LeaderEpoch(epoch));
    let from = follower.partition.fetch_from(source, epoch).expect("it follows");
    let last = from.last_epoch.map(|epoch| epoch.0);
    let request = read_as(follower_asker(follower.partition.me.0), from.offset.0, last);
    let found = leader.partition.read(&request).unwrap();
    if let Some(end) = found.diverging {
        follower.partition.diverged(source, epoch, from, end, end.end).unwrap();
        return false;
    }
    let answer = FromLeader {
        records: found.records,
        high_watermark: found.high_watermark,
        log_start: found.log_start,
    };
    follower.partition.fetched(source, epoch, from, &answer).unwrap()
}

fn follows(follower: &Replica, leader: i32, epoch: i32, isr: &[i32]) {
    follower.partition.follow(Some(NodeId(leader)), &assignment(epoch, isr));
    follower.partition.begin_following(NodeId(leader), LeaderEpoch(epoch)).unwrap();
}

fn ends(replica: &Replica) -> (i64, i64) {
    let progress = replica.partition.progress();
    (progress.high_watermark.0, progress.log_end.0)
}

#[test]
fn a_record_is_seen_once_every_member_has_it() {
    let (leader, follower) = (new(1), new(2));
    leader.partition.lead(assignment(1, &[1, 2])).unwrap();
    follows(&follower, 1, 1, &[1, 2]);
    assert_eq!(append(&leader, 3), Ok(Offset(0)));
    let consumer = read_as(Asker::Consumer { leader_only: true }, 0, None);
    assert!(leader.partition.read(&consumer).unwrap().records.is_empty());
    assert!(fetch(&leader, &follower, 1));
    assert_eq!(ends(&leader), (0, 3), "its fetch was for offset 0");
    assert!(!fetch(&leader, &follower, 1));
    assert_eq!((ends(&leader), ends(&follower)), ((3, 3), (3, 3)));
    assert!(!leader.partition.read(&consumer).unwrap().records.is_empty());
}

#[test]
fn r7_a_diverging_fetch_updates_nothing() {
    let (leader, mut old) = (new(1), new(2));
    old.partition.lead(assignment(1, &[2])).unwrap();
    append(&old, 5).unwrap();
    leader.partition.lead(assignment(2, &[1, 2])).unwrap();
    follows(&old, 1, 2, &[1, 2]);
    let from = old.partition.fetch_from(NodeId(1), LeaderEpoch(2)).unwrap();
    assert_eq!((from.offset, from.last_epoch), (Offset(5), Some(LeaderEpoch(1))));
    // The leader begins with epoch 2: where epoch 1 ended, its first epoch starts.
    let found = leader.partition.read(&read_as(follower_asker(2), 5, Some(1))).unwrap();
    assert!(found.diverging.is_some());
    let known = leader.partition.describe().followers[0].clone();
    assert_eq!(known.log_end, None, "an ex-leader's tail is no progress");
    assert!(old.proposed.try_recv().is_err());
}

#[test]
fn r24_a_record_above_the_follower_s_high_watermark_survives_its_restart() {
    let (leader, follower) = (new(1), new(2));
    leader.partition.lead(assignment(1, &[1, 2])).unwrap();
    follows(&follower, 1, 1, &[1, 2]);
    append(&leader, 1).unwrap();
    fetch(&leader, &follower, 1);
    // The leader has heard of it; the follower has not heard that.
    assert_eq!(ends(&follower), (0, 1));
    let Replica { partition, disk, .. } = follower;
    partition.close_log().unwrap();
    drop(partition);
    let follower = open(2, disk, 0, false);
    follows(&follower, 1, 1, &[1, 2]);
    assert_eq!(ends(&follower).1, 1, "not truncated to the high watermark");
    follower.partition.lead(assignment(2, &[2])).unwrap();
    assert_eq!(ends(&follower), (1, 1));
}

#[test]
fn r33_a_diverging_answer_leaves_the_high_watermark_alone() {
    let follower = new(2);
    follower.partition.lead(assignment(1, &[2])).unwrap();
    append(&follower, 5).unwrap();
    assert_eq!(ends(&follower), (5, 5));
    follows(&follower, 1, 2, &[1, 2]);
    let from = follower.partition.fetch_from(NodeId(1), LeaderEpoch(2)).unwrap();
    let end = EpochEnd { epoch: LeaderEpoch(1), end: Offset(5) };
    follower.partition.diverged(NodeId(1), LeaderEpoch(2), from, end, end.end).unwrap();
    assert_eq!(ends(&follower), (5, 5));
    let end = EpochEnd { epoch: LeaderEpoch(1), end: Offset(2) };
    follower.partition.diverged(NodeId(1), LeaderEpoch(2), from, end, end.end).unwrap();
    // The batch of five goes as a whole; the watermark is clamped to the new end, after the cut.
    assert_eq!(ends(&follower), (0, 0));
}

#[test]
fn r31_whoever_names_another_epoch_is_told() {
    let leader = new(1);
    leader.partition.lead(assignment(5, &[1])).unwrap();
    let ask = |epoch: i32| {
        let request = ReadRequest {
            current_leader_epoch: Some(LeaderEpoch(epoch)),
            ..read_as(Asker::Consumer { leader_only: true }, 0, None)
        };
        leader.partition.read(&request).map(drop)
    };
    assert_eq!(ask(4), Err(ResponseError::FencedLeaderEpoch));
    assert_eq!(ask(6), Err(ResponseError::UnknownLeaderEpoch));
    assert_eq!(ask(5), Ok(()));
}

#[test]
fn a_follower_in_sync_is_proposed_for_the_isr() {
    let (mut leader, follower) = (new(1), new(2));
    leader.partition.lead(assignment(1, &[1])).unwrap();
    follows(&follower, 1, 1, &[1]);
    append(&leader, 2).unwrap();
    fetch(&leader, &follower, 1);
    assert!(leader.proposed.try_recv().is_err(), "it has nothing yet");
    fetch(&leader, &follower, 1);
    let proposed = leader.proposed.try_recv().expect("it has everything");
    assert_eq!(proposed.proposal.isr.len(), 2);
}

#[test]
fn under_fsync_a_record_counts_only_once_it_is_on_disk() {
    let mut leader = open(1, tempfile::tempdir().unwrap(), 0, true);
    leader.partition.lead(assignment(1, &[1])).unwrap();
    append(&leader, 2).unwrap();
    assert_eq!(ends(&leader), (0, 2));
    let unsynced = leader.unsynced.as_mut().unwrap().try_recv().expect("it wants to be synced");
    let ticket = unsynced.begin_sync();
    append(&leader, 1).unwrap();
    let end = ticket.run().unwrap();
    leader.partition.synced(end);
    assert_eq!(ends(&leader), (2, 3), "what came after the ticket does not count yet");
}

#[test]
fn a_retry_is_answered_with_the_first_offset_also_by_the_next_leader() {
    let (leader, follower) = (new(1), new(2));
    leader.partition.lead(assignment(1, &[1, 2])).unwrap();
    follows(&follower, 1, 1, &[1, 2]);
    let send = |replica: &Replica, sequence: i32| {
        let records = Bytes::from(from_producer(0, 0, 2, 7, 0, sequence));
        replica
            .partition
            .append(&records, true, None)
            .map(|done| done.base_offset)
            .map_err(|r| r.error)
    };
    append(&leader, 3).unwrap();
    assert_eq!(send(&leader, 0), Ok(Offset(3)));
    assert_eq!(send(&leader, 0), Ok(Offset(3)));
    assert_eq!(send(&leader, 4), Err(ResponseError::OutOfOrderSequenceNumber));
    fetch(&leader, &follower, 1);
    follower.partition.lead(assignment(2, &[2])).unwrap();
    assert_eq!(send(&follower, 0), Ok(Offset(3)));
    assert_eq!(send(&follower, 2), Ok(Offset(5)));
}

#[test]
fn records_can_be_deleted_up_to_the_high_watermark() {
    let leader = new(1);
    leader.partition.lead(assignment(1, &[1])).unwrap();
    append(&leader, 2).unwrap();
    append(&leader, 2).unwrap();
    assert_eq!(
        leader.partition.delete_records(Some(Offset(9))),
        Err(ResponseError::OffsetOutOfRange)
    );
    assert_eq!(leader.partition.delete_records(Some(Offset(2))), Ok(Offset(2)));
    let consumer = |from| read_as(Asker::Consumer { leader_only: true }, from, None);
    assert_eq!(leader.partition.read(&consumer(0)).map(drop), Err(ResponseError::OffsetOutOfRange));
    assert!(!leader.partition.read(&consumer(2)).unwrap().records.is_empty());
    assert_eq!(leader.partition.delete_records(None), Ok(Offset(4)));
}

/// Seen in a run: a consumer went on at a leader that had just been frozen and deposed, was told that
/// its offset is out of range, and began anew at 0.
#[test]
fn a_follower_that_is_behind_a_consumer_is_no_reason_to_begin_anew() {
    let (leader, follower) = (new(1), new(2));
    leader.partition.lead(assignment(1, &[1])).unwrap();
    append(&leader, 3).unwrap();
    follows(&follower, 1, 1, &[1]);
    let consumer = |from| read_as(Asker::Consumer { leader_only: false }, from, None);
    let read = |replica: &Replica, from| replica.partition.read(&consumer(from)).map(drop);
    assert_eq!(read(&follower, 3), Err(ResponseError::OffsetNotAvailable));
    assert_eq!(read(&follower, 0), Ok(()));
    assert_eq!(read(&leader, 4), Err(ResponseError::OffsetOutOfRange), "the leader knows");
}

#[test]
fn r23_an_epoch_without_records_does_not_keep_a_follower_out() {
    let (leader, old) = (new(1), new(2));
    for replica in [&leader, &old] {
        replica.partition.lead(assignment(1, &[1, 2])).unwrap();
        append(replica, 1).unwrap();
    }
    // It led in epoch 2 and appended nothing; then another one led in epoch 3.
    old.partition.lead(assignment(2, &[2])).unwrap();
    leader.partition.lead(assignment(3, &[1, 2])).unwrap();
    append(&leader, 1).unwrap();
    follows(&old, 1, 3, &[1, 2]);
    assert!(!fetch(&leader, &old, 3), "the logs seem to differ");
    assert!(fetch(&leader, &old, 3));
    assert_eq!(ends(&old).1, 2);
}
