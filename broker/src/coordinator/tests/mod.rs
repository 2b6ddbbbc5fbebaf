//! Groups over a topic in memory, with time held still.

mod kept;

use std::sync::atomic::{AtomicBool, Ordering};

use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    DeleteGroupsRequest, GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, OffsetCommitRequest, OffsetFetchRequest, SyncGroupRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use tokio::sync::watch;

use super::*;

/// One partition, in memory; it can refuse, and commit late.
#[derive(Default)]
struct Memory {
    records: Mutex<Vec<(Bytes, Option<Bytes>)>>,
    refuses: AtomicBool,
    /// Records are committed at once only without this.
    is_slow: AtomicBool,
    progress: watch::Sender<(LeaderEpoch, Offset)>,
}

/// How long a commit may take.
const LIMIT: Duration = Duration::from_secs(5);

impl Memory {
    fn end(&self) -> Offset {
        Offset(i64::try_from(self.records.lock().unwrap().len()).unwrap())
    }

    fn commit_all(&self) {
        let end = self.end();
        self.progress.send_modify(|(_, committed)| *committed = end);
    }

    /// Another leader is elected whose log has `end` records; what is beyond is lost.
    fn elect(&self, end: Offset) -> LeaderEpoch {
        self.records.lock().unwrap().truncate(usize::try_from(end.0).unwrap());
        self.progress.send_modify(|(epoch, _)| *epoch = LeaderEpoch(epoch.0 + 1));
        self.progress.borrow().0
    }
}

const NOT_LEADER: StoreError = StoreError(ResponseError::NotLeaderOrFollower);

#[async_trait]
impl OffsetsTopic for Memory {
    fn partitions(&self) -> i32 {
        1
    }

    fn append(
        &self,
        partition: i32,
        epoch: LeaderEpoch,
        records: Vec<(Bytes, Option<Bytes>)>,
    ) -> Result<Offset, StoreError> {
        self.committed(partition, epoch)?;
        if self.refuses.load(Ordering::Relaxed) {
            return Err(StoreError(ResponseError::NotEnoughReplicas));
        }
        self.records.lock().unwrap().extend(records);
        if !self.is_slow.load(Ordering::Relaxed) {
            self.commit_all();
        }
        Ok(self.end())
    }

    fn committed(&self, _partition: i32, epoch: LeaderEpoch) -> Result<Offset, StoreError> {
        let (now, committed) = *self.progress.borrow();
        if now == epoch { Ok(committed) } else { Err(NOT_LEADER) }
    }

    async fn await_committed(
        &self,
        _partition: i32,
        epoch: LeaderEpoch,
        end: Offset,
    ) -> Result<(), StoreError> {
        let mut progress = self.progress.subscribe();
        let done = progress.wait_for(|(now, committed)| *now != epoch || *committed >= end);
        match tokio::time::timeout(LIMIT, done).await {
            Ok(Ok(seen)) if seen.0 == epoch => Ok(()),
            Ok(_) => Err(NOT_LEADER),
            Err(_) => Err(StoreError(ResponseError::RequestTimedOut)),
        }
    }

    async fn read(
        &self,
        partition: i32,
        epoch: LeaderEpoch,
        from: Offset,
    ) -> Result<(Vec<StoredRecord>, Offset), StoreError> {
        self.committed(partition, epoch)?;
        let records = self.records.lock().unwrap();
        let first = usize::try_from(from.0).unwrap();
        // Two at a time, so that loading goes on and on.
        let some: Vec<StoredRecord> = records
            .iter()
            .enumerate()
            .skip(first)
            .take(2)
            .map(|(offset, (key, value))| StoredRecord {
                offset: Offset(i64::try_from(offset).unwrap()),
                key: Some(key.clone()),
                value: value.clone(),
                timestamp_ms: 0,
            })
            .collect();
        let next = from + i64::try_from(some.len()).unwrap();
        Ok((some, next))
    }
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn caller() -> Caller {
    Caller { api_version: 5, client_id: "c".to_owned(), client_host: "/127.0.0.1".to_owned() }
}

fn settings() -> GroupSettings {
    GroupSettings { initial_rebalance_delay: Duration::ZERO, ..GroupSettings::default() }
}

async fn coordinator(memory: &Arc<Memory>) -> Arc<Coordinator> {
    let coordinator = Coordinator::new(settings(), Arc::clone(memory) as Arc<dyn OffsetsTopic>);
    take_over(&coordinator, memory.elect(memory.end())).await;
    coordinator
}

async fn take_over(coordinator: &Arc<Coordinator>, epoch: LeaderEpoch) {
    coordinator.elected(0, epoch);
    while !coordinator.lock().values().all(|shard| shard.loaded) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn join_request(member: &str, instance: Option<&str>) -> JoinGroupRequest {
    JoinGroupRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_member_id(text(member))
        .with_group_instance_id(instance.map(text))
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(20_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![
            JoinGroupRequestProtocol::default()
                .with_name(text("range"))
                .with_metadata(Bytes::new()),
        ])
}

/// Both rounds of a join (KIP-394).
async fn join(coordinator: &Arc<Coordinator>, member: &str) -> JoinGroupResponse {
    let mut member = member.to_owned();
    if member.is_empty() {
        let first = coordinator.join_group(join_request("", None), &caller()).await;
        assert_eq!(first.error_code, ResponseError::MemberIdRequired.code());
        member = first.member_id.to_string();
    }
    coordinator.join_group(join_request(&member, None), &caller()).await
}

async fn sync(
    coordinator: &Arc<Coordinator>,
    joined: &JoinGroupResponse,
    given: &[(&str, &'static [u8])],
) -> Result<Bytes, i16> {
    let assignments = given.iter().map(|(member, bytes)| {
        SyncGroupRequestAssignment::default()
            .with_member_id(text(member))
            .with_assignment(Bytes::from_static(bytes))
    });
    let request = SyncGroupRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id.clone())
        .with_assignments(assignments.collect());
    let response = coordinator.sync_group(request, &caller()).await;
    if response.error_code == 0 { Ok(response.assignment) } else { Err(response.error_code) }
}

async fn beat(coordinator: &Arc<Coordinator>, joined: &JoinGroupResponse) -> i16 {
    let request = HeartbeatRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id.clone());
    coordinator.heartbeat(request, &caller()).await.error_code
}

async fn commit(coordinator: &Arc<Coordinator>, generation: i32, member: &str, offset: i64) -> i16 {
    commit_at(coordinator, 3, generation, member, offset).await
}

async fn commit_at(
    coordinator: &Arc<Coordinator>,
    partition: i32,
    generation: i32,
    member: &str,
    offset: i64,
) -> i16 {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(partition)
        .with_committed_offset(offset)
        .with_committed_metadata(Some(text("m")));
    let topic = OffsetCommitRequestTopic::default()
        .with_name(TopicName(text("t")))
        .with_partitions(vec![partition]);
    let request = OffsetCommitRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_generation_id_or_member_epoch(generation)
        .with_member_id(text(member))
        .with_topics(vec![topic]);
    coordinator.offset_commit(request, &caller()).await.topics[0].partitions[0].error_code
}

async fn delete(coordinator: &Arc<Coordinator>) -> i16 {
    let request = DeleteGroupsRequest::default().with_groups_names(vec![GroupId(text("g"))]);
    coordinator.delete_groups(request, &caller()).await.results[0].error_code
}

async fn fetch(coordinator: &Arc<Coordinator>) -> Option<i64> {
    let request = OffsetFetchRequest::default().with_group_id(GroupId(text("g"))).with_topics(None);
    let response = coordinator.offset_fetch(request, &caller()).await;
    response.topics.first().map(|topic| topic.partitions[0].committed_offset)
}

/// What is committed of partitions 0 and 1.
async fn fetch_both(coordinator: &Arc<Coordinator>) -> [Option<i64>; 2] {
    let request = OffsetFetchRequest::default().with_group_id(GroupId(text("g"))).with_topics(None);
    let response = coordinator.offset_fetch(request, &caller()).await;
    let mut both = [None, None];
    for partition in response.topics.iter().flat_map(|topic| &topic.partitions) {
        both[usize::try_from(partition.partition_index).unwrap()] =
            Some(partition.committed_offset);
    }
    both
}

#[test]
fn a_groups_partition_is_the_one_that_kafka_takes() {
    // "abc".hashCode() is 96354 in Java, "polygenelubricants" has the least of all.
    assert_eq!(partition_for("abc", 50), 96354 % 50);
    assert_eq!(partition_for("polygenelubricants", 50), 0);
}

#[tokio::test(start_paused = true)]
async fn two_members_share_and_one_leaves() {
    let memory = Arc::default();
    let coordinator = coordinator(&memory).await;
    let first = join(&coordinator, "").await;
    assert_eq!((first.error_code, first.generation_id), (0, 1));
    let one = first.member_id.as_str();
    assert_eq!(sync(&coordinator, &first, &[(one, b"all")]).await.unwrap(), &b"all"[..]);
    assert_eq!(beat(&coordinator, &first).await, 0);

    let other = Arc::clone(&coordinator);
    let joining = tokio::spawn(async move { join(&other, "").await });
    // The first hears of it by its heartbeat, and joins again.
    while beat(&coordinator, &first).await != ResponseError::RebalanceInProgress.code() {
        tokio::task::yield_now().await;
    }
    let again = join(&coordinator, first.member_id.as_str()).await;
    let second = joining.await.unwrap();
    assert_eq!((again.generation_id, second.generation_id), (2, 2));
    assert_eq!(again.leader, second.leader);
    let (leader, follower) =
        if again.leader == again.member_id { (&again, &second) } else { (&second, &again) };
    assert_eq!((leader.members.len(), follower.members.len()), (2, 0));
    let other = Arc::clone(&coordinator);
    let waiting = follower.clone();
    let syncing = tokio::spawn(async move { sync(&other, &waiting, &[]).await });
    let given = [(leader.member_id.as_str(), &b"a"[..]), (follower.member_id.as_str(), b"b")];
    assert_eq!(sync(&coordinator, leader, &given).await.unwrap(), &b"a"[..]);
    assert_eq!(syncing.await.unwrap().unwrap(), &b"b"[..]);

    let leave = LeaveGroupRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_member_id(follower.member_id.clone());
    let old = Caller { api_version: 1, ..caller() };
    assert_eq!(coordinator.leave_group(leave, &old).await.error_code, 0);
    assert_eq!(beat(&coordinator, leader).await, ResponseError::RebalanceInProgress.code());
    assert_eq!(beat(&coordinator, follower).await, ResponseError::UnknownMemberId.code());
}

#[tokio::test(start_paused = true)]
async fn a_silent_member_is_gone_after_its_session() {
    let memory = Arc::default();
    let coordinator = coordinator(&memory).await;
    let joined = join(&coordinator, "").await;
    let member = joined.member_id.to_string();
    sync(&coordinator, &joined, &[(&member, b"all")]).await.unwrap();
    tokio::time::advance(Duration::from_secs(9)).await;
    assert_eq!(beat(&coordinator, &joined).await, 0);
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(beat(&coordinator, &joined).await, ResponseError::UnknownMemberId.code());
}

#[tokio::test(start_paused = true)]
async fn a_commit_survives_a_failover_and_a_stale_one_is_refused() {
    let memory: Arc<Memory> = Arc::default();
    let first = coordinator(&memory).await;
    let joined = join(&first, "").await;
    let member = joined.member_id.to_string();
    sync(&first, &joined, &[(&member, b"all")]).await.unwrap();
    assert_eq!(commit(&first, 1, &member, 42).await, 0);
    assert_eq!(commit(&first, 0, &member, 7).await, ResponseError::IllegalGeneration.code());
    assert_eq!(commit(&first, 1, "x", 7).await, ResponseError::UnknownMemberId.code());
    assert_eq!(commit(&first, -1, "", 7).await, ResponseError::UnknownMemberId.code());
    assert_eq!(fetch(&first).await, Some(42));
    first.resigned(0);
    assert_eq!(commit(&first, 1, &member, 43).await, ResponseError::NotCoordinator.code());

    let second = coordinator(&memory).await;
    assert_eq!(fetch(&second).await, Some(42));
    assert_eq!(beat(&second, &joined).await, 0, "the member goes on where it was");
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_is_not_kept_is_not_seen() {
    let memory: Arc<Memory> = Arc::default();
    let coordinator = coordinator(&memory).await;
    assert_eq!(commit(&coordinator, -1, "", 5).await, 0);
    memory.refuses.store(true, Ordering::Relaxed);
    let refused = commit(&coordinator, -1, "", 9).await;
    assert_eq!(refused, ResponseError::CoordinatorNotAvailable.code());
    assert_eq!(fetch(&coordinator).await, Some(5));
}

#[tokio::test(start_paused = true)]
async fn a_static_member_comes_back_to_what_it_had() {
    let memory = Arc::default();
    let coordinator = coordinator(&memory).await;
    let joined = coordinator.join_group(join_request("", Some("i1")), &caller()).await;
    assert_eq!(joined.error_code, 0);
    let member = joined.member_id.to_string();
    sync(&coordinator, &joined, &[(&member, b"all")]).await.unwrap();
    let back = coordinator.join_group(join_request("", Some("i1")), &caller()).await;
    assert_eq!(back.error_code, 0);
    assert_ne!(back.member_id, joined.member_id);
    let fenced = coordinator.join_group(join_request(&member, Some("i1")), &caller()).await;
    assert_eq!(fenced.error_code, ResponseError::FencedInstanceId.code());
}
