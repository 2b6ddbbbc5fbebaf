//! Joining, syncing, heartbeats, leaving, and the clock that ends sessions and rebalances.

use std::sync::Weak;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::group::{Group, GroupState, Joined, NewMember};
use super::records::group_value;
use super::shard::{Change, Shard};
use super::{Caller, Coordinator, Written, text};
use crate::replica::clock;

/// From this version on an id is given first, and used in a second join (KIP-394).
const FIRST_WITH_GIVEN_IDS: i16 = 4;
/// The longest name of a member or an instance.
const LONGEST_NAME: usize = 1024;

fn optional(text: Option<&StrBytes>) -> Option<String> {
    text.map(ToString::to_string)
}

/// What a join comes to at once.
enum Join {
    /// It waits for the others.
    Waits(String, oneshot::Receiver<Result<Joined, ResponseError>>),
    /// Nothing has changed.
    Is(String, Joined),
    /// An id, to be used in a second join.
    IdGiven(String),
}

/// What a sync comes to at once.
enum Assignment {
    Is(Bytes),
    Waits(oneshot::Receiver<Result<Bytes, ResponseError>>),
    /// The leader says who gets what; it has to be kept first.
    Leads {
        written: Written,
        waits: oneshot::Receiver<Result<Bytes, ResponseError>>,
    },
}

impl Coordinator {
    /// JoinGroup.
    pub async fn join_group(
        &self,
        request: JoinGroupRequest,
        caller: &Caller,
    ) -> JoinGroupResponse {
        let refused = |error: ResponseError, member: String| {
            JoinGroupResponse::default()
                .with_error_code(error.code())
                .with_generation_id(-1)
                .with_protocol_name(Some(StrBytes::default()))
                .with_member_id(text(member))
        };
        let asked = request.member_id.to_string();
        let begun =
            self.with_shard(&request.group_id, |_, shard| self.begin_join(shard, &request, caller));
        self.changed.notify_one();
        let (member, joined) = match begun {
            Err(error) => return refused(error, asked),
            Ok(Join::IdGiven(id)) => return refused(ResponseError::MemberIdRequired, id),
            Ok(Join::Is(member, joined)) => (member, Ok(joined)),
            Ok(Join::Waits(member, answer)) => {
                (member, answer.await.unwrap_or(Err(ResponseError::NotCoordinator)))
            }
        };
        match joined {
            Err(error) => refused(error, member),
            Ok(joined) => {
                let members = joined.members.into_iter().map(|(id, instance, metadata)| {
                    JoinGroupResponseMember::default()
                        .with_member_id(text(id))
                        .with_group_instance_id(instance.map(text))
                        .with_metadata(metadata)
                });
                JoinGroupResponse::default()
                    .with_generation_id(joined.generation)
                    .with_protocol_type(Some(request.protocol_type))
                    .with_protocol_name(Some(text(joined.protocol)))
                    .with_leader(text(joined.leader))
                    .with_member_id(text(member))
                    .with_members(members.collect())
            }
        }
    }

    fn begin_join(
        &self,
        shard: &mut Shard,
        request: &JoinGroupRequest,
        caller: &Caller,
    ) -> Result<Join, ResponseError> {
        let now = Instant::now();
        let millis = |ms: i32| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        let session = millis(request.session_timeout_ms);
        if session < self.settings.min_session || session > self.settings.max_session {
            return Err(ResponseError::InvalidSessionTimeout);
        }
        let asked = request.member_id.to_string();
        let instance = optional(request.group_instance_id.as_ref());
        if asked.len() > LONGEST_NAME || instance.as_ref().is_some_and(|i| i.len() > LONGEST_NAME) {
            return Err(ResponseError::InvalidRequest);
        }
        let name = request.group_id.to_string();
        if !asked.is_empty() && !shard.groups.contains_key(&name) {
            return Err(ResponseError::UnknownMemberId);
        }
        let group = shard.groups.entry(name).or_default();
        let protocols: Vec<(String, Bytes)> = request
            .protocols
            .iter()
            .map(|protocol| (protocol.name.to_string(), protocol.metadata.clone()))
            .collect();
        if !group.fits(&request.protocol_type, &protocols) {
            return Err(ResponseError::InconsistentGroupProtocol);
        }
        let id = match self.identify(group, &asked, instance.as_deref(), caller, now, session)? {
            Identity::Given(id) => return Ok(Join::IdGiven(id)),
            Identity::Member(id) => id,
        };
        if let Some(joined) = unchanged(group, &id, &protocols) {
            if let Some(member) = group.members.get_mut(&id) {
                member.expires = now + member.session_timeout;
            }
            return Ok(Join::Is(id, joined));
        }
        let new = NewMember {
            id: id.clone(),
            instance_id: instance,
            client_id: caller.client_id.clone(),
            client_host: caller.client_host.clone(),
            session_timeout: session,
            rebalance_timeout: match request.rebalance_timeout_ms {
                ms if ms > 0 => millis(ms),
                _ => session,
            },
            protocols,
        };
        let (answer, waits) = oneshot::channel();
        let delay = self.settings.initial_rebalance_delay;
        group.join(new, &request.protocol_type, answer, delay, now);
        Ok(Join::Waits(id, waits))
    }

    /// Who joins: someone known, someone new, or someone to whom an id is given first.
    fn identify(
        &self,
        group: &mut Group,
        asked: &str,
        instance: Option<&str>,
        caller: &Caller,
        now: Instant,
        session: Duration,
    ) -> Result<Identity, ResponseError> {
        let full = group.members.len() + group.given_ids.len() >= self.settings.max_size;
        let known = instance.and_then(|instance| group.by_instance(instance)).map(|m| m.id.clone());
        if asked.is_empty() {
            let prefix = instance.unwrap_or(&caller.client_id);
            let id = format!("{prefix}-{}", Uuid::new_v4());
            if let Some(old) = known {
                // A static member is back under a new id, with what the old one had (KIP-345).
                replace_static(group, &old, &id);
                return Ok(Identity::Member(id));
            }
            if full {
                return Err(ResponseError::GroupMaxSizeReached);
            }
            if instance.is_none() && caller.api_version >= FIRST_WITH_GIVEN_IDS {
                group.given_ids.insert(id.clone(), now + session);
                return Ok(Identity::Given(id));
            }
            return Ok(Identity::Member(id));
        }
        if instance.is_some() && known.as_deref().is_some_and(|known| known != asked) {
            return Err(ResponseError::FencedInstanceId);
        }
        if group.members.contains_key(asked) || group.given_ids.contains_key(asked) {
            return Ok(Identity::Member(asked.to_owned()));
        }
        Err(ResponseError::UnknownMemberId)
    }

    /// SyncGroup.
    pub async fn sync_group(
        &self,
        request: SyncGroupRequest,
        _caller: &Caller,
    ) -> SyncGroupResponse {
        let begun = self.with_shard(&request.group_id, |partition, shard| {
            self.begin_sync(partition, shard, &request)
        });
        let assignment = match begun {
            Err(error) => Err(error),
            Ok(Assignment::Is(assignment)) => Ok(assignment),
            Ok(Assignment::Waits(waits)) => {
                waits.await.unwrap_or(Err(ResponseError::NotCoordinator))
            }
            Ok(Assignment::Leads { written, waits }) => {
                if let Err(error) = self.kept(written).await {
                    self.was_not_kept(&request, error);
                }
                self.changed.notify_one();
                waits.await.unwrap_or(Err(ResponseError::NotCoordinator))
            }
        };
        match assignment {
            Ok(assignment) => SyncGroupResponse::default()
                .with_protocol_type(request.protocol_type)
                .with_protocol_name(request.protocol_name)
                .with_assignment(assignment),
            Err(error) => SyncGroupResponse::default().with_error_code(error.code()),
        }
    }

    fn begin_sync(
        &self,
        partition: i32,
        shard: &mut Shard,
        request: &SyncGroupRequest,
    ) -> Result<Assignment, ResponseError> {
        let member = request.member_id.as_str();
        let group = known_member(
            shard,
            &request.group_id,
            member,
            request.group_instance_id.as_deref(),
            Some(request.generation_id),
        )?;
        match group.state {
            GroupState::Empty => return Err(ResponseError::UnknownMemberId),
            GroupState::PreparingRebalance => return Err(ResponseError::RebalanceInProgress),
            GroupState::Stable => {
                let assignment = group.members.get(member).map(|member| member.assignment.clone());
                return Ok(Assignment::Is(assignment.unwrap_or_default()));
            }
            GroupState::CompletingRebalance => {}
        }
        let (answer, waits) = oneshot::channel();
        group.wait_for_assignment(member, answer);
        if group.leader.as_deref() != Some(member) {
            return Ok(Assignment::Waits(waits));
        }
        let assignments = assignments(request);
        let stored = group_value(group, &assignments, clock::wall_ms());
        let change = Change::Assigned {
            group: request.group_id.to_string(),
            generation: group.generation,
            assignments,
        };
        let record = change.record(Some(&stored));
        match self.write(partition, shard, vec![record], vec![change]) {
            Ok(written) => Ok(Assignment::Leads { written, waits }),
            Err(error) => {
                not_assigned(shard, request, error);
                Ok(Assignment::Waits(waits))
            }
        }
    }

    fn was_not_kept(&self, request: &SyncGroupRequest, error: ResponseError) {
        // The shard may be another's by now; then everyone was dismissed.
        let _ = self.with_shard(&request.group_id, |_, shard| {
            not_assigned(shard, request, error);
            Ok(())
        });
    }

    /// Heartbeat.
    pub async fn heartbeat(
        &self,
        request: HeartbeatRequest,
        _caller: &Caller,
    ) -> HeartbeatResponse {
        let heard = self.with_shard(&request.group_id, |_, shard| {
            let group = known_member(
                shard,
                &request.group_id,
                &request.member_id,
                request.group_instance_id.as_deref(),
                Some(request.generation_id),
            )?;
            let state = group.state;
            if let Some(member) = group.members.get_mut(request.member_id.as_str()) {
                member.expires = Instant::now() + member.session_timeout;
            }
            match state {
                GroupState::PreparingRebalance => Err(ResponseError::RebalanceInProgress),
                GroupState::Empty => Err(ResponseError::UnknownMemberId),
                GroupState::CompletingRebalance | GroupState::Stable => Ok(()),
            }
        });
        HeartbeatResponse::default().with_error_code(heard.err().map_or(0, |error| error.code()))
    }

    /// LeaveGroup.
    pub async fn leave_group(
        &self,
        request: LeaveGroupRequest,
        caller: &Caller,
    ) -> LeaveGroupResponse {
        let one = caller.api_version < 3;
        let identities: Vec<(String, Option<String>)> = if one {
            vec![(request.member_id.to_string(), None)]
        } else {
            let of = |member: &kafka_protocol::messages::leave_group_request::MemberIdentity| {
                (member.member_id.to_string(), optional(member.group_instance_id.as_ref()))
            };
            request.members.iter().map(of).collect()
        };
        let left = self.with_shard(&request.group_id, |_, shard| {
            let group = shard
                .groups
                .get_mut(request.group_id.as_str())
                .ok_or(ResponseError::UnknownMemberId)?;
            let now = Instant::now();
            Ok(identities
                .iter()
                .map(|(id, instance)| leave(group, id, instance.as_deref(), now))
                .collect::<Vec<_>>())
        });
        self.changed.notify_one();
        let response = LeaveGroupResponse::default();
        match left {
            Err(error) => response.with_error_code(error.code()),
            Ok(codes) if one => response.with_error_code(codes.first().copied().unwrap_or(0)),
            Ok(codes) => {
                let members = identities.into_iter().zip(codes).map(|((id, instance), code)| {
                    MemberResponse::default()
                        .with_member_id(text(id))
                        .with_group_instance_id(instance.map(text))
                        .with_error_code(code)
                });
                response.with_members(members.collect())
            }
        }
    }
}

enum Identity {
    Member(String),
    Given(String),
}

fn replace_static(group: &mut Group, old: &str, id: &str) {
    let Some(mut member) = group.members.remove(old) else { return };
    id.clone_into(&mut member.id);
    if group.leader.as_deref() == Some(old) {
        group.leader = Some(id.to_owned());
    }
    group.members.insert(id.to_owned(), member);
}

/// What a member is told that joins again and changes nothing: no rebalance is needed.
fn unchanged(group: &Group, id: &str, protocols: &[(String, Bytes)]) -> Option<Joined> {
    let member = group.members.get(id)?;
    let same = member.protocols == protocols;
    let leads = group.leader.as_deref() == Some(id);
    match group.state {
        GroupState::CompletingRebalance if same => Some(group.joined(id)),
        // A leader that joins again wants a rebalance.
        GroupState::Stable if same && !leads => Some(group.joined(id)),
        _ => None,
    }
}

fn leave(group: &mut Group, id: &str, instance: Option<&str>, now: Instant) -> i16 {
    let member = match instance {
        Some(instance) => match group.by_instance(instance).map(|member| member.id.clone()) {
            Some(known) if id.is_empty() || id == known => known,
            Some(_) => return ResponseError::FencedInstanceId.code(),
            None => return ResponseError::UnknownMemberId.code(),
        },
        None => id.to_owned(),
    };
    if group.given_ids.remove(&member).is_some() {
        group.complete_join_if_ready(now);
        return 0;
    }
    if !group.members.contains_key(&member) {
        return ResponseError::UnknownMemberId.code();
    }
    group.remove(&member, now);
    0
}

/// The group of a member that says who and in which generation it is.
///
/// # Errors
/// What it is told if that is not so.
pub(super) fn known_member<'a>(
    shard: &'a mut Shard,
    group: &str,
    member: &str,
    instance: Option<&str>,
    generation: Option<i32>,
) -> Result<&'a mut Group, ResponseError> {
    let group = shard.groups.get_mut(group).ok_or(ResponseError::UnknownMemberId)?;
    if let Some(instance) = instance {
        match group.by_instance(instance) {
            None => return Err(ResponseError::UnknownMemberId),
            Some(known) if known.id != member => return Err(ResponseError::FencedInstanceId),
            Some(_) => {}
        }
    }
    if !group.members.contains_key(member) {
        return Err(ResponseError::UnknownMemberId);
    }
    if generation.is_some_and(|generation| generation != group.generation) {
        return Err(ResponseError::IllegalGeneration);
    }
    Ok(group)
}

fn assignments(request: &SyncGroupRequest) -> Vec<(String, Bytes)> {
    request
        .assignments
        .iter()
        .map(|given| (given.member_id.to_string(), given.assignment.clone()))
        .collect()
}

/// Everyone who waits in the request's generation is told that its leader's word does not hold.
fn not_assigned(shard: &mut Shard, request: &SyncGroupRequest, error: ResponseError) {
    if let Some(group) = shard.groups.get_mut(request.group_id.as_str())
        && group.state == GroupState::CompletingRebalance
        && group.generation == request.generation_id
    {
        group.not_assigned(error, Instant::now());
    }
}

/// Ends sessions and rebalances when their time has come; sleeps until then.
pub(super) async fn watch_deadlines(coordinator: Weak<Coordinator>) {
    loop {
        let Some(this) = coordinator.upgrade() else { return };
        let now = Instant::now();
        let mut next: Option<Instant> = None;
        for (partition, shard) in this.lock().iter_mut() {
            // What nobody waits for any more is made here; a shard that is elsewhere goes soon.
            let _ = this.settle(*partition, shard);
            for group in shard.groups.values_mut() {
                if group.next_deadline().is_some_and(|deadline| deadline <= now) {
                    group.tick(now);
                }
                next = [next, group.next_deadline()].into_iter().flatten().min();
            }
        }
        // The coordinator may go while this sleeps; it is looked for again at least so often.
        let until = next.unwrap_or(now + IDLE).clamp(now + SHORTEST, now + IDLE);
        tokio::select! {
            biased;
            () = this.changed.notified() => {}
            () = sleep_until(until) => {}
        }
        drop(this);
    }
}

const IDLE: Duration = Duration::from_secs(1);
/// Deadlines that are close to each other are met together.
const SHORTEST: Duration = Duration::from_millis(5);
