//! A replica as it sees itself, for whoever looks.

use replication::epochs::EpochStart;
use replication::types::{NodeId, Offset, TopicId};
use serde::Serialize;

use crate::replica::clock;
use crate::replica::partition::{Partition, Role};

/// A replica as it sees itself.
#[derive(Clone, Debug, Serialize)]
pub struct Description {
    /// `orders-0`.
    pub key: String,
    /// The topic's id.
    pub topic_id: TopicId,
    /// `leader` or `follower`.
    pub role: &'static str,
    /// Whom it follows, or itself.
    pub leader: Option<NodeId>,
    /// Its leader epoch.
    pub leader_epoch: i32,
    /// Its partition epoch.
    pub partition_epoch: i32,
    /// The ISR as committed.
    pub isr: Vec<NodeId>,
    /// The ISR as a write must take it (R9, R10); leaders only.
    pub maximal_isr: Option<Vec<NodeId>>,
    /// The ISR that the controller was asked for; leaders only.
    pub pending_isr: Option<Vec<NodeId>>,
    /// The high watermark.
    pub high_watermark: Offset,
    /// The log's end.
    pub log_end: Offset,
    /// Where the log begins.
    pub log_start: Offset,
    /// The epoch vector (R21).
    pub epochs: Vec<EpochStart>,
    /// What the leader knows of its followers; leaders only.
    pub followers: Vec<FollowerDescription>,
}

/// What a leader knows of a follower.
#[derive(Clone, Debug, Serialize)]
pub struct FollowerDescription {
    /// Who.
    pub id: NodeId,
    /// Where its log ends, as far as its fetches tell.
    pub log_end: Option<Offset>,
    /// Milliseconds since it was caught up (R8).
    pub caught_up_ms_ago: Option<u64>,
    /// In which life it last fetched.
    pub broker_epoch: Option<i64>,
}

impl Partition {
    /// It, as it sees itself.
    pub fn describe(&self) -> Description {
        let state = self.lock();
        let now = clock::now();
        let mut description = Description {
            key: self.key(),
            topic_id: self.id.topic,
            role: "follower",
            leader: None,
            leader_epoch: state.role.leader_epoch().0,
            partition_epoch: -1,
            isr: Vec::new(),
            maximal_isr: None,
            pending_isr: None,
            high_watermark: state.role.high_watermark(),
            log_end: state.store.log_end(),
            log_start: state.store.log_start(),
            epochs: state.store.epochs().entries().to_vec(),
            followers: Vec::new(),
        };
        match &state.role {
            Role::Leader(leader) => {
                description.role = "leader";
                description.leader = Some(self.me);
                description.partition_epoch = leader.partition_epoch().0;
                description.isr = leader.isr().iter().copied().collect();
                description.maximal_isr = Some(leader.maximal_isr().iter().copied().collect());
                description.pending_isr =
                    leader.pending().map(|pending| pending.isr.iter().map(|(id, _)| *id).collect());
                description.followers = leader
                    .followers()
                    .map(|follower| FollowerDescription {
                        id: follower.id,
                        log_end: follower.log_end,
                        caught_up_ms_ago: follower.last_caught_up.map(|at| now.since(at)),
                        broker_epoch: follower.broker_epoch.map(|epoch| epoch.0),
                    })
                    .collect();
            }
            Role::Follower(follower) => {
                description.leader = follower.leader;
                description.partition_epoch = follower.partition_epoch.0;
                description.isr.clone_from(&follower.isr);
            }
        }
        description
    }
}
