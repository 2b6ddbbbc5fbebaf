//! What decoded elements take in memory: the table says at least as much as the library takes.

use std::mem::size_of;

use bytes::Bytes;
use kafka_protocol::messages;
use kafka_protocol::protocol::StrBytes;

use crate::wire::field::{Field, Value};
use crate::wire::shapes::REQUESTS;

/// An array of structs: the API, the way to it, what the library's struct takes in bytes.
type Element = (&'static str, &'static str, usize);

macro_rules! elements {
    ($($api:ident $module:ident: $($path:literal $element:ident),+;)*) => {
        const ELEMENTS: &[Element] = &[
            $($((stringify!($api), $path, size_of::<messages::$module::$element>()),)+)*
        ];
    };
}

elements! {
    Produce produce_request:
        "topic_data" TopicProduceData,
        "topic_data.partition_data" PartitionProduceData;
    Fetch fetch_request:
        "topics" FetchTopic,
        "topics.partitions" FetchPartition,
        "forgotten_topics_data" ForgottenTopic;
    ListOffsets list_offsets_request:
        "topics" ListOffsetsTopic,
        "topics.partitions" ListOffsetsPartition;
    DeleteRecords delete_records_request:
        "topics" DeleteRecordsTopic,
        "topics.partitions" DeleteRecordsPartition;
    OffsetForLeaderEpoch offset_for_leader_epoch_request:
        "topics" OffsetForLeaderTopic,
        "topics.partitions" OffsetForLeaderPartition;
    DescribeProducers describe_producers_request: "topics" TopicRequest;
    OffsetCommit offset_commit_request:
        "topics" OffsetCommitRequestTopic,
        "topics.partitions" OffsetCommitRequestPartition;
    OffsetFetch offset_fetch_request:
        "topics" OffsetFetchRequestTopic,
        "groups" OffsetFetchRequestGroup,
        "groups.topics" OffsetFetchRequestTopics;
    JoinGroup join_group_request: "protocols" JoinGroupRequestProtocol;
    LeaveGroup leave_group_request: "members" MemberIdentity;
    SyncGroup sync_group_request: "assignments" SyncGroupRequestAssignment;
    OffsetDelete offset_delete_request:
        "topics" OffsetDeleteRequestTopic,
        "topics.partitions" OffsetDeleteRequestPartition;
    Metadata metadata_request: "topics" MetadataRequestTopic;
    CreateTopics create_topics_request:
        "topics" CreatableTopic,
        "topics.assignments" CreatableReplicaAssignment,
        "topics.configs" CreatableTopicConfig;
    DeleteTopics delete_topics_request: "topics" DeleteTopicState;
    DescribeConfigs describe_configs_request: "resources" DescribeConfigsResource;
    AlterConfigs alter_configs_request:
        "resources" AlterConfigsResource,
        "resources.configs" AlterableConfig;
    DescribeLogDirs describe_log_dirs_request: "topics" DescribableLogDirTopic;
    CreatePartitions create_partitions_request:
        "topics" CreatePartitionsTopic,
        "topics.assignments" CreatePartitionsAssignment;
    ElectLeaders elect_leaders_request: "topic_partitions" TopicPartitions;
    IncrementalAlterConfigs incremental_alter_configs_request:
        "resources" AlterConfigsResource,
        "resources.configs" AlterableConfig;
    AlterPartitionReassignments alter_partition_reassignments_request:
        "topics" ReassignableTopic,
        "topics.partitions" ReassignablePartition;
    ListPartitionReassignments list_partition_reassignments_request:
        "topics" ListPartitionReassignmentsTopics;
    DescribeTopicPartitions describe_topic_partitions_request: "topics" TopicRequest;
    DescribeQuorum describe_quorum_request: "topics" TopicData, "topics.partitions" PartitionData;
    AlterPartition alter_partition_request:
        "topics" TopicData,
        "topics.partitions" PartitionData,
        "topics.partitions.new_isr_with_epochs" BrokerState;
    UpdateFeatures update_features_request: "feature_updates" FeatureUpdateKey;
    BrokerRegistration broker_registration_request: "listeners" Listener, "features" Feature;
}

/// What an element of that array takes in memory, by the table.
fn decoded_bytes(api: &str, path: &str) -> usize {
    let request = REQUESTS.iter().find(|request| request.name == api).unwrap();
    let mut fields = request.fields;
    let mut value = None;
    for name in path.split('.') {
        let field = fields.iter().find(|field| field.name == name).unwrap();
        if let Value::Struct(inner) = field.value {
            fields = inner;
        }
        value = Some(field.value);
    }
    value.unwrap().decoded_bytes()
}

fn arrays_of_structs(fields: &[Field]) -> usize {
    let inside = |field: &Field| match field.value {
        Value::Struct(inner) => usize::from(field.is_array) + arrays_of_structs(inner),
        _ => 0,
    };
    fields.iter().map(inside).sum()
}

#[test]
fn no_element_takes_more_memory_than_the_table_says() {
    for (api, path, bytes) in ELEMENTS {
        let said = decoded_bytes(api, path);
        assert!(*bytes <= said, "{api}: {path} takes {bytes} bytes, not {said}");
    }
    assert_eq!(size_of::<StrBytes>(), Value::String.decoded_bytes());
    assert_eq!(size_of::<Option<StrBytes>>(), Value::String.decoded_bytes());
    assert_eq!(size_of::<Option<Bytes>>(), Value::Bytes.decoded_bytes());
}

#[test]
fn no_array_of_structs_is_forgotten() {
    let in_table: usize = REQUESTS.iter().map(|request| arrays_of_structs(request.fields)).sum();
    assert_eq!(ELEMENTS.len(), in_table);
}
