//! Gives a voter its pace: heartbeats while it leads, elections while nobody does.

use openraft::{Raft, ServerState};
use tokio::task::JoinSet;
use tokio::time::{Duration, MissedTickBehavior, interval, timeout};
use tracing::{debug, info};

use super::contacts::Contacts;
use super::elections::Pace;
use super::network::Network;
use super::store::LogStore;
use super::types::Types;

/// The pacer of one voter.
pub(super) struct Pacer {
    pub(super) raft: Raft<Types>,
    pub(super) pace: Pace,
    pub(super) contacts: Contacts,
    pub(super) network: Network,
    pub(super) store: LogStore,
}

/// What openraft says of this node.
struct Role {
    id: u64,
    is_leader: bool,
    is_voter: bool,
    since_answered: Option<Duration>,
}

impl Pacer {
    /// Runs for as long as openraft does.
    pub(super) async fn run(self) {
        let mut beat = interval(self.pace.beat());
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            let role = self.role();
            let went_on = if role.is_leader {
                self.lead(&role).await
            } else {
                self.contacts.set_silent(false);
                self.follow(&role).await
            };
            if !went_on {
                return;
            }
        }
    }

    fn role(&self) -> Role {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let membership = metrics.membership_config.membership();
        Role {
            id: metrics.id,
            is_leader: metrics.state == ServerState::Leader,
            is_voter: membership.voter_ids().any(|voter| voter == metrics.id),
            since_answered: metrics.millis_since_quorum_ack.map(Duration::from_millis),
        }
    }

    async fn lead(&self, role: &Role) -> bool {
        let is_silent = !self.pace.may_speak(role.since_answered);
        if is_silent && !self.contacts.is_silent() {
            info!("a majority does not answer this leader: it is silent, so that another can be");
        }
        self.contacts.set_silent(is_silent);
        // A leader hears one as long as it is one.
        if let Some(since) = role.since_answered {
            self.contacts.heard(since);
        }
        // Though nothing is sent while it is silent, this makes openraft tell the time since.
        self.raft.trigger().heartbeat().await.is_ok()
    }

    async fn follow(&self, role: &Role) -> bool {
        if !role.is_voter || self.contacts.since_heard() < self.pace.stands_after() {
            return true;
        }
        let stands = self.may_stand(role.id).await;
        self.contacts.heard(Duration::ZERO);
        if !stands {
            debug!("no majority lets this voter stand for election");
            return true;
        }
        info!("hears no leader, and neither does a majority: stands for election");
        self.raft.trigger().elect().await.is_ok()
    }

    /// Does a majority, this voter among it, hear no leader either?
    async fn may_stand(&self, me: u64) -> bool {
        let last = self.store.last();
        let limit = self.pace.asking_limit();
        let mut asked = JoinSet::new();
        for voter in self.network.voters.keys().copied().filter(|voter| *voter != me) {
            let network = self.network.clone();
            asked.spawn(async move { network.may_stand(voter, last, limit).await });
        }
        let mut willing = 1;
        let counted = async {
            while !self.pace.is_majority(willing) {
                match asked.join_next().await {
                    Some(answer) => willing += usize::from(answer.unwrap_or(false)),
                    None => return false,
                }
            }
            true
        };
        timeout(limit, counted).await.unwrap_or(false)
    }
}
