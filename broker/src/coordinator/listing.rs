//! Groups are described, listed and deleted.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    GroupId, ListGroupsRequest, ListGroupsResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::group::{Group, GroupState};
use super::shard::Change;
use super::{Caller, Coordinator, text};

impl Coordinator {
    /// DescribeGroups.
    pub async fn describe_groups(
        &self,
        request: DescribeGroupsRequest,
        _caller: &Caller,
    ) -> DescribeGroupsResponse {
        let groups = request.groups.iter().map(|name| {
            let answer = DescribedGroup::default()
                .with_group_id(name.clone())
                .with_authorized_operations(i32::MIN);
            let found = self.with_shard(name, |_, shard| {
                Ok(shard.groups.get(name.as_str()).map(|group| described(answer.clone(), group)))
            });
            match found {
                Ok(Some(group)) => group,
                Ok(None) => answer.with_group_state(text("Dead")),
                Err(error) => answer.with_error_code(error.code()),
            }
        });
        DescribeGroupsResponse::default().with_groups(groups.collect())
    }

    /// ListGroups: those that this node coordinates.
    pub async fn list_groups(
        &self,
        request: ListGroupsRequest,
        _caller: &Caller,
    ) -> ListGroupsResponse {
        let shards = self.lock();
        if shards.values().any(|shard| !shard.loaded) {
            let error = ResponseError::CoordinatorLoadInProgress.code();
            return ListGroupsResponse::default().with_error_code(error);
        }
        let wanted = |filter: &[StrBytes], value: &str| {
            filter.is_empty() || filter.iter().any(|text| text.eq_ignore_ascii_case(value))
        };
        let groups = shards
            .values()
            .flat_map(|shard| &shard.groups)
            .filter(|(_, group)| wanted(&request.states_filter, group.state.name()))
            .filter(|_| wanted(&request.types_filter, "classic"))
            .map(|(name, group)| {
                ListedGroup::default()
                    .with_group_id(GroupId(text(name.clone())))
                    .with_protocol_type(text(group.protocol_type.clone()))
                    .with_group_state(text(group.state.name()))
                    .with_group_type(text("classic"))
            });
        ListGroupsResponse::default().with_groups(groups.collect())
    }

    /// DeleteGroups: those without members, with their offsets.
    pub async fn delete_groups(
        &self,
        request: DeleteGroupsRequest,
        _caller: &Caller,
    ) -> DeleteGroupsResponse {
        let mut results = Vec::with_capacity(request.groups_names.len());
        for name in &request.groups_names {
            let error = self.delete_group(name).await.err();
            results.push(
                DeletableGroupResult::default()
                    .with_group_id(name.clone())
                    .with_error_code(error.map_or(0, |error| error.code())),
            );
        }
        DeleteGroupsResponse::default().with_results(results)
    }

    async fn delete_group(&self, name: &str) -> Result<(), ResponseError> {
        let written = self.with_shard(name, |partition, shard| {
            let group = shard.groups.get(name).ok_or(ResponseError::GroupIdNotFound)?;
            if group.state != GroupState::Empty {
                return Err(ResponseError::NonEmptyGroup);
            }
            let offset = |place| Change::Offset { group: name.to_owned(), place, committed: None };
            let mut changes: Vec<Change> = shard.places(name).into_iter().map(offset).collect();
            changes.push(Change::GroupGone(name.to_owned()));
            self.write_all(partition, shard, &changes)
        })?;
        match written {
            Some(written) => self.kept(written).await,
            None => Ok(()),
        }
    }
}

fn described(answer: DescribedGroup, group: &Group) -> DescribedGroup {
    let protocol = group.protocol.as_deref();
    let members = group.members.values().map(|member| {
        DescribedGroupMember::default()
            .with_member_id(text(member.id.clone()))
            .with_group_instance_id(member.instance_id.clone().map(text))
            .with_client_id(text(member.client_id.clone()))
            .with_client_host(text(member.client_host.clone()))
            .with_member_metadata(member.subscription(protocol))
            .with_member_assignment(member.assignment.clone())
    });
    answer
        .with_group_state(text(group.state.name()))
        .with_protocol_type(text(group.protocol_type.clone()))
        .with_protocol_data(text(protocol.unwrap_or_default()))
        .with_members(members.collect())
}
