//! Requests about the cluster and between its nodes.

use crate::wire::field::{
    Request, api, array, boolean, int8, int16, int32, int32s, int64, string, uint16, uuid, uuids,
};

pub(super) static API_VERSIONS: Request = api(18, "ApiVersions")
    .versions(0, 4)
    .flexible_since(3)
    .fields(&[string("client_software_name").since(3), string("client_software_version").since(3)]);

pub(super) static DESCRIBE_QUORUM: Request =
    api(55, "DescribeQuorum").versions(0, 2).flexible_since(0).fields(&[array("topics")
        .of(&[string("topic_name"), array("partitions").of(&[int32("partition_index")])])]);

pub(super) static ALTER_PARTITION: Request =
    api(56, "AlterPartition").versions(2, 3).flexible_since(2).fields(&[
        int32("broker_id"),
        int64("broker_epoch"),
        array("topics").of(&[
            uuid("topic_id"),
            array("partitions").of(&[
                int32("partition_index"),
                int32("leader_epoch"),
                int32s("new_isr").until(2),
                array("new_isr_with_epochs")
                    .since(3)
                    .of(&[int32("broker_id"), int64("broker_epoch")]),
                int8("leader_recovery_state"),
                int32("partition_epoch"),
            ]),
        ]),
    ]);

pub(super) static UPDATE_FEATURES: Request =
    api(57, "UpdateFeatures").versions(0, 2).flexible_since(0).fields(&[
        int32("timeout_ms"),
        array("feature_updates").of(&[
            string("feature"),
            int16("max_version_level"),
            boolean("allow_downgrade").until(0),
            int8("upgrade_type").since(1),
        ]),
        boolean("validate_only").since(1),
    ]);

pub(super) static DESCRIBE_CLUSTER: Request =
    api(60, "DescribeCluster").versions(0, 2).flexible_since(0).fields(&[
        boolean("include_cluster_authorized_operations"),
        int8("endpoint_type").since(1),
        boolean("include_fenced_brokers").since(2),
    ]);

pub(super) static BROKER_REGISTRATION: Request =
    api(62, "BrokerRegistration").versions(0, 4).flexible_since(0).fields(&[
        int32("broker_id"),
        string("cluster_id"),
        uuid("incarnation_id"),
        array("listeners").of(&[
            string("name"),
            string("host"),
            uint16("port"),
            int16("security_protocol"),
        ]),
        array("features").of(&[
            string("name"),
            int16("min_supported_version"),
            int16("max_supported_version"),
        ]),
        string("rack").nullable(),
        boolean("is_migrating_zk_broker").since(1),
        uuids("log_dirs").since(2),
        int64("previous_broker_epoch").since(3),
    ]);

pub(super) static BROKER_HEARTBEAT: Request =
    api(63, "BrokerHeartbeat").versions(0, 1).flexible_since(0).fields(&[
        int32("broker_id"),
        int64("broker_epoch"),
        int64("current_metadata_offset"),
        boolean("want_fence"),
        boolean("want_shut_down"),
        uuids("offline_log_dirs").since(1).tagged(0),
    ]);

pub(super) static UNREGISTER_BROKER: Request =
    api(64, "UnregisterBroker").versions(0, 0).flexible_since(0).fields(&[int32("broker_id")]);

pub(super) static ALLOCATE_PRODUCER_IDS: Request = api(67, "AllocateProducerIds")
    .versions(0, 0)
    .flexible_since(0)
    .fields(&[int32("broker_id"), int64("broker_epoch")]);
