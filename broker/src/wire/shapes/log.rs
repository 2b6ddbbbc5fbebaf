//! Requests that read and write partitions' logs.

use crate::wire::field::{
    Request, api, array, bytes, int8, int16, int32, int32s, int64, string, structure, uuid,
};

pub(super) static PRODUCE: Request = api(0, "Produce").versions(3, 13).flexible_since(9).fields(&[
    string("transactional_id").nullable(),
    int16("acks"),
    int32("timeout_ms"),
    array("topic_data").of(&[
        string("name").until(12),
        uuid("topic_id").since(13),
        array("partition_data").of(&[int32("index"), bytes("records").nullable()]),
    ]),
]);

pub(super) static FETCH: Request = api(1, "Fetch").versions(4, 18).flexible_since(12).fields(&[
    string("cluster_id").since(12).nullable().tagged(0),
    int32("replica_id").until(14),
    structure("replica_state")
        .since(15)
        .tagged(1)
        .of(&[int32("replica_id"), int64("replica_epoch")]),
    int32("max_wait_ms"),
    int32("min_bytes"),
    int32("max_bytes"),
    int8("isolation_level"),
    int32("session_id").since(7),
    int32("session_epoch").since(7),
    array("topics").of(&[
        string("topic").until(12),
        uuid("topic_id").since(13),
        array("partitions").of(&[
            int32("partition"),
            int32("current_leader_epoch").since(9),
            int64("fetch_offset"),
            int32("last_fetched_epoch").since(12),
            int64("log_start_offset").since(5),
            int32("partition_max_bytes"),
            uuid("replica_directory_id").since(17).tagged(0),
            int64("high_watermark").since(18).tagged(1),
        ]),
    ]),
    array("forgotten_topics_data").since(7).of(&[
        string("topic").until(12),
        uuid("topic_id").since(13),
        int32s("partitions"),
    ]),
    string("rack_id").since(11),
]);

pub(super) static LIST_OFFSETS: Request =
    api(2, "ListOffsets").versions(1, 10).flexible_since(6).fields(&[
        int32("replica_id"),
        int8("isolation_level").since(2),
        array("topics").of(&[
            string("name"),
            array("partitions").of(&[
                int32("partition_index"),
                int32("current_leader_epoch").since(4),
                int64("timestamp"),
            ]),
        ]),
        int32("timeout_ms").since(10),
    ]);

pub(super) static DELETE_RECORDS: Request =
    api(21, "DeleteRecords").versions(0, 2).flexible_since(2).fields(&[
        array("topics").of(&[
            string("name"),
            array("partitions").of(&[int32("partition_index"), int64("offset")]),
        ]),
        int32("timeout_ms"),
    ]);

pub(super) static INIT_PRODUCER_ID: Request =
    api(22, "InitProducerId").versions(0, 5).flexible_since(2).fields(&[
        string("transactional_id").nullable(),
        int32("transaction_timeout_ms"),
        int64("producer_id").since(3),
        int16("producer_epoch").since(3),
    ]);

pub(super) static OFFSET_FOR_LEADER_EPOCH: Request =
    api(23, "OffsetForLeaderEpoch").versions(2, 4).flexible_since(4).fields(&[
        int32("replica_id").since(3),
        array("topics").of(&[
            string("topic"),
            array("partitions").of(&[
                int32("partition"),
                int32("current_leader_epoch"),
                int32("leader_epoch"),
            ]),
        ]),
    ]);

pub(super) static DESCRIBE_PRODUCERS: Request = api(61, "DescribeProducers")
    .versions(0, 0)
    .flexible_since(0)
    .fields(&[array("topics").of(&[string("name"), int32s("partition_indexes")])]);
