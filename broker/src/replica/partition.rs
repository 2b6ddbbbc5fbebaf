//! One replica of one partition.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use replication::partition::{
    AlterPartitionError, AlterPartitionOk, Assignment, BrokerState, Effects, IsrProposal, Leader,
    Settings,
};
use replication::types::{LeaderEpoch, NodeId, Offset, PartitionEpoch, PartitionId};
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use crate::fatal::Fatal;
use crate::log::LogSettings;
use crate::replica::clock;
use crate::replica::store::{Store, StoreError};

/// What is known of brokers, by id.
pub type Brokers = BTreeMap<NodeId, BrokerState>;

/// A change of the ISR that the controller shall be asked for.
#[derive(Clone, Debug)]
pub struct Proposed {
    /// Of which replica.
    pub partition: Arc<Partition>,
    /// What.
    pub proposal: IsrProposal,
}

/// What a replica sends to other parts of the node.
#[derive(Clone, Debug)]
pub struct Outbox {
    /// Changes of the ISR to ask for (R13: outside the lock).
    pub proposals: mpsc::UnboundedSender<Proposed>,
    /// Replicas with records that are not on disk yet; `None` where the page cache is enough.
    pub unsynced: Option<mpsc::UnboundedSender<Arc<Partition>>>,
    /// Told when a disk does not take what is written: nobody knows what it holds then.
    pub fatal: Fatal,
}

/// How far a replica is: what others wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Its leader epoch; waiting for one that is over is pointless.
    pub leader_epoch: LeaderEpoch,
    /// Does it lead?
    pub leads: bool,
    /// Its high watermark.
    pub high_watermark: Offset,
    /// Its log's end.
    pub log_end: Offset,
    /// It is gone: deleted or moved away.
    pub closed: bool,
}

/// What a replica does.
#[derive(Debug)]
pub(super) enum Role {
    /// Leads.
    Leader(Box<Leader>),
    /// Follows, or has nobody to follow.
    Follower(Follower),
}

/// A replica that does not lead.
#[derive(Clone, Debug)]
pub(super) struct Follower {
    pub(super) leader: Option<NodeId>,
    pub(super) leader_epoch: LeaderEpoch,
    pub(super) partition_epoch: PartitionEpoch,
    pub(super) high_watermark: Offset,
    pub(super) isr: Vec<NodeId>,
}

/// Settings of a topic, as its replicas need them.
#[derive(Clone, Debug)]
pub struct TopicSettings {
    /// For the ISR and the high watermark.
    pub replication: Settings,
    /// For the log.
    pub log: LogSettings,
}

/// What changes.
#[derive(Debug)]
pub(super) struct State {
    pub(super) store: Store,
    pub(super) role: Role,
    pub(super) brokers: Arc<Brokers>,
    pub(super) settings: TopicSettings,
}

/// One replica of one partition. All its state is behind one lock, held for short page-cache
/// writes and reads, never over an await.
#[derive(Debug)]
pub struct Partition {
    /// Which partition.
    pub id: PartitionId,
    /// Its topic's name.
    pub topic: Arc<str>,
    pub(super) me: NodeId,
    pub(super) fsync: bool,
    outbox: Outbox,
    /// Itself, for what goes into the outbox.
    own: Weak<Self>,
    state: Mutex<State>,
    progress: watch::Sender<Progress>,
}

impl Partition {
    /// A replica with what its disk holds. It follows nobody until metadata says more.
    pub(super) fn new(
        id: PartitionId,
        topic: Arc<str>,
        me: NodeId,
        outbox: Outbox,
        store: Store,
        high_watermark: Offset,
        settings: TopicSettings,
    ) -> Arc<Self> {
        let high_watermark = high_watermark.clamp(store.log_start(), store.log_end());
        let follower = Follower {
            leader: None,
            leader_epoch: LeaderEpoch::UNDEFINED,
            partition_epoch: PartitionEpoch(-1),
            high_watermark,
            isr: Vec::new(),
        };
        let progress = Progress {
            leader_epoch: LeaderEpoch::UNDEFINED,
            leads: false,
            high_watermark,
            log_end: store.log_end(),
            closed: false,
        };
        let state =
            State { store, role: Role::Follower(follower), brokers: Arc::default(), settings };
        Arc::new_cyclic(|own| Self {
            id,
            topic,
            me,
            fsync: outbox.unsynced.is_some(),
            outbox,
            own: Weak::clone(own),
            state: Mutex::new(state),
            progress: watch::Sender::new(progress),
        })
    }

    /// `orders-0`, as on disk.
    pub fn key(&self) -> String {
        format!("{}-{}", self.topic, self.id.index)
    }

    /// How far it is, now and later.
    pub fn watch(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        *self.progress.borrow()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in a handler leaves a log that was either appended to or not.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Metadata names this node as the leader, in `assignment`.
    ///
    /// # Errors
    /// The epoch could not be written down; the replica stays what it was.
    pub(super) fn lead(&self, assignment: Assignment) -> Result<(), StoreError> {
        let now = clock::now();
        let mut guard = self.lock();
        let state = &mut *guard;
        let epoch = assignment.leader_epoch;
        let effects = match &mut state.role {
            Role::Leader(leader) if leader.leader_epoch() == epoch => {
                leader.assigned(assignment, now, &*state.brokers)
            }
            role => {
                let high_watermark = role.high_watermark();
                // R21: before any append.
                state.store.begin_epoch(epoch)?;
                if self.fsync {
                    state.store.sync_now()?;
                }
                info!(
                    key = self.key(),
                    leader_epoch = epoch.0,
                    isr = ?assignment.isr,
                    from = %state.store.log_end(),
                    %high_watermark,
                    "leads"
                );
                let mut leader = Box::new(Leader::elected(
                    self.me,
                    assignment,
                    state.settings.replication,
                    state.store.log_end(),
                    high_watermark,
                    now,
                ));
                let effects = leader.appended(state.store.log_end(), now, &*state.brokers);
                *role = Role::Leader(leader);
                effects
            }
        };
        self.settle(guard, effects);
        Ok(())
    }

    /// Metadata names another leader, or none. Returns whether the leader epoch is new.
    pub(super) fn follow(&self, leader: Option<NodeId>, assignment: &Assignment) -> bool {
        let mut guard = self.lock();
        let state = &mut *guard;
        let high_watermark = state.role.high_watermark();
        let is_new = assignment.leader_epoch != state.role.leader_epoch()
            || matches!(state.role, Role::Leader(_));
        if is_new {
            info!(
                key = self.key(),
                leader_epoch = assignment.leader_epoch.0,
                leader = ?leader,
                log_end = %state.store.log_end(),
                %high_watermark,
                "follows"
            );
        }
        state.role = Role::Follower(Follower {
            leader,
            leader_epoch: assignment.leader_epoch,
            partition_epoch: assignment.partition_epoch,
            high_watermark,
            isr: assignment.isr.clone(),
        });
        self.publish(&guard);
        is_new
    }

    /// What metadata says of brokers has changed.
    pub(super) fn set_brokers(&self, brokers: Arc<Brokers>) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.brokers = brokers;
        if let Role::Leader(leader) = &mut state.role {
            let effects = leader.brokers_changed(clock::now(), &*state.brokers);
            self.settle(guard, effects);
        }
    }

    /// The topic's settings have changed.
    pub(super) fn set_settings(&self, settings: TopicSettings) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.store.set_settings(settings.log.clone());
        if let Role::Leader(leader) = &mut state.role {
            leader.set_settings(settings.replication);
        }
        state.settings = settings;
    }

    /// R6, every half of `replica.lag.time.max.ms`.
    pub(super) fn tick(&self) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if let Role::Leader(leader) = &mut state.role {
            let effects = leader.tick(clock::now(), &*state.brokers);
            self.settle(guard, effects);
        }
    }

    /// The controller answered `proposal` (R11, R12, R14 to R16).
    pub(super) fn answered(
        &self,
        proposal: &IsrProposal,
        answer: Result<AlterPartitionOk, AlterPartitionError>,
    ) -> bool {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Role::Leader(leader) = &mut state.role else { return false };
        let before = leader.isr().clone();
        let error = answer.as_ref().err().copied();
        let effects = leader.answered(proposal, answer, clock::now(), &*state.brokers);
        if let Some(error) = error {
            debug!(key = self.key(), ?error, retry = effects.retry, "the ISR was not changed");
        } else if *leader.isr() != before {
            info!(
                key = self.key(),
                leader_epoch = leader.leader_epoch().0,
                partition_epoch = leader.partition_epoch().0,
                was = ?before,
                isr = ?leader.isr(),
                "the ISR changed"
            );
        }
        let retry = effects.retry;
        self.settle(guard, effects);
        retry
    }

    /// Nobody is to wait for it any more.
    pub(super) fn close(&self) {
        self.progress.send_modify(|progress| progress.closed = true);
    }

    /// Tells those who wait, then, outside the lock, asks for what `effects` propose (R13).
    pub(super) fn settle(&self, guard: MutexGuard<'_, State>, effects: Effects) {
        self.publish(&guard);
        drop(guard);
        if let Some(proposal) = effects.propose {
            debug!(key = self.key(), ?proposal, "proposes another ISR");
            self.propose(proposal);
        }
    }

    fn propose(&self, proposal: IsrProposal) {
        let Some(partition) = self.own.upgrade() else { return };
        if self.outbox.proposals.send(Proposed { partition, proposal }).is_err() {
            warn!(key = self.key(), "nobody asks the controller any more; the node is stopping");
        }
    }

    /// The node stops where it was the disk that did not take an append: others shall lead, and a start reads
    /// what the disk really holds.
    pub(super) fn wrote_nothing(&self, error: &StoreError) {
        if !error.is_bad_data() {
            self.outbox.fatal.stop(format!("{}: {error}", self.key()));
        }
    }

    /// Has records that are not on disk yet.
    pub(super) fn wants_sync(&self) {
        if let (Some(unsynced), Some(partition)) = (&self.outbox.unsynced, self.own.upgrade()) {
            // It fails when the node stops, and then all is synced once more.
            let _ = unsynced.send(partition);
        }
    }

    pub(super) fn publish(&self, state: &State) {
        let (leads, high_watermark) =
            (matches!(state.role, Role::Leader(_)), state.role.high_watermark());
        let (leader_epoch, log_end) = (state.role.leader_epoch(), state.store.log_end());
        self.progress.send_if_modified(|progress| {
            let closed = progress.closed;
            let new = Progress { leader_epoch, leads, high_watermark, log_end, closed };
            std::mem::replace(progress, new) != new
        });
    }
}

impl Role {
    pub(super) fn high_watermark(&self) -> Offset {
        match self {
            Self::Leader(leader) => leader.high_watermark(),
            Self::Follower(follower) => follower.high_watermark,
        }
    }

    pub(super) fn leader_epoch(&self) -> LeaderEpoch {
        match self {
            Self::Leader(leader) => leader.leader_epoch(),
            Self::Follower(follower) => follower.leader_epoch,
        }
    }
}
