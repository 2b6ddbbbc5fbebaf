//! Groups and their offsets: handed to the coordinator.

use std::sync::Arc;

use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, ListGroupsRequest, ListGroupsResponse, OffsetCommitRequest,
    OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse, OffsetFetchRequest,
    OffsetFetchResponse, SyncGroupRequest, SyncGroupResponse,
};

use crate::coordinator::Caller;
use crate::server::dispatch::Arrived;
use crate::server::services::Services;

fn caller(arrived: &Arrived) -> Caller {
    Caller {
        api_version: arrived.header.api_version,
        client_id: arrived.header.client_id.as_ref().map_or_else(String::new, ToString::to_string),
        client_host: format!("/{}", arrived.origin.peer.ip()),
    }
}

/// Each API of groups: its handler here, and the coordinator's.
macro_rules! handed_on {
    ($($(#[$doc:meta])* $name:ident($request:ty) -> $response:ty = $method:ident;)*) => {$(
        $(#[$doc])*
        pub(in crate::server) async fn $name(
            request: $request,
            arrived: &Arrived,
            services: &Arc<Services>,
        ) -> $response {
            services.coordinator.$method(request, &caller(arrived)).await
        }
    )*};
}

handed_on! {
    /// JoinGroup.
    join(JoinGroupRequest) -> JoinGroupResponse = join_group;
    /// SyncGroup.
    sync(SyncGroupRequest) -> SyncGroupResponse = sync_group;
    /// Heartbeat.
    heartbeat(HeartbeatRequest) -> HeartbeatResponse = heartbeat;
    /// LeaveGroup.
    leave(LeaveGroupRequest) -> LeaveGroupResponse = leave_group;
    /// OffsetCommit.
    offset_commit(OffsetCommitRequest) -> OffsetCommitResponse = offset_commit;
    /// OffsetFetch.
    offset_fetch(OffsetFetchRequest) -> OffsetFetchResponse = offset_fetch;
    /// OffsetDelete.
    offset_delete(OffsetDeleteRequest) -> OffsetDeleteResponse = offset_delete;
    /// DescribeGroups.
    describe(DescribeGroupsRequest) -> DescribeGroupsResponse = describe_groups;
    /// ListGroups.
    list(ListGroupsRequest) -> ListGroupsResponse = list_groups;
    /// DeleteGroups.
    delete(DeleteGroupsRequest) -> DeleteGroupsResponse = delete_groups;
}
