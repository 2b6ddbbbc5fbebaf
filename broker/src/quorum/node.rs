//! One node's part of the quorum.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::error::{ClientWriteError, InitializeError, RaftError};
use openraft::{BasicNode, ChangeMembers, Config, Raft, RaftMetrics, ServerState, SnapshotPolicy};
use replication::types::NodeId;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::info;

use super::contacts::{Contact, Contacts};
use super::elections::Pace;
use super::machine::Machine;
use super::network::{self, Network};
use super::pacer::Pacer;
use super::store::LogStore;
use super::types::{Proposal, Types};
use super::{Applied, Leadership, QuorumError, QuorumNode, QuorumView, Transport, WriteError};
use crate::controller::entry::Entry;

/// What a node's part of the quorum is told.
#[derive(Clone, Debug)]
pub struct QuorumConfig {
    /// Where the log lies.
    pub dir: PathBuf,
    /// Who this node is.
    pub me: NodeId,
    /// Where others reach it.
    pub my_address: String,
    /// Who votes, and where they are.
    pub voters: BTreeMap<NodeId, String>,
    /// The least time without a leader before a voter stands for election.
    pub election_timeout_ms: u64,
    /// Entries between two snapshots.
    pub snapshot_after_entries: u64,
    /// All nodes of a cluster have the same one.
    pub cluster_id: String,
}

/// One node's part of the quorum; clones are the same one.
#[derive(Clone)]
pub struct Quorum {
    raft: Raft<Types>,
    machine: Machine,
    store: LogStore,
    cluster: Arc<str>,
    pace: Pace,
    contacts: Contacts,
    leadership: watch::Receiver<Leadership>,
    write_limit: Duration,
}

impl std::fmt::Debug for Quorum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quorum").field("leadership", &self.leadership).finish_non_exhaustive()
    }
}

fn raft_id(id: NodeId) -> u64 {
    u64::from(id.0.unsigned_abs())
}

fn node_id(id: u64) -> NodeId {
    NodeId(i32::try_from(id).unwrap_or(i32::MAX))
}

impl Quorum {
    /// Opens the log and takes part: a voter votes, everyone else reads.
    ///
    /// # Errors
    /// [`QuorumError`].
    pub async fn open(
        config: QuorumConfig,
        transport: Arc<dyn Transport>,
    ) -> Result<Self, QuorumError> {
        let failed = |error: String| QuorumError::Raft(error);
        let election = Duration::from_millis(config.election_timeout_ms);
        let rank = config.voters.keys().position(|voter| *voter == config.me);
        let rank = rank.map(|rank| u32::try_from(rank).unwrap_or(u32::MAX));
        let pace = Pace::new(election, rank.unwrap_or(u32::MAX), config.voters.len());
        let raft_config = Config {
            cluster_name: config.cluster_id.clone(),
            // Elections and heartbeats are the pacer's. This is only how long a message may take.
            enable_tick: false,
            heartbeat_interval: millis(pace.message_limit()),
            election_timeout_min: config.election_timeout_ms,
            // How long a voter that heard a leader refuses to vote for another.
            election_timeout_max: config.election_timeout_ms + 1,
            install_snapshot_timeout: config.election_timeout_ms * 2,
            snapshot_max_chunk_size: SNAPSHOT_CHUNK,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(config.snapshot_after_entries),
            max_in_snapshot_log_to_keep: config.snapshot_after_entries / 10,
            ..Config::default()
        };
        let raft_config = raft_config.validate().map_err(|error| failed(error.to_string()))?;
        let machine = Machine::open(&config.dir)?;
        let store = LogStore::open(&config.dir, machine.in_snapshot())?;
        let contacts = Contacts::new();
        let cluster: Arc<str> = config.cluster_id.into();
        let voters = config.voters.iter().map(|(id, at)| (raft_id(*id), at.clone())).collect();
        let network = Network {
            transport,
            cluster: Arc::clone(&cluster),
            voters: Arc::new(voters),
            contacts: contacts.clone(),
        };
        let raft = Raft::new(
            raft_id(config.me),
            Arc::new(raft_config),
            network.clone(),
            store.clone(),
            machine.clone(),
        )
        .await
        .map_err(|error| failed(error.to_string()))?;
        if let Some(rank) = rank {
            let delay = START_TOGETHER + election * rank;
            tokio::spawn(initialize(raft.clone(), config.voters.clone(), delay));
            let pacer = Pacer {
                raft: raft.clone(),
                pace,
                contacts: contacts.clone(),
                network,
                store: store.clone(),
            };
            tokio::spawn(pacer.run());
        }
        let leadership =
            follow_leadership(&raft, pace, contacts.clone(), config.me, config.voters.clone());
        let write_limit = election * 2;
        Ok(Self { raft, machine, store, cluster, pace, contacts, leadership, write_limit })
    }

    /// A message of another node; its answer.
    pub async fn handle(&self, message: Bytes) -> Bytes {
        let message = match network::open(&self.cluster, &message) {
            Ok(message) => message,
            Err(nonsense) => return nonsense,
        };
        network::handle(&self.raft, message, &self.contacts, |theirs| {
            self.pace.lets_stand(self.contacts.since_heard(), theirs, self.store.last())
        })
        .await
    }

    /// What this node has applied, now and later.
    pub fn state(&self) -> watch::Receiver<Applied> {
        self.machine.watch()
    }

    /// Who leads, now and later.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Writes what was decided in `term`; the index of the entry, once it is committed and
    /// applied here.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn write(&self, entry: Entry, term: u64) -> Result<i64, WriteError> {
        let written = self.raft.client_write(Proposal { term, entry });
        match timeout(self.write_limit, written).await {
            Err(_) => Err(WriteError::Unknown),
            Ok(Ok(written)) if written.data.0 => {
                Ok(i64::try_from(written.log_id.index).unwrap_or(i64::MAX))
            }
            Ok(Ok(_)) => Err(WriteError::NotLeader { leader: None }),
            Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(to)))) => {
                Err(WriteError::NotLeader { leader: to.leader_id.map(node_id) })
            }
            Ok(Err(error)) => Err(WriteError::Fatal(error.to_string())),
        }
    }

    /// Waits until this node leads and has applied everything that is in its log; the term. An
    /// empty entry of its own says so: it is behind whatever an earlier decision left there whose
    /// fate was not known, of this term or, if the process is new and its term is not, of the process
    /// before.
    ///
    /// # Errors
    /// [`WriteError`]: it does not lead, or that cannot be told in time.
    pub async fn await_ready_to_lead(&self) -> Result<u64, WriteError> {
        let term = self.raft.metrics().borrow().current_term;
        self.write(Entry { records: Vec::new() }, term).await?;
        Ok(term)
    }

    /// Node `id`, at `address`, reads the log from now on. It never votes.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn ensure_learner(&self, id: NodeId, address: String) -> Result<(), WriteError> {
        let (known, is_voter) = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow();
            let membership = metrics.membership_config.membership();
            let known = membership.get_node(&raft_id(id)).map(|node| node.addr.clone());
            (known, membership.voter_ids().any(|voter| voter == raft_id(id)))
        };
        if is_voter || known.as_ref() == Some(&address) {
            return Ok(());
        }
        let node = BasicNode { addr: address };
        let changed = async {
            if known.is_some() {
                let moved = ChangeMembers::SetNodes(BTreeMap::from([(raft_id(id), node)]));
                self.raft.change_membership(moved, true).await
            } else {
                self.raft.add_learner(raft_id(id), node, false).await
            }
        };
        let told = |error: RaftError<u64, ClientWriteError<u64, BasicNode>>| match error {
            RaftError::APIError(ClientWriteError::ForwardToLeader(to)) => {
                WriteError::NotLeader { leader: to.leader_id.map(node_id) }
            }
            RaftError::APIError(_) => WriteError::Unknown,
            RaftError::Fatal(error) => WriteError::Fatal(error.to_string()),
        };
        timeout(self.write_limit, changed).await.map_err(|_| WriteError::Unknown)?.map_err(told)?;
        info!(node = id.0, "follows the metadata log");
        Ok(())
    }

    /// The quorum as this node sees it; what others have read, only its leader knows.
    pub fn describe(&self) -> QuorumView {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let end = metrics.last_log_index.map_or(0, |index| index + 1);
        let membership = metrics.membership_config.membership();
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let node = |id: u64| {
            let matched = match &metrics.replication {
                Some(_) if id == metrics.id => Some(end),
                Some(replication) => {
                    replication.get(&id).map(|log| log.map_or(0, |log| log.index + 1))
                }
                None => None,
            };
            let contact = if id == metrics.id { Contact::now() } else { self.contacts.of(id) };
            QuorumNode {
                id: node_id(id),
                log_end: matched.map_or(-1, |end| i64::try_from(end).unwrap_or(i64::MAX)),
                last_contact_ms: matched.and(contact.answered_ms),
                last_caught_up_ms: matched.and(contact.caught_up_ms),
            }
        };
        let ids: Vec<u64> = membership.nodes().map(|(id, _)| *id).collect();
        let (voting, reading): (Vec<u64>, Vec<u64>) =
            ids.into_iter().partition(|id| voters.contains(id));
        QuorumView {
            leader: self.leadership.borrow().leader.as_ref().map(|(id, _)| *id),
            leader_epoch: metrics.current_term,
            high_watermark: metrics
                .last_applied
                .map_or(-1, |log| i64::try_from(log.index).unwrap_or(i64::MAX)),
            voters: voting.into_iter().map(node).collect(),
            observers: reading.into_iter().map(node).collect(),
        }
    }

    /// Takes no part any more.
    pub async fn shutdown(&self) {
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(%error, "the metadata log did not stop cleanly");
        }
    }
}

/// Nodes of a new cluster are started at about the same time.
const START_TOGETHER: Duration = Duration::from_millis(100);
/// Bytes of a snapshot that go into one message.
const SNAPSHOT_CHUNK: u64 = 512 * 1024;

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Every voter of a new cluster says the same; one that has a log already says nothing. The first
/// one speaks soon, so that it is elected at once; the others only if it does not.
async fn initialize(raft: Raft<Types>, voters: BTreeMap<NodeId, String>, delay: Duration) {
    tokio::time::sleep(delay).await;
    let members: BTreeMap<u64, BasicNode> = voters
        .iter()
        .map(|(id, address)| (raft_id(*id), BasicNode { addr: address.clone() }))
        .collect();
    match raft.is_initialized().await {
        Ok(false) => {}
        Ok(true) => return,
        Err(error) => return tracing::error!(%error, "the metadata log does not work"),
    }
    match raft.initialize(members).await {
        Ok(()) => info!("a new cluster: says who votes"),
        // Another voter's word came first.
        Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
        Err(error) => tracing::error!(%error, "the metadata log cannot begin"),
    }
}

/// Tells who leads whenever that changes, for as long as the log works. A leader whom a majority
/// does not answer any more leads nobody.
fn follow_leadership(
    raft: &Raft<Types>,
    pace: Pace,
    contacts: Contacts,
    me: NodeId,
    voters: BTreeMap<NodeId, String>,
) -> watch::Receiver<Leadership> {
    let mut metrics = raft.metrics();
    let of = move |metrics: &RaftMetrics<u64, BasicNode>| {
        let leader = metrics.current_leader.map(node_id);
        let since_answered = metrics.millis_since_quorum_ack.map(Duration::from_millis);
        let is_followed = leader != Some(me) || pace.leads(since_answered);
        let leader = leader.filter(|_| is_followed);
        Leadership {
            i_lead: metrics.state == ServerState::Leader && leader == Some(me),
            leader: leader.and_then(|id| Some((id, voters.get(&id)?.clone()))),
            term: metrics.current_term,
        }
    };
    let (told, leadership) = watch::channel(of(&metrics.borrow_and_update()));
    tokio::spawn(async move {
        while metrics.changed().await.is_ok() {
            let now = {
                let metrics = metrics.borrow_and_update();
                note_caught_up(&metrics, &contacts);
                of(&metrics)
            };
            told.send_if_modified(|leadership| {
                let changed = *leadership != now;
                if changed && leadership.leader != now.leader {
                    let leader = now.leader.as_ref().map(|(id, _)| id.0);
                    info!(?leader, term = now.term, "the quorum's leader");
                }
                *leadership = now;
                changed
            });
        }
    });
    leadership
}

fn note_caught_up(metrics: &RaftMetrics<u64, BasicNode>, contacts: &Contacts) {
    for (id, matched) in metrics.replication.iter().flatten() {
        if matched.map(|matched| matched.index) == metrics.last_log_index {
            contacts.caught_up(*id);
        }
    }
}
