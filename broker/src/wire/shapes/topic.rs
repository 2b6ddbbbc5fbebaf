//! Requests about topics, partitions and their settings.

use crate::wire::field::{
    Request, api, array, boolean, int8, int8s, int16, int32, int32s, string, strings, structure,
    uuid,
};

pub(super) static METADATA: Request =
    api(3, "Metadata").versions(0, 13).flexible_since(9).fields(&[
        array("topics")
            .nullable_since(1)
            .of(&[uuid("topic_id").since(10), string("name").nullable_since(10)]),
        boolean("allow_auto_topic_creation").since(4),
        boolean("include_cluster_authorized_operations").since(8).until(10),
        boolean("include_topic_authorized_operations").since(8),
    ]);

pub(super) static CREATE_TOPICS: Request =
    api(19, "CreateTopics").versions(2, 7).flexible_since(5).fields(&[
        array("topics").of(&[
            string("name"),
            int32("num_partitions"),
            int16("replication_factor"),
            array("assignments").of(&[int32("partition_index"), int32s("broker_ids")]),
            array("configs").of(&[string("name"), string("value").nullable()]),
        ]),
        int32("timeout_ms"),
        boolean("validate_only"),
    ]);

pub(super) static DELETE_TOPICS: Request =
    api(20, "DeleteTopics").versions(1, 6).flexible_since(4).fields(&[
        array("topics").since(6).of(&[string("name").nullable(), uuid("topic_id")]),
        strings("topic_names").until(5),
        int32("timeout_ms"),
    ]);

pub(super) static DESCRIBE_CONFIGS: Request =
    api(32, "DescribeConfigs").versions(1, 4).flexible_since(4).fields(&[
        array("resources").of(&[
            int8("resource_type"),
            string("resource_name"),
            strings("configuration_keys").nullable(),
        ]),
        boolean("include_synonyms"),
        boolean("include_documentation").since(3),
    ]);

pub(super) static ALTER_CONFIGS: Request =
    api(33, "AlterConfigs").versions(0, 2).flexible_since(2).fields(&[
        array("resources").of(&[
            int8("resource_type"),
            string("resource_name"),
            array("configs").of(&[string("name"), string("value").nullable()]),
        ]),
        boolean("validate_only"),
    ]);

pub(super) static DESCRIBE_LOG_DIRS: Request = api(35, "DescribeLogDirs")
    .versions(1, 4)
    .flexible_since(2)
    .fields(&[array("topics").nullable().of(&[string("topic"), int32s("partitions")])]);

pub(super) static CREATE_PARTITIONS: Request =
    api(37, "CreatePartitions").versions(0, 3).flexible_since(2).fields(&[
        array("topics").of(&[
            string("name"),
            int32("count"),
            array("assignments").nullable().of(&[int32s("broker_ids")]),
        ]),
        int32("timeout_ms"),
        boolean("validate_only"),
    ]);

pub(super) static ELECT_LEADERS: Request =
    api(43, "ElectLeaders").versions(0, 2).flexible_since(2).fields(&[
        int8("election_type").since(1),
        array("topic_partitions").nullable().of(&[string("topic"), int32s("partitions")]),
        int32("timeout_ms"),
    ]);

pub(super) static INCREMENTAL_ALTER_CONFIGS: Request =
    api(44, "IncrementalAlterConfigs").versions(0, 1).flexible_since(1).fields(&[
        array("resources").of(&[
            int8("resource_type"),
            string("resource_name"),
            array("configs").of(&[
                string("name"),
                int8("config_operation"),
                string("value").nullable(),
            ]),
        ]),
        boolean("validate_only"),
    ]);

pub(super) static ALTER_PARTITION_REASSIGNMENTS: Request =
    api(45, "AlterPartitionReassignments").versions(0, 1).flexible_since(0).fields(&[
        int32("timeout_ms"),
        boolean("allow_replication_factor_change").since(1),
        array("topics").of(&[
            string("name"),
            array("partitions").of(&[int32("partition_index"), int32s("replicas").nullable()]),
        ]),
    ]);

pub(super) static LIST_PARTITION_REASSIGNMENTS: Request =
    api(46, "ListPartitionReassignments").versions(0, 0).flexible_since(0).fields(&[
        int32("timeout_ms"),
        array("topics").nullable().of(&[string("name"), int32s("partition_indexes")]),
    ]);

pub(super) static LIST_CONFIG_RESOURCES: Request = api(74, "ListConfigResources")
    .versions(0, 1)
    .flexible_since(0)
    .fields(&[int8s("resource_types").since(1)]);

pub(super) static DESCRIBE_TOPIC_PARTITIONS: Request =
    api(75, "DescribeTopicPartitions").versions(0, 0).flexible_since(0).fields(&[
        array("topics").of(&[string("name")]),
        int32("response_partition_limit"),
        structure("cursor").nullable().of(&[string("topic_name"), int32("partition_index")]),
    ]);
