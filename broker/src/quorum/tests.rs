//! Whole quorums in one process, over links that can be cut and slowed, on a paused clock; and
//! openraft's own tests of a store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, Weak};

use openraft::testing::{StoreBuilder, Suite};
use replication::metadata::Record;
use replication::types::BrokerEpoch;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::machine::Machine;
use super::store::LogStore;
use super::types::{LogId, StorageError, Types};
use super::*;
use crate::controller::entry::Entry;

const ELECTION: Duration = Duration::from_secs(1);

/// The links between the nodes.
#[derive(Default)]
struct Links {
    nodes: Mutex<BTreeMap<String, Quorum>>,
    /// From whom to whom nothing goes.
    cut: Mutex<BTreeSet<(NodeId, NodeId)>>,
    /// How long a message takes.
    delay: Mutex<Duration>,
}

/// What one node sends with.
struct From {
    me: NodeId,
    links: Weak<Links>,
}

impl Links {
    fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.cut.lock().unwrap().contains(&(from, to))
    }

    /// Nothing goes between `node` and the others, in the directions given.
    fn isolate(&self, node: NodeId, outward: bool, inward: bool) {
        let mut cut = self.cut.lock().unwrap();
        for other in (1..=3).map(NodeId).filter(|other| *other != node) {
            if outward {
                cut.insert((node, other));
            }
            if inward {
                cut.insert((other, node));
            }
        }
    }

    fn heal(&self) {
        self.cut.lock().unwrap().clear();
    }
}

#[async_trait]
impl Transport for From {
    async fn call(
        &self,
        to: NodeId,
        address: &str,
        rpc: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, TransportError> {
        let lost = || TransportError::new("lost".to_owned());
        let exchange = async {
            let links = self.links.upgrade().ok_or_else(lost)?;
            let delay = *links.delay.lock().unwrap();
            sleep(delay).await;
            let node = links.nodes.lock().unwrap().get(address).cloned();
            let Some(node) = node.filter(|_| !links.is_cut(self.me, to)) else {
                // Nobody says that a message is lost.
                return std::future::pending().await;
            };
            let answer = node.handle(rpc).await;
            sleep(delay).await;
            if links.is_cut(to, self.me) {
                return std::future::pending().await;
            }
            Ok(answer)
        };
        timeout(deadline, exchange).await.unwrap_or_else(|_| Err(lost()))
    }
}

struct Cluster {
    links: Arc<Links>,
    dirs: BTreeMap<NodeId, TempDir>,
}

fn address(node: NodeId) -> String {
    format!("n{}", node.0)
}

impl Cluster {
    async fn start() -> Self {
        let dirs = (1..=3).map(|id| (NodeId(id), tempfile::tempdir().unwrap())).collect();
        let cluster = Self { links: Arc::default(), dirs };
        for id in 1..=3 {
            cluster.open(NodeId(id), "abc").await.unwrap();
        }
        cluster
    }

    async fn open(&self, id: NodeId, cluster: &str) -> Result<(), QuorumError> {
        let config = QuorumConfig {
            dir: self.dirs[&id].path().to_owned(),
            me: id,
            my_address: address(id),
            voters: (1..=3).map(|id| (NodeId(id), address(NodeId(id)))).collect(),
            election_timeout_ms: u64::try_from(ELECTION.as_millis()).unwrap(),
            snapshot_after_entries: 20,
            cluster_id: cluster.to_owned(),
        };
        let transport = From { me: id, links: Arc::downgrade(&self.links) };
        let quorum = Quorum::open(config, Arc::new(transport)).await?;
        self.links.nodes.lock().unwrap().insert(address(id), quorum);
        Ok(())
    }

    async fn close(&self, id: NodeId) {
        let node = self.links.nodes.lock().unwrap().remove(&address(id));
        node.unwrap().shutdown().await;
    }

    fn node(&self, id: NodeId) -> Quorum {
        self.links.nodes.lock().unwrap()[&address(id)].clone()
    }

    fn leaders(&self) -> Vec<(NodeId, u64)> {
        let nodes = self.links.nodes.lock().unwrap().clone();
        nodes
            .values()
            .map(|node| node.leadership().borrow().clone())
            .filter(|leadership| leadership.i_lead)
            .filter_map(|leadership| Some((leadership.leader?.0, leadership.term)))
            .collect()
    }

    /// Waits until just one node says that it leads, and it is not `except`; who, and the term.
    async fn leader(&self, except: Option<NodeId>) -> (NodeId, u64) {
        let told = eventually("a leader", || match self.leaders()[..] {
            [one] if Some(one.0) != except => Some(one),
            _ => None,
        });
        told.await
    }

    /// Waits until node `id` has applied that producer ids below `next` are given away.
    async fn has(&self, id: NodeId, next: i64) {
        eventually("an applied entry", || {
            let state = self.node(id).state().borrow().clone();
            (state.state.0.next_producer_id() == next).then_some(())
        })
        .await;
    }
}

async fn eventually<T>(what: &str, mut seen: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + ELECTION * 30;
    loop {
        if let Some(seen) = seen() {
            return seen;
        }
        assert!(Instant::now() < until, "{what} did not come");
        sleep(Duration::from_millis(10)).await;
    }
}

fn ids_to(next: i64) -> Entry {
    Entry {
        records: vec![Record::ProducerIds {
            broker: NodeId(1),
            broker_epoch: BrokerEpoch(0),
            next,
        }],
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_quorum_elects_one_leader_and_all_apply_what_it_writes() {
    let cluster = Cluster::start().await;
    let (leader, term) = cluster.leader(None).await;
    cluster.node(leader).write(ids_to(1000), term).await.unwrap();
    for id in 1..=3 {
        cluster.has(NodeId(id), 1000).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_to_call_itself_one_and_another_is_elected_soon() {
    let cluster = Cluster::start().await;
    let (old, term) = cluster.leader(None).await;
    let began = Instant::now();
    cluster.links.isolate(old, true, true);
    let (new, later) = cluster.leader(Some(old)).await;
    assert!(later > term && new != old);
    assert!(began.elapsed() < ELECTION * 3, "{:?}", began.elapsed());
    let quorum = cluster.node(old).describe();
    assert_ne!(quorum.leader, Some(old));
    cluster.links.heal();
    cluster.node(new).write(ids_to(7), later).await.unwrap();
    cluster.has(old, 7).await;
}

/// Two elections in step would each find the other's vote given.
#[tokio::test(start_paused = true)]
async fn voters_do_not_split_elections() {
    let cluster = Cluster::start().await;
    let (leader, term) = cluster.leader(None).await;
    cluster.close(leader).await;
    let (_, later) = cluster.leader(None).await;
    assert_eq!(later, term + 1);
}

#[tokio::test(start_paused = true)]
async fn a_voter_that_was_cut_off_does_not_depose_the_leader_when_it_is_back() {
    let cluster = Cluster::start().await;
    let (leader, term) = cluster.leader(None).await;
    let away = NodeId(if leader == NodeId(1) { 2 } else { 1 });
    cluster.links.isolate(away, true, true);
    sleep(ELECTION * 10).await;
    cluster.links.heal();
    cluster.node(leader).write(ids_to(5), term).await.unwrap();
    cluster.has(away, 5).await;
    assert_eq!(cluster.leader(None).await, (leader, term));
}

/// Its heartbeats would keep the others from electing one that can write.
#[tokio::test(start_paused = true)]
async fn a_leader_that_is_heard_and_does_not_hear_gives_way() {
    let cluster = Cluster::start().await;
    let (deaf, _) = cluster.leader(None).await;
    cluster.links.isolate(deaf, false, true);
    let (new, term) = cluster.leader(Some(deaf)).await;
    cluster.node(new).write(ids_to(9), term).await.unwrap();
    cluster.links.heal();
    cluster.has(deaf, 9).await;
}

/// An entry whose fate was unknown commits later: who decides next must know it.
#[tokio::test(start_paused = true)]
async fn whoever_is_ready_to_lead_has_applied_what_it_once_wrote_and_gave_up() {
    let cluster = Cluster::start().await;
    let (leader, term) = cluster.leader(None).await;
    let node = cluster.node(leader);
    cluster.links.isolate(leader, true, false);
    let written = timeout(Duration::from_millis(300), node.write(ids_to(4000), term)).await;
    assert!(written.is_err(), "nobody could take it");
    cluster.links.heal();
    assert_eq!(node.await_ready_to_lead().await, Ok(term));
    assert_eq!(node.state().borrow().state.0.next_producer_id(), 4000);
}

/// Openraft lets a leader go on in its term when it starts again.
#[tokio::test(start_paused = true)]
async fn a_leader_that_starts_again_has_applied_its_log_before_it_is_ready() {
    let cluster = Cluster::start().await;
    let (leader, term) = cluster.leader(None).await;
    cluster.links.isolate(leader, true, true);
    let node = cluster.node(leader);
    let written = timeout(Duration::from_millis(300), node.write(ids_to(4000), term)).await;
    assert!(written.is_err(), "nobody could take it");
    cluster.close(leader).await;
    cluster.links.heal();
    cluster.open(leader, "abc").await.unwrap();
    let (now, _) = cluster.leader(None).await;
    let node = cluster.node(now);
    node.await_ready_to_lead().await.unwrap();
    let has = node.state().borrow().state.0.next_producer_id();
    assert_eq!(has == 4000, now == leader, "the log of whoever leads decides");
}

#[tokio::test(start_paused = true)]
async fn a_slow_link_is_a_link() {
    let cluster = Cluster::start().await;
    let (leader, term) = cluster.leader(None).await;
    *cluster.links.delay.lock().unwrap() = ELECTION / 3;
    cluster.node(leader).write(ids_to(3), term).await.unwrap();
    for id in 1..=3 {
        cluster.has(NodeId(id), 3).await;
    }
    assert_eq!(cluster.leader(None).await, (leader, term));
}

fn files(dir: &Path, begin: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(begin)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_voter_far_behind_takes_a_snapshot_and_cannot_go_on_without_it() {
    let cluster = Cluster::start().await;
    let (leader, term) = cluster.leader(None).await;
    let away = NodeId(if leader == NodeId(1) { 2 } else { 1 });
    cluster.close(away).await;
    for next in 1..=100 {
        cluster.node(leader).write(ids_to(next), term).await.unwrap();
    }
    cluster.open(away, "abc").await.unwrap();
    cluster.has(away, 100).await;
    let dir = cluster.dirs[&away].path().to_owned();
    assert!(!files(&dir, "snapshot-").is_empty());
    cluster.close(away).await;
    cluster.open(away, "abc").await.unwrap();
    cluster.has(away, 100).await;
    cluster.close(away).await;
    for snapshot in files(&dir, "snapshot-") {
        let mut bytes = std::fs::read(&snapshot).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&snapshot, bytes).unwrap();
    }
    let refused = cluster.open(away, "abc").await.unwrap_err();
    assert!(refused.to_string().contains("let it follow them anew"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_node_of_another_cluster_is_not_listened_to() {
    let cluster = Cluster::start().await;
    let (leader, term) = cluster.leader(None).await;
    let other = NodeId(if leader == NodeId(1) { 2 } else { 1 });
    cluster.close(other).await;
    cluster.open(other, "xyz").await.unwrap();
    cluster.node(leader).write(ids_to(5), term).await.unwrap();
    sleep(ELECTION * 10).await;
    assert_eq!(cluster.node(other).state().borrow().state.0.next_producer_id(), 0);
    assert_eq!(cluster.leader(None).await, (leader, term));
}

struct Stores;

impl StoreBuilder<Types, LogStore, Machine, TempDir> for Stores {
    async fn build(&self) -> Result<(TempDir, LogStore, Machine), StorageError> {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::open(dir.path()).unwrap();
        // The suite purges without snapshots.
        let last = LogId::new(openraft::CommittedLeaderId::new(u64::MAX, 0), u64::MAX);
        let store = LogStore::open(dir.path(), watch::Sender::new(Some(last)).subscribe()).unwrap();
        Ok((dir, store, machine))
    }
}

#[test]
fn the_store_passes_openrafts_own_tests() {
    Suite::test_all(Stores).unwrap();
}
