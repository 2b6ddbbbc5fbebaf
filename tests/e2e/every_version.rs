//! Every API that is announced to clients, at each of its versions: old clients are answered in
//! what they understand, whatever newer versions have to tell besides.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use bytes::{Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_producers_request::TopicRequest as ProducersOf;
use kafka_protocol::messages::describe_quorum_request as quorum;
use kafka_protocol::messages::describe_topic_partitions_request::TopicRequest;
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, ApiKey, ApiVersionsRequest, BrokerId,
    CreatePartitionsRequest, CreateTopicsRequest, DeleteGroupsRequest, DeleteRecordsRequest,
    DeleteTopicsRequest, DescribeClusterRequest, DescribeConfigsRequest, DescribeGroupsRequest,
    DescribeLogDirsRequest, DescribeProducersRequest, DescribeQuorumRequest,
    DescribeTopicPartitionsRequest, ElectLeadersRequest, FetchRequest, FindCoordinatorRequest,
    GroupId, HeartbeatRequest, IncrementalAlterConfigsRequest, InitProducerIdRequest,
    JoinGroupRequest, LeaveGroupRequest, ListGroupsRequest, ListOffsetsRequest,
    ListPartitionReassignmentsRequest, MetadataRequest, OffsetCommitRequest, OffsetDeleteRequest,
    OffsetFetchRequest, OffsetForLeaderEpochRequest, ProduceRequest, SyncGroupRequest, TopicName,
};
use kafka_protocol::protocol::{Request, StrBytes};
use kafka_protocol::records::{
    Compression, Record, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};
use uuid::Uuid;

use crate::driver::eventually;
use crate::loopback::{Loopback, ask};

/// The topic that requests are about.
const TOPIC: &str = "t";
/// A topic that does not exist.
const NONE: &str = "none";
const GROUP: &str = "g";

/// What is asked of, and what answers were missed.
struct Asking {
    node: SocketAddrV4,
    topic_id: Uuid,
    asked: BTreeMap<i16, Vec<i16>>,
    missed: Vec<String>,
}

fn text(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

fn topic(name: &'static str) -> TopicName {
    TopicName(text(name))
}

fn group() -> GroupId {
    GroupId(text(GROUP))
}

impl Asking {
    fn ask<R: Request>(&mut self, version: i16, request: &R) -> Option<R::Response> {
        let versions = self.asked.entry(R::KEY).or_default();
        if versions.last() != Some(&version) {
            versions.push(version);
        }
        match ask(self.node, version, request) {
            Ok(answer) => Some(answer),
            Err(error) => {
                let key = ApiKey::try_from(R::KEY).expect("an API");
                self.missed.push(format!("{key:?} {version}: {error}"));
                None
            }
        }
    }
}

/// Everything, at every node: one leads the partition, two follow; one is the group's coordinator.
pub(crate) fn every_announced_version_is_answered() {
    let cluster = Loopback::up(
        "auto.create.topics.enable=false\ngroup.initial.rebalance.delay.ms=0\n\
         offsets.topic.replication.factor=3\noffsets.topic.num.partitions=1\n",
    );
    let topic_id = set_up(cluster.clients[0]);
    let for_clients: Vec<ApiKey> =
        announced(cluster.clients[0]).into_iter().map(|(key, ..)| key).collect();
    for node in cluster.clients.iter().chain(&cluster.controllers) {
        let mut announced = announced(*node);
        // Controllers have more for brokers alone, which a client must not say.
        announced.retain(|(key, ..)| for_clients.contains(key));
        assert!(!announced.is_empty());
        let mut asking =
            Asking { node: *node, topic_id, asked: BTreeMap::new(), missed: Vec::new() };
        for (key, min, max) in &announced {
            for version in *min..=*max {
                asking.of(*key, version);
            }
        }
        let missed = asking.missed.join("\n");
        assert!(missed.is_empty(), "not answered:\n{missed}\n{}", cluster.warnings());
        for (key, min, max) in announced {
            let asked = asking.asked.get(&(key as i16)).cloned().unwrap_or_default();
            assert_eq!(asked, (min..=max).collect::<Vec<_>>(), "{key:?} is not asked for");
        }
    }
}

/// What a node announces: API, oldest and newest version.
fn announced(node: SocketAddrV4) -> Vec<(ApiKey, i16, i16)> {
    let announced = ask(node, 0, &ApiVersionsRequest::default()).expect("versions");
    let api = |api: &ApiVersion| {
        let key = ApiKey::try_from(api.api_key).expect("a known API");
        // Announced from 0 on for the sake of old clients; refused below 3, as in Kafka.
        let min = if key == ApiKey::Produce { 3 } else { api.min_version };
        (key, min, api.max_version)
    };
    announced.api_keys.iter().map(api).collect()
}

/// Makes the topic, and awaits what a client awaits.
fn set_up(node: SocketAddrV4) -> Uuid {
    let made = CreateTopicsRequest::default().with_timeout_ms(10_000).with_topics(vec![
        CreatableTopic::default()
            .with_name(topic(TOPIC))
            .with_num_partitions(1)
            .with_replication_factor(3),
    ]);
    eventually("the topic to be made", || {
        ask(node, 5, &made).is_ok_and(|made| {
            made.topics.iter().all(|topic| {
                [0, ResponseError::TopicAlreadyExists.code()].contains(&topic.error_code)
            })
        })
    });
    let mut id = Uuid::nil();
    let all = MetadataRequest::default().with_topics(None);
    eventually("a leader", || {
        ask(node, 12, &all).is_ok_and(|metadata| {
            let Some(topic) = metadata.topics.first() else { return false };
            id = topic.topic_id;
            topic
                .partitions
                .iter()
                .all(|partition| partition.leader_id.0 > 0 && partition.isr_nodes.len() == 3)
        })
    });
    let find = FindCoordinatorRequest::default().with_key(text(GROUP));
    eventually("a coordinator", || ask(node, 3, &find).is_ok_and(|found| found.error_code == 0));
    id
}

impl Asking {
    /// All that is asked of `key` at `version`.
    fn of(&mut self, key: ApiKey, version: i16) {
        match key {
            ApiKey::Produce
            | ApiKey::Fetch
            | ApiKey::ListOffsets
            | ApiKey::InitProducerId
            | ApiKey::OffsetForLeaderEpoch => self.of_records(key, version),
            ApiKey::OffsetCommit
            | ApiKey::OffsetFetch
            | ApiKey::FindCoordinator
            | ApiKey::OffsetDelete
            | ApiKey::DescribeGroups
            | ApiKey::ListGroups
            | ApiKey::DeleteGroups => self.of_groups(key, version),
            ApiKey::JoinGroup | ApiKey::SyncGroup | ApiKey::Heartbeat | ApiKey::LeaveGroup => {
                self.of_members(key, version);
            }
            ApiKey::CreateTopics
            | ApiKey::DeleteTopics
            | ApiKey::CreatePartitions
            | ApiKey::DeleteRecords
            | ApiKey::ElectLeaders
            | ApiKey::AlterPartitionReassignments
            | ApiKey::IncrementalAlterConfigs => self.of_changes(key, version),
            _ => self.of_looks(key, version),
        }
    }

    fn of_records(&mut self, key: ApiKey, version: i16) {
        match key {
            ApiKey::Produce => {
                for (name, records) in [(TOPIC, batch()), (TOPIC, Bytes::new()), (NONE, batch())] {
                    self.ask(version, &produce(name, records));
                }
            }
            ApiKey::Fetch => {
                for (name, offset) in [(TOPIC, 0), (TOPIC, 1 << 40), (NONE, 0)] {
                    let partition = FetchPartition::default()
                        .with_fetch_offset(offset)
                        .with_partition_max_bytes(1 << 20);
                    // A client that has read more of epoch 0 than there is of it.
                    let partition = if version >= 12 && offset > 0 {
                        partition.with_last_fetched_epoch(0)
                    } else {
                        partition
                    };
                    let of = FetchTopic::default().with_partitions(vec![partition]);
                    let of = if version >= 13 {
                        of.with_topic_id(if name == TOPIC { self.topic_id } else { Uuid::max() })
                    } else {
                        of.with_topic(topic(name))
                    };
                    let fetch = FetchRequest::default().with_topics(vec![of]);
                    self.ask(version, &fetch.with_session_epoch(-1));
                }
            }
            ApiKey::ListOffsets => {
                for (name, timestamp) in [(TOPIC, -1), (TOPIC, -2), (TOPIC, 0), (NONE, -1)] {
                    let partition = ListOffsetsPartition::default().with_timestamp(timestamp);
                    let of = ListOffsetsTopic::default().with_name(topic(name));
                    let of = of.with_partitions(vec![partition]);
                    let list = ListOffsetsRequest::default().with_replica_id(BrokerId(-1));
                    self.ask(version, &list.with_topics(vec![of]));
                }
            }
            ApiKey::InitProducerId => {
                self.ask(version, &InitProducerIdRequest::default());
            }
            ApiKey::OffsetForLeaderEpoch => {
                let of = OffsetForLeaderTopic::default()
                    .with_topic(topic(TOPIC))
                    .with_partitions(vec![OffsetForLeaderPartition::default()]);
                let request = OffsetForLeaderEpochRequest::default().with_topics(vec![of]);
                self.ask(version, &request);
            }
            _ => {}
        }
    }

    fn of_groups(&mut self, key: ApiKey, version: i16) {
        match key {
            ApiKey::OffsetCommit => {
                let partition = OffsetCommitRequestPartition::default().with_committed_offset(1);
                let of = OffsetCommitRequestTopic::default()
                    .with_name(topic(TOPIC))
                    .with_partitions(vec![partition]);
                let commit = OffsetCommitRequest::default().with_group_id(group());
                self.ask(version, &commit.with_topics(vec![of]));
            }
            ApiKey::OffsetFetch => {
                for whole in [false, true] {
                    if !whole || version >= 2 {
                        self.ask(version, &offset_fetch(version, whole));
                    }
                }
            }
            ApiKey::FindCoordinator => {
                let find = FindCoordinatorRequest::default();
                let keys = vec![text(GROUP)];
                let by_key = if version >= 4 {
                    find.with_coordinator_keys(keys)
                } else {
                    find.with_key(text(GROUP))
                };
                self.ask(version, &by_key);
                if version >= 1 {
                    // Of a transaction: there are none yet.
                    self.ask(version, &by_key.with_key_type(1));
                }
            }
            ApiKey::OffsetDelete => {
                let of = OffsetDeleteRequestTopic::default()
                    .with_name(topic(TOPIC))
                    .with_partitions(vec![OffsetDeleteRequestPartition::default()]);
                let delete = OffsetDeleteRequest::default().with_group_id(group());
                self.ask(version, &delete.with_topics(vec![of]));
            }
            ApiKey::DescribeGroups => {
                let groups = vec![group(), GroupId(text(NONE))];
                self.ask(version, &DescribeGroupsRequest::default().with_groups(groups));
            }
            ApiKey::ListGroups => {
                self.ask(version, &ListGroupsRequest::default());
            }
            _ => {
                let groups = vec![GroupId(text(NONE))];
                self.ask(version, &DeleteGroupsRequest::default().with_groups_names(groups));
            }
        }
    }

    fn of_members(&mut self, key: ApiKey, version: i16) {
        match key {
            ApiKey::JoinGroup => {
                let protocol = JoinGroupRequestProtocol::default().with_name(text("range"));
                let join = JoinGroupRequest::default()
                    .with_group_id(GroupId(StrBytes::from_string(format!("joined-{version}"))))
                    .with_session_timeout_ms(10_000)
                    .with_rebalance_timeout_ms(10_000)
                    .with_protocol_type(text("consumer"))
                    .with_protocols(vec![protocol]);
                let first = self.ask(version, &join);
                // From version 4 on a member is told its id first.
                if let Some(first) = first.filter(|first| first.error_code != 0) {
                    self.ask(version, &join.with_member_id(first.member_id));
                }
            }
            ApiKey::SyncGroup => {
                self.ask(version, &SyncGroupRequest::default().with_group_id(group()));
            }
            ApiKey::Heartbeat => {
                self.ask(version, &HeartbeatRequest::default().with_group_id(group()));
            }
            _ => {
                let leave = LeaveGroupRequest::default().with_group_id(group());
                let leave = if version >= 3 {
                    leave.with_members(vec![MemberIdentity::default().with_member_id(text("m"))])
                } else {
                    leave.with_member_id(text("m"))
                };
                self.ask(version, &leave);
            }
        }
    }

    fn of_changes(&mut self, key: ApiKey, version: i16) {
        match key {
            ApiKey::CreateTopics => {
                let name = StrBytes::from_string(format!("made-{version}-{}", self.node.port()));
                for _ in ["it is made", "it is there"] {
                    let made = CreatableTopic::default()
                        .with_name(TopicName(name.clone()))
                        .with_num_partitions(1)
                        .with_replication_factor(1);
                    let made = CreateTopicsRequest::default().with_topics(vec![made]);
                    self.ask(version, &made.with_timeout_ms(10_000));
                }
            }
            ApiKey::DeleteTopics => {
                let gone = DeleteTopicsRequest::default().with_timeout_ms(10_000);
                let gone = if version >= 6 {
                    let name = Some(topic(NONE));
                    gone.with_topics(vec![DeleteTopicState::default().with_name(name)])
                } else {
                    gone.with_topic_names(vec![topic(NONE)])
                };
                self.ask(version, &gone);
            }
            ApiKey::CreatePartitions => {
                let more = CreatePartitionsTopic::default().with_name(topic(NONE)).with_count(2);
                let more = CreatePartitionsRequest::default().with_topics(vec![more]);
                self.ask(version, &more.with_timeout_ms(10_000));
            }
            ApiKey::DeleteRecords => {
                let of = DeleteRecordsTopic::default()
                    .with_name(topic(TOPIC))
                    .with_partitions(vec![DeleteRecordsPartition::default()]);
                let delete = DeleteRecordsRequest::default().with_topics(vec![of]);
                self.ask(version, &delete.with_timeout_ms(10_000));
            }
            ApiKey::ElectLeaders => {
                for name in [TOPIC, NONE] {
                    let of = TopicPartitions::default().with_topic(topic(name));
                    let of = vec![of.with_partitions(vec![0])];
                    let elect = ElectLeadersRequest::default().with_timeout_ms(10_000);
                    self.ask(version, &elect.with_topic_partitions(Some(of)));
                }
            }
            ApiKey::AlterPartitionReassignments => {
                let partition = ReassignablePartition::default().with_replicas(None);
                let of = ReassignableTopic::default()
                    .with_name(topic(TOPIC))
                    .with_partitions(vec![partition]);
                let request = AlterPartitionReassignmentsRequest::default().with_timeout_ms(10_000);
                self.ask(version, &request.with_topics(vec![of]));
            }
            _ => {
                let change = AlterableConfig::default()
                    .with_name(text("retention.ms"))
                    .with_value(Some(text("777000000")));
                let of = AlterConfigsResource::default()
                    .with_resource_type(2)
                    .with_resource_name(text(TOPIC))
                    .with_configs(vec![change]);
                let request = IncrementalAlterConfigsRequest::default();
                self.ask(version, &request.with_resources(vec![of]));
            }
        }
    }

    fn of_looks(&mut self, key: ApiKey, version: i16) {
        match key {
            ApiKey::ApiVersions => {
                let request = ApiVersionsRequest::default()
                    .with_client_software_name(text("a"))
                    .with_client_software_version(text("1"));
                let old = ApiVersionsRequest::default();
                self.ask(version, if version >= 3 { &request } else { &old });
            }
            ApiKey::Metadata => {
                // All topics: in version 0 an empty list meant that.
                let all = MetadataRequest::default();
                let all = if version == 0 { all } else { all.with_topics(None) };
                self.ask(version, &all);
                let named = [TOPIC, NONE]
                    .map(|name| MetadataRequestTopic::default().with_name(Some(topic(name))));
                let named = MetadataRequest::default().with_topics(Some(named.to_vec()));
                self.ask(version, &named);
            }
            ApiKey::DescribeConfigs => {
                let of = [(2, text(TOPIC)), (4, text("1"))].map(|(kind, name)| {
                    DescribeConfigsResource::default()
                        .with_resource_type(kind)
                        .with_resource_name(name)
                        .with_configuration_keys(None)
                });
                let request = DescribeConfigsRequest::default().with_resources(of.to_vec());
                self.ask(version, &request);
            }
            ApiKey::DescribeLogDirs => {
                self.ask(version, &DescribeLogDirsRequest::default().with_topics(None));
            }
            ApiKey::ListPartitionReassignments => {
                let request = ListPartitionReassignmentsRequest::default().with_topics(None);
                self.ask(version, &request.with_timeout_ms(10_000));
            }
            ApiKey::DescribeQuorum => {
                let of = quorum::TopicData::default()
                    .with_topic_name(topic("__cluster_metadata"))
                    .with_partitions(vec![quorum::PartitionData::default()]);
                self.ask(version, &DescribeQuorumRequest::default().with_topics(vec![of]));
            }
            ApiKey::DescribeCluster => {
                self.ask(version, &DescribeClusterRequest::default());
            }
            ApiKey::DescribeProducers => {
                let of = ProducersOf::default().with_name(topic(TOPIC));
                let of = vec![of.with_partition_indexes(vec![0])];
                self.ask(version, &DescribeProducersRequest::default().with_topics(of));
            }
            ApiKey::DescribeTopicPartitions => {
                let of = vec![TopicRequest::default().with_name(topic(TOPIC))];
                let request = DescribeTopicPartitionsRequest::default().with_topics(of);
                self.ask(version, &request.with_response_partition_limit(10));
            }
            _ => self.missed.push(format!("{key:?} is not known to this test")),
        }
    }
}

/// One record.
fn batch() -> Bytes {
    let record = Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: -1,
        producer_id: -1,
        producer_epoch: -1,
        timestamp_type: TimestampType::Creation,
        offset: 0,
        sequence: -1,
        timestamp: 0,
        key: None,
        value: Some(Bytes::from_static(b"value")),
        headers: kafka_protocol::indexmap::IndexMap::default(),
    };
    let options = RecordEncodeOptions { version: 2, compression: Compression::None };
    let mut bytes = BytesMut::new();
    RecordBatchEncoder::encode(&mut bytes, [&record], &options).expect("a batch");
    bytes.freeze()
}

fn produce(name: &'static str, records: Bytes) -> ProduceRequest {
    let partition = PartitionProduceData::default().with_records(Some(records));
    let of =
        TopicProduceData::default().with_name(topic(name)).with_partition_data(vec![partition]);
    ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(vec![of])
}

/// The offsets of the topic, or (`whole`) all of the group's.
fn offset_fetch(version: i16, whole: bool) -> OffsetFetchRequest {
    if version >= 8 {
        let of = OffsetFetchRequestTopics::default()
            .with_name(topic(TOPIC))
            .with_partition_indexes(vec![0]);
        let of = OffsetFetchRequestGroup::default()
            .with_group_id(group())
            .with_topics((!whole).then(|| vec![of]));
        return OffsetFetchRequest::default().with_groups(vec![of]);
    }
    let of =
        OffsetFetchRequestTopic::default().with_name(topic(TOPIC)).with_partition_indexes(vec![0]);
    OffsetFetchRequest::default().with_group_id(group()).with_topics((!whole).then(|| vec![of]))
}
