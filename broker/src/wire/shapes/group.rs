//! Requests of consumer groups.

use crate::wire::field::{
    Request, api, array, boolean, bytes, int8, int32, int32s, int64, string, strings,
};

pub(super) static OFFSET_COMMIT: Request =
    api(8, "OffsetCommit").versions(2, 9).flexible_since(8).fields(&[
        string("group_id"),
        int32("generation_id_or_member_epoch"),
        string("member_id"),
        string("group_instance_id").since(7).nullable(),
        int64("retention_time_ms").until(4),
        array("topics").of(&[
            string("name"),
            array("partitions").of(&[
                int32("partition_index"),
                int64("committed_offset"),
                int32("committed_leader_epoch").since(6),
                string("committed_metadata").nullable(),
            ]),
        ]),
    ]);

pub(super) static OFFSET_FETCH: Request =
    api(9, "OffsetFetch").versions(1, 9).flexible_since(6).fields(&[
        string("group_id").until(7),
        array("topics")
            .until(7)
            .nullable_since(2)
            .of(&[string("name"), int32s("partition_indexes")]),
        array("groups").since(8).of(&[
            string("group_id"),
            string("member_id").since(9).nullable(),
            int32("member_epoch").since(9),
            array("topics").nullable().of(&[string("name"), int32s("partition_indexes")]),
        ]),
        boolean("require_stable").since(7),
    ]);

pub(super) static FIND_COORDINATOR: Request =
    api(10, "FindCoordinator").versions(0, 6).flexible_since(3).fields(&[
        string("key").until(3),
        int8("key_type").since(1),
        strings("coordinator_keys").since(4),
    ]);

pub(super) static JOIN_GROUP: Request =
    api(11, "JoinGroup").versions(0, 9).flexible_since(6).fields(&[
        string("group_id"),
        int32("session_timeout_ms"),
        int32("rebalance_timeout_ms").since(1),
        string("member_id"),
        string("group_instance_id").since(5).nullable(),
        string("protocol_type"),
        array("protocols").of(&[string("name"), bytes("metadata")]),
        string("reason").since(8).nullable(),
    ]);

pub(super) static HEARTBEAT: Request =
    api(12, "Heartbeat").versions(0, 4).flexible_since(4).fields(&[
        string("group_id"),
        int32("generation_id"),
        string("member_id"),
        string("group_instance_id").since(3).nullable(),
    ]);

pub(super) static LEAVE_GROUP: Request =
    api(13, "LeaveGroup").versions(0, 5).flexible_since(4).fields(&[
        string("group_id"),
        string("member_id").until(2),
        array("members").since(3).of(&[
            string("member_id"),
            string("group_instance_id").nullable(),
            string("reason").since(5).nullable(),
        ]),
    ]);

pub(super) static SYNC_GROUP: Request =
    api(14, "SyncGroup").versions(0, 5).flexible_since(4).fields(&[
        string("group_id"),
        int32("generation_id"),
        string("member_id"),
        string("group_instance_id").since(3).nullable(),
        string("protocol_type").since(5).nullable(),
        string("protocol_name").since(5).nullable(),
        array("assignments").of(&[string("member_id"), bytes("assignment")]),
    ]);

pub(super) static DESCRIBE_GROUPS: Request = api(15, "DescribeGroups")
    .versions(0, 6)
    .flexible_since(5)
    .fields(&[strings("groups"), boolean("include_authorized_operations").since(3)]);

pub(super) static LIST_GROUPS: Request = api(16, "ListGroups")
    .versions(0, 5)
    .flexible_since(3)
    .fields(&[strings("states_filter").since(4), strings("types_filter").since(5)]);

pub(super) static DELETE_GROUPS: Request =
    api(42, "DeleteGroups").versions(0, 2).flexible_since(2).fields(&[strings("groups_names")]);

pub(super) static OFFSET_DELETE: Request = api(47, "OffsetDelete").versions(0, 0).fields(&[
    string("group_id"),
    array("topics").of(&[string("name"), array("partitions").of(&[int32("partition_index")])]),
]);
