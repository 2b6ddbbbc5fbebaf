//! A group: members, generations, rebalances. Time comes in as an argument; whoever waits for an
//! answer has a channel in here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What a group is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// Without members; it may have offsets.
    Empty,
    /// Waits for its members to join.
    PreparingRebalance,
    /// Waits for its leader to say who gets what.
    CompletingRebalance,
    /// Everyone knows what they have.
    Stable,
}

impl GroupState {
    /// As Kafka names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// What a join is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The generation.
    pub generation: i32,
    /// How its members share.
    pub protocol: String,
    /// Who says so.
    pub leader: String,
    /// Everyone with what they want; for the leader alone.
    pub members: Vec<(String, Option<String>, Bytes)>,
}

type Answer<T> = oneshot::Sender<Result<T, ResponseError>>;

/// A member.
#[derive(Debug)]
pub struct Member {
    /// Its id.
    pub id: String,
    /// What it calls itself over restarts (KIP-345).
    pub instance_id: Option<String>,
    /// What its client calls itself.
    pub client_id: String,
    /// From where.
    pub client_host: String,
    /// How long it may be silent.
    pub session_timeout: Duration,
    /// How long it may take to rejoin.
    pub rebalance_timeout: Duration,
    /// How it can share, and what it wants then; preferred first.
    pub protocols: Vec<(String, Bytes)>,
    /// What it got.
    pub assignment: Bytes,
    /// When it counts as gone, unless it is heard of.
    pub expires: Instant,
    joining: Option<Answer<Joined>>,
    syncing: Option<Answer<Bytes>>,
}

impl Member {
    /// Without an assignment; nobody waits for an answer.
    fn new(new: NewMember, now: Instant) -> Self {
        Self {
            id: new.id,
            instance_id: new.instance_id,
            client_id: new.client_id,
            client_host: new.client_host,
            session_timeout: new.session_timeout,
            rebalance_timeout: new.rebalance_timeout,
            protocols: new.protocols,
            assignment: Bytes::new(),
            expires: now + new.session_timeout,
            joining: None,
            syncing: None,
        }
    }

    /// What it wants, under a protocol.
    pub fn subscription(&self, protocol: Option<&str>) -> Bytes {
        self.protocols
            .iter()
            .find(|(name, _)| Some(name.as_str()) == protocol)
            .map(|(_, metadata)| metadata.clone())
            .unwrap_or_default()
    }

    /// A member that waits for an answer cannot send heartbeats.
    fn is_waiting(&self) -> bool {
        self.joining.is_some() || self.syncing.is_some()
    }
}

/// A member as it comes.
#[derive(Clone, Debug)]
pub struct NewMember {
    /// Its id.
    pub id: String,
    /// What it calls itself over restarts.
    pub instance_id: Option<String>,
    /// What its client calls itself.
    pub client_id: String,
    /// From where.
    pub client_host: String,
    /// How long it may be silent.
    pub session_timeout: Duration,
    /// How long it may take to rejoin.
    pub rebalance_timeout: Duration,
    /// How it can share.
    pub protocols: Vec<(String, Bytes)>,
}

/// A group.
#[derive(Debug)]
pub struct Group {
    /// `consumer`.
    pub protocol_type: String,
    /// What it is doing.
    pub state: GroupState,
    /// How often it was rebalanced.
    pub generation: i32,
    /// How its members share.
    pub protocol: Option<String>,
    /// Who says so.
    pub leader: Option<String>,
    /// Its members.
    pub members: BTreeMap<String, Member>,
    /// Since when it has no members; `None` for one that never had any.
    pub empty_since: Option<Instant>,
    /// Ids that were given and not used yet (KIP-394), until when.
    pub given_ids: BTreeMap<String, Instant>,
    /// When the rebalance goes on without those who have not joined.
    rebalance_ends: Option<Instant>,
    /// Nobody is waited for before that: others may be on their way.
    not_before: Option<Instant>,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            protocol_type: String::new(),
            state: GroupState::Empty,
            generation: 0,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            empty_since: None,
            given_ids: BTreeMap::new(),
            rebalance_ends: None,
            not_before: None,
        }
    }
}

impl Group {
    /// Can `protocols` be shared by everyone?
    pub fn fits(&self, protocol_type: &str, protocols: &[(String, Bytes)]) -> bool {
        if self.members.is_empty() {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        let common = self.common_protocols();
        self.protocol_type == protocol_type
            && protocols.iter().any(|(name, _)| common.contains(name.as_str()))
    }

    fn common_protocols(&self) -> BTreeSet<&str> {
        let mut members = self.members.values().map(|member| {
            member.protocols.iter().map(|(name, _)| name.as_str()).collect::<BTreeSet<_>>()
        });
        let first = members.next().unwrap_or_default();
        members.fold(first, |common, names| common.intersection(&names).copied().collect())
    }

    /// Nobody is in it, and nobody is about to be.
    pub fn is_abandoned(&self) -> bool {
        self.state == GroupState::Empty && self.members.is_empty() && self.given_ids.is_empty()
    }

    /// The member that calls itself so over restarts.
    pub fn by_instance(&self, instance: &str) -> Option<&Member> {
        self.members.values().find(|member| member.instance_id.as_deref() == Some(instance))
    }

    /// Lets a member in, or in again, and begins a rebalance; it is answered when that goes on.
    pub fn join(
        &mut self,
        new: NewMember,
        protocol_type: &str,
        answer: Answer<Joined>,
        initial_delay: Duration,
        now: Instant,
    ) {
        if self.members.is_empty() {
            protocol_type.clone_into(&mut self.protocol_type);
            self.not_before = (!initial_delay.is_zero()).then(|| now + initial_delay);
        }
        self.given_ids.remove(&new.id);
        let mut member = Member { joining: Some(answer), ..Member::new(new, now) };
        if let Some(known) = self.members.get(&member.id) {
            member.assignment = known.assignment.clone();
        }
        self.members.insert(member.id.clone(), member);
        self.prepare_rebalance(now);
        self.complete_join_if_ready(now);
    }

    /// Everyone is asked to join again.
    pub fn prepare_rebalance(&mut self, now: Instant) {
        if self.state == GroupState::PreparingRebalance {
            return;
        }
        self.state = GroupState::PreparingRebalance;
        for member in self.members.values_mut() {
            if let Some(syncing) = member.syncing.take() {
                // Whoever waited may be gone.
                let _ = syncing.send(Err(ResponseError::RebalanceInProgress));
                member.expires = now + member.session_timeout;
            }
        }
        self.rebalance_ends = Some(now + self.longest_rebalance());
    }

    fn longest_rebalance(&self) -> Duration {
        self.members.values().map(|member| member.rebalance_timeout).max().unwrap_or_default()
    }

    /// Goes on with the rebalance when everyone has joined, or the time is over.
    pub fn complete_join_if_ready(&mut self, now: Instant) {
        if self.state != GroupState::PreparingRebalance {
            return;
        }
        let over = self.rebalance_ends.is_some_and(|end| now >= end);
        let all = self.members.values().all(|member| member.joining.is_some());
        let early = self.not_before.is_some_and(|begin| now < begin);
        let complete = all && self.given_ids.is_empty() && !early;
        if !(complete || over) {
            return;
        }
        self.members.retain(|_, member| member.joining.is_some() || member.instance_id.is_some());
        self.not_before = None;
        self.rebalance_ends = None;
        self.generation += 1;
        if self.members.is_empty() {
            self.state = GroupState::Empty;
            self.empty_since = Some(now);
            self.protocol = None;
            self.leader = None;
            return;
        }
        self.protocol = self.vote();
        if !self.leader.as_ref().is_some_and(|leader| {
            self.members.get(leader).is_some_and(|member| member.joining.is_some())
        }) {
            self.leader = self
                .members
                .values()
                .find(|member| member.joining.is_some())
                .or_else(|| self.members.values().next())
                .map(|member| member.id.clone());
        }
        self.state = GroupState::CompletingRebalance;
        self.rebalance_ends = Some(now + self.longest_rebalance());
        self.answer_joins(now);
    }

    fn answer_joins(&mut self, now: Instant) {
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let joined = self.joined(&id);
            let Some(member) = self.members.get_mut(&id) else { continue };
            member.expires = now + member.session_timeout;
            if let Some(joining) = member.joining.take() {
                // Whoever waited may be gone; then its session ends.
                let _ = joining.send(Ok(joined));
            }
        }
    }

    /// What `member` is told of the present generation.
    pub fn joined(&self, member: &str) -> Joined {
        let leads = self.leader.as_deref() == Some(member);
        let all = || {
            let protocol = self.protocol.as_deref();
            self.members
                .values()
                .map(|member| {
                    (member.id.clone(), member.instance_id.clone(), member.subscription(protocol))
                })
                .collect()
        };
        Joined {
            generation: self.generation,
            protocol: self.protocol.clone().unwrap_or_default(),
            leader: self.leader.clone().unwrap_or_default(),
            members: if leads { all() } else { Vec::new() },
        }
    }

    /// Of the protocols that all can, the one that most prefer.
    fn vote(&self) -> Option<String> {
        let common = self.common_protocols();
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let preferred =
                member.protocols.iter().find(|(name, _)| common.contains(name.as_str()));
            if let Some((name, _)) = preferred {
                *votes.entry(name).or_default() += 1;
            }
        }
        votes.into_iter().max_by_key(|(_, count)| *count).map(|(name, _)| name.to_owned())
    }

    /// A member waits for what it gets.
    pub fn wait_for_assignment(&mut self, member: &str, answer: Answer<Bytes>) {
        if let Some(member) = self.members.get_mut(member) {
            member.syncing = Some(answer);
        }
    }

    /// The leader's word holds: everyone is told what they get.
    pub fn assigned(&mut self, assignments: &[(String, Bytes)], now: Instant) {
        self.state = GroupState::Stable;
        self.rebalance_ends = None;
        for member in self.members.values_mut() {
            member.assignment = assignments
                .iter()
                .find(|(id, _)| *id == member.id)
                .map(|(_, bytes)| bytes.clone())
                .unwrap_or_default();
            member.expires = now + member.session_timeout;
            if let Some(syncing) = member.syncing.take() {
                // As above.
                let _ = syncing.send(Ok(member.assignment.clone()));
            }
        }
    }

    /// The leader's word could not be kept: everyone tries again.
    pub fn not_assigned(&mut self, error: ResponseError, now: Instant) {
        for member in self.members.values_mut() {
            if let Some(syncing) = member.syncing.take() {
                // As above.
                let _ = syncing.send(Err(error));
            }
        }
        self.prepare_rebalance(now);
    }

    /// A member is gone.
    pub fn remove(&mut self, member: &str, now: Instant) {
        let Some(gone) = self.members.remove(member) else { return };
        if let Some(joining) = gone.joining {
            // As above.
            let _ = joining.send(Err(ResponseError::UnknownMemberId));
        }
        match self.state {
            GroupState::Stable | GroupState::CompletingRebalance => {
                self.prepare_rebalance(now);
                self.complete_join_if_ready(now);
            }
            GroupState::PreparingRebalance => self.complete_join_if_ready(now),
            GroupState::Empty => {}
        }
    }

    /// Whoever waits is told `error`: the group moves elsewhere.
    pub fn dismiss(&mut self, error: ResponseError) {
        for member in self.members.values_mut() {
            if let Some(joining) = member.joining.take() {
                // As above.
                let _ = joining.send(Err(error));
            }
            if let Some(syncing) = member.syncing.take() {
                let _ = syncing.send(Err(error));
            }
        }
    }

    /// When something happens by itself.
    pub fn next_deadline(&self) -> Option<Instant> {
        let sessions = self
            .members
            .values()
            .filter(|member| !member.is_waiting())
            .map(|member| member.expires);
        sessions
            .chain(self.given_ids.values().copied())
            .chain(self.rebalance_ends)
            .chain(self.not_before)
            .min()
    }

    /// What happens by itself happens: silent members go, rebalances go on.
    pub fn tick(&mut self, now: Instant) {
        self.given_ids.retain(|_, until| now < *until);
        let silent: Vec<String> = self
            .members
            .values()
            .filter(|member| !member.is_waiting() && now >= member.expires)
            .map(|member| member.id.clone())
            .collect();
        for id in silent {
            tracing::info!(member = id, "was silent for longer than its session");
            self.remove(&id, now);
        }
        if self.not_before.is_some_and(|begin| now >= begin) {
            self.not_before = None;
        }
        match self.state {
            GroupState::PreparingRebalance => self.complete_join_if_ready(now),
            // The leader has not said who gets what: those who have not asked go.
            GroupState::CompletingRebalance
                if self.rebalance_ends.is_some_and(|end| now >= end) =>
            {
                self.members.retain(|_, member| member.syncing.is_some());
                self.prepare_rebalance(now);
            }
            _ => {}
        }
    }

    /// A member as it was stored: nobody waits for an answer.
    pub(super) fn restore(&mut self, new: NewMember, now: Instant) {
        self.members.insert(new.id.clone(), Member::new(new, now));
    }
}
