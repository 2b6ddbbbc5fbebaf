//! A leader, followers and the controller, driven through random interleavings: fetches whose
//! answers are lost or late, elections, deaths, ISR changes answered late. After every step the
//! invariants of the rules are looked at; at the end everything heals and must converge.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail loudly")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use replication::controller::alter_partition::{Asked, alter};
use replication::controller::sessions::Sessions;
use replication::controller::{World, fencing, registration};
use replication::epochs::{EpochEnd, LeaderEpochs};
use replication::metadata::settings::Defaults;
use replication::metadata::{BrokerRegistration, Image, PartitionState, Record};
use replication::partition::{
    Acked, AlterPartitionError, AlterPartitionOk, Assignment, BrokerState, Effects, FollowerFetch,
    IsrProposal, Leader, Settings, Truncation, diverging, follower_high_watermark,
    on_becoming_follower, on_diverging,
};
use replication::types::{
    BrokerEpoch, LeaderEpoch, Millis, NodeId, Offset, PartitionEpoch, PartitionId, Recovery,
    TopicId,
};
use uuid::Uuid;

const NODES: i32 = 3;
const LAG_MAX_MS: u64 = 20;

type Entry = (LeaderEpoch, u32);

enum Role {
    Leader(Box<Leader>),
    Follower { leader: Option<NodeId>, epoch: LeaderEpoch },
}

struct Node {
    id: NodeId,
    up: bool,
    life: BrokerEpoch,
    log: Vec<Entry>,
    epochs: LeaderEpochs,
    high_watermark: Offset,
    role: Role,
    proposal: Option<IsrProposal>,
}

/// An answer that is under way.
enum Late {
    Fetch {
        to: NodeId,
        from: NodeId,
        epoch: LeaderEpoch,
        offset: Offset,
        answer: Answer,
    },
    Alter {
        to: NodeId,
        proposal: IsrProposal,
        answer: Result<AlterPartitionOk, AlterPartitionError>,
    },
}

#[derive(Clone)]
struct Answer {
    /// The epoch after which was asked: of the follower's last record then.
    after: Option<LeaderEpoch>,
    entries: Vec<Entry>,
    high_watermark: Offset,
    diverging: Option<EpochEnd>,
}

struct Cluster {
    image: Image,
    defaults: Defaults,
    index: i64,
    now: Millis,
    nodes: Vec<Node>,
    late: Vec<Late>,
    /// Writes under acks=all that wait: leader, epoch, offset, value.
    waiting: Vec<(NodeId, LeaderEpoch, Offset, u32)>,
    acked: BTreeMap<Offset, u32>,
    seen: BTreeMap<Offset, Entry>,
    tops: BTreeMap<(NodeId, LeaderEpoch), Offset>,
    next_value: u32,
    lives: u128,
    elections: usize,
    cuts: usize,
    expansions: usize,
}

fn partition() -> PartitionId {
    PartitionId { topic: TopicId(Uuid::from_u128(1)), index: 0 }
}

fn end(node: &Node) -> Offset {
    Offset(i64::try_from(node.log.len()).unwrap())
}

fn at(offset: Offset) -> usize {
    usize::try_from(offset.0).unwrap()
}

impl Cluster {
    fn new() -> Self {
        let ids: Vec<NodeId> = (0..NODES).map(NodeId).collect();
        let mut cluster = Self {
            image: Image::default(),
            defaults: Defaults::new(),
            index: 0,
            now: Millis(1_000),
            nodes: Vec::new(),
            late: Vec::new(),
            waiting: Vec::new(),
            acked: BTreeMap::new(),
            seen: BTreeMap::new(),
            tops: BTreeMap::new(),
            next_value: 0,
            lives: 0,
            elections: 0,
            cuts: 0,
            expansions: 0,
        };
        for id in &ids {
            cluster.nodes.push(Node {
                id: *id,
                up: true,
                life: BrokerEpoch(-1),
                log: Vec::new(),
                epochs: LeaderEpochs::default(),
                high_watermark: Offset::ZERO,
                role: Role::Follower { leader: None, epoch: LeaderEpoch::UNDEFINED },
                proposal: None,
            });
            cluster.register(*id);
            cluster.unfence(*id);
        }
        let state = PartitionState {
            replicas: ids.clone(),
            isr: ids.clone(),
            leader: Some(ids[0]),
            leader_epoch: LeaderEpoch(0),
            partition_epoch: PartitionEpoch(0),
            recovery: Recovery::Recovered,
            adding: Vec::new(),
            removing: Vec::new(),
            elr: Vec::new(),
            last_known_elr: Vec::new(),
        };
        let topic = Record::Topic { name: "t".to_owned(), id: partition().topic };
        cluster.commit(&[topic, Record::Partition { id: partition(), state }]);
        for id in ids {
            cluster.metadata(id);
        }
        cluster
    }

    fn commit(&mut self, records: &[Record]) {
        self.index += 1;
        for record in records {
            self.image.apply(self.index, record).unwrap();
        }
    }

    fn world(&self) -> World<'_> {
        World { image: &self.image, defaults: &self.defaults }
    }

    fn node(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[usize::try_from(id.0).unwrap()]
    }

    fn brokers(&self) -> BTreeMap<NodeId, BrokerState> {
        self.image.brokers().map(|broker| (broker.id, BrokerState::from(broker))).collect()
    }

    fn register(&mut self, id: NodeId) {
        self.lives += 1;
        let wanted = BrokerRegistration {
            id,
            incarnation: Uuid::from_u128(self.lives),
            listeners: Vec::new(),
            log_dirs: Vec::new(),
            rack: None,
        };
        let records = registration::register(
            self.world(),
            &Sessions::default(),
            wanted,
            BrokerEpoch::BYPASS,
            self.now,
        );
        self.commit(&records.unwrap());
        let life = BrokerEpoch(self.index);
        self.node(id).life = life;
    }

    fn unfence(&mut self, id: NodeId) {
        let records = fencing::unfence(self.world(), id);
        self.commit(&records);
    }

    fn settle(&mut self, id: NodeId, effects: Effects) {
        if let Some(proposal) = effects.propose {
            self.node(id).proposal = Some(proposal);
        }
    }

    /// A node reads the newest metadata.
    fn metadata(&mut self, id: NodeId) {
        let state = self.image.partition(partition()).unwrap().clone();
        let (brokers, now) = (self.brokers(), self.now);
        let node = self.node(id);
        if !node.up {
            return;
        }
        let assignment = Assignment::from(&state);
        let mut effects = Effects::default();
        match &mut node.role {
            Role::Leader(leader) if leader.leader_epoch() == state.leader_epoch => {
                effects = leader.assigned(assignment, now, &brokers);
                let more = leader.brokers_changed(now, &brokers);
                effects.propose = effects.propose.or(more.propose);
            }
            _ if state.leader == Some(id) => {
                let log_end = end(node);
                node.epochs.assign(state.leader_epoch, log_end);
                let settings = Settings { lag_max_ms: LAG_MAX_MS, min_insync_replicas: 1 };
                let hw = node.high_watermark;
                let mut leader =
                    Box::new(Leader::elected(id, assignment, settings, log_end, hw, now));
                effects = leader.appended(log_end, now, &brokers);
                node.role = Role::Leader(leader);
                node.proposal = None;
                self.elections += 1;
            }
            _ => {
                let is_new = !matches!(&node.role, Role::Follower { epoch, .. } if *epoch == state.leader_epoch);
                node.role = Role::Follower { leader: state.leader, epoch: state.leader_epoch };
                node.proposal = None;
                if is_new {
                    let cut = on_becoming_follower(&node.epochs, end(node), node.high_watermark);
                    self.cut(id, cut);
                }
            }
        }
        self.settle(id, effects);
    }

    fn cut(&mut self, id: NodeId, truncation: Truncation) {
        let node = self.node(id);
        let Truncation::To { offset, .. } = truncation else { return };
        let cuts = offset < end(node);
        if cuts {
            node.log.truncate(at(offset));
        }
        node.epochs.truncate_from_end(offset);
        node.high_watermark = node.high_watermark.min(end(node));
        self.cuts += usize::from(cuts);
    }

    fn append(&mut self, id: NodeId) {
        let (brokers, now) = (self.brokers(), self.now);
        self.next_value += 1;
        let value = self.next_value;
        let node = self.node(id);
        let Role::Leader(leader) = &mut node.role else { return };
        if !node.up || leader.refuse_acks_all().is_some() {
            return;
        }
        let (epoch, offset) =
            (leader.leader_epoch(), Offset(i64::try_from(node.log.len()).unwrap()));
        node.log.push((epoch, value));
        let effects = leader.appended(offset + 1, now, &brokers);
        self.waiting.push((id, epoch, offset, value));
        self.settle(id, effects);
    }

    /// A follower fetches from whom it follows; the answer comes now, late, or never.
    fn fetch(&mut self, id: NodeId, fate: Fate) {
        let (brokers, now) = (self.brokers(), self.now);
        let node = self.node(id);
        let Role::Follower { leader: Some(source), epoch } = node.role else { return };
        let (offset, life) = (end(node), node.life);
        let last = node.epochs.latest().map(|latest| latest.epoch);
        let up = node.up;
        let from = self.node(source);
        let log_end = end(from);
        let Role::Leader(leader) = &mut from.role else { return };
        if !up || !from.up || leader.leader_epoch() != epoch {
            return;
        }
        let parted = last.and_then(|last| diverging(&from.epochs, log_end, last, offset));
        if parted.is_none() && offset > log_end {
            // Out of range: without a common epoch the follower takes the leader's end.
            let cut = Truncation::To { offset: log_end, settled: true };
            return self.cut(id, cut);
        }
        let mut effects = Effects::default();
        if parted.is_none() {
            let fetch = FollowerFetch {
                from: id,
                broker_epoch: life,
                offset,
                now,
                log_start: Offset::ZERO,
            };
            match leader.fetched(fetch, &brokers) {
                Ok(done) => effects = done,
                Err(_) => return,
            }
        }
        let answer = Answer {
            after: last,
            entries: if parted.is_some() { Vec::new() } else { from.log[at(offset)..].to_vec() },
            high_watermark: leader.high_watermark(),
            diverging: parted,
        };
        self.settle(source, effects);
        match fate {
            Fate::Lost => {}
            Fate::Now => self.take(id, source, epoch, offset, &answer),
            Fate::Late => {
                self.late.push(Late::Fetch { to: id, from: source, epoch, offset, answer });
            }
        }
    }

    fn take(
        &mut self,
        id: NodeId,
        source: NodeId,
        epoch: LeaderEpoch,
        offset: Offset,
        answer: &Answer,
    ) {
        let node = self.node(id);
        let follows = matches!(node.role, Role::Follower { leader, epoch: own } if leader == Some(source) && own == epoch);
        // The log must be the one for which was asked; its end alone does not tell.
        let same = node.epochs.latest().map(|latest| latest.epoch) == answer.after;
        if !node.up || !follows || !same || end(node) != offset {
            return;
        }
        if let Some(parted) = answer.diverging {
            let cut = on_diverging(&node.epochs, end(node), node.high_watermark, parted);
            return self.cut(id, cut);
        }
        for (number, entry) in answer.entries.iter().enumerate() {
            node.epochs.assign(entry.0, offset + i64::try_from(number).unwrap());
            node.log.push(*entry);
        }
        let taken = follower_high_watermark(
            node.high_watermark,
            answer.high_watermark,
            Offset::ZERO,
            end(node),
        );
        node.high_watermark = taken.value;
    }

    /// A leader's proposal reaches the controller; its answer comes now, late, or never.
    fn alter(&mut self, id: NodeId, fate: Fate) {
        let node = self.node(id);
        let Some(proposal) = node.proposal.clone().filter(|_| node.up) else { return };
        let life = node.life;
        // Who asks again has given the earlier request up, and its answer with it (R16: one request
        // in flight).
        self.late.retain(|late| !matches!(late, Late::Alter { to, .. } if *to == id));
        let asked = [Asked {
            id: partition(),
            leader_epoch: proposal.leader_epoch,
            partition_epoch: proposal.partition_epoch,
            isr: proposal.isr.clone(),
            recovery: proposal.recovery,
        }];
        let Ok((records, mut outcomes)) = alter(self.world(), id, life, &asked, 3) else { return };
        let before = self.image.partition(partition()).unwrap().isr.len();
        self.commit(&records);
        let after = self.image.partition(partition()).unwrap().isr.len();
        self.expansions += usize::from(after > before);
        let answer = match outcomes.remove(0).1 {
            Ok(state) => Ok(AlterPartitionOk {
                leader_epoch: state.leader_epoch,
                partition_epoch: state.partition_epoch,
                isr: state.isr,
                recovery: state.recovery,
            }),
            Err(error) if error.code() == 107 => Err(AlterPartitionError::IneligibleReplica),
            Err(error) if error.code() == 95 => Err(AlterPartitionError::InvalidUpdateVersion),
            Err(_) => Err(AlterPartitionError::FencedLeaderEpoch),
        };
        match fate {
            Fate::Lost => {}
            Fate::Now => self.answered(id, &proposal, answer),
            Fate::Late => self.late.push(Late::Alter { to: id, proposal, answer }),
        }
    }

    fn answered(
        &mut self,
        id: NodeId,
        proposal: &IsrProposal,
        answer: Result<AlterPartitionOk, AlterPartitionError>,
    ) {
        let (brokers, now) = (self.brokers(), self.now);
        let node = self.node(id);
        let Role::Leader(leader) = &mut node.role else { return };
        if !node.up {
            return;
        }
        let effects = leader.answered(proposal, answer, now, &brokers);
        if node.proposal.as_ref() == Some(proposal) && !effects.retry {
            node.proposal = None;
        }
        self.settle(id, effects);
    }

    fn deliver(&mut self, which: usize) {
        if self.late.is_empty() {
            return;
        }
        let which = which % self.late.len();
        match self.late.swap_remove(which) {
            Late::Fetch { to, from, epoch, offset, answer } => {
                self.take(to, from, epoch, offset, &answer);
            }
            Late::Alter { to, proposal, answer } => self.answered(to, &proposal, answer),
        }
    }

    fn tick(&mut self, id: NodeId) {
        let (brokers, now) = (self.brokers(), self.now);
        let node = self.node(id);
        let Role::Leader(leader) = &mut node.role else { return };
        let effects = leader.tick(now, &brokers);
        self.settle(id, effects);
    }

    /// The process dies: its log stays, and a high watermark as it was written down some time ago.
    fn kill(&mut self, id: NodeId) {
        let node = self.node(id);
        node.up = false;
        node.high_watermark = Offset(node.high_watermark.0 / 2);
        node.role = Role::Follower { leader: None, epoch: LeaderEpoch::UNDEFINED };
        node.proposal = None;
    }

    fn fence(&mut self, id: NodeId) {
        let records = fencing::fence(self.world(), id);
        self.commit(&records);
    }

    fn restart(&mut self, id: NodeId) {
        if self.node(id).up {
            return;
        }
        self.register(id);
        self.node(id).up = true;
        self.unfence(id);
        self.metadata(id);
    }

    /// What must hold at all times.
    fn check(&mut self) {
        let mut acked = Vec::new();
        for node in &mut self.nodes {
            if let Role::Leader(leader) = &node.role {
                node.high_watermark = leader.high_watermark();
                assert!(node.high_watermark <= Offset(i64::try_from(node.log.len()).unwrap()));
                let top = self.tops.entry((node.id, leader.leader_epoch())).or_default();
                assert!(node.high_watermark >= *top, "R18: {} fell", node.id);
                *top = node.high_watermark;
                for (id, epoch, offset, value) in &self.waiting {
                    let is_here = *id == node.id && *epoch == leader.leader_epoch();
                    if is_here && leader.acked(*offset + 1) == Acked::Yes {
                        acked.push((*offset, *value));
                    }
                }
            }
            // What a consumer could have read never changes.
            for (offset, entry) in node.log.iter().take(at(node.high_watermark)).enumerate() {
                let offset = Offset(i64::try_from(offset).unwrap());
                let known = self.seen.entry(offset).or_insert(*entry);
                assert_eq!(known, entry, "offset {offset} changed on {}", node.id);
            }
        }
        self.acked.extend(acked);
        let state = self.image.partition(partition()).unwrap();
        for id in &state.isr {
            let node = &self.nodes[usize::try_from(id.0).unwrap()];
            for (offset, value) in &self.acked {
                let held = node.log.get(at(*offset)).map(|(_, value)| *value);
                assert_eq!(held, Some(*value), "{id} is in the ISR and lacks offset {offset}");
            }
        }
    }

    /// Everyone is up and hears everything: the logs become one, and everyone is in sync.
    fn heal(&mut self) {
        self.late.clear();
        for round in 0..40 {
            self.now = self.now + LAG_MAX_MS;
            for id in (0..NODES).map(NodeId) {
                self.restart(id);
                self.unfence(id);
                self.metadata(id);
            }
            for id in (0..NODES).map(NodeId) {
                self.fetch(id, Fate::Now);
                self.alter(id, Fate::Now);
                self.check();
            }
            let state = self.image.partition(partition()).unwrap();
            let whole = state.isr.len() == usize::try_from(NODES).unwrap();
            let same = self.nodes.windows(2).all(|pair| pair[0].log == pair[1].log);
            if whole && same && round > 3 {
                return;
            }
        }
        panic!("it did not heal: {:?}", self.image.partition(partition()));
    }
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Now,
    Late,
    Lost,
}

#[derive(Clone, Debug)]
enum Step {
    Append(i32),
    Fetch(i32, Fate),
    Alter(i32, Fate),
    Deliver(usize),
    Metadata(i32),
    Tick(i32),
    Fence(i32),
    Unfence(i32),
    Kill(i32),
    Restart(i32),
    Time(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let node = || 0..NODES;
    let fate = || prop_oneof![4 => Just(Fate::Now), 1 => Just(Fate::Late), 1 => Just(Fate::Lost)];
    prop_oneof![
        6 => node().prop_map(Step::Append),
        12 => (node(), fate()).prop_map(|(id, fate)| Step::Fetch(id, fate)),
        6 => (node(), fate()).prop_map(|(id, fate)| Step::Alter(id, fate)),
        3 => any::<usize>().prop_map(Step::Deliver),
        6 => node().prop_map(Step::Metadata),
        3 => node().prop_map(Step::Tick),
        1 => node().prop_map(Step::Fence),
        2 => node().prop_map(Step::Unfence),
        1 => node().prop_map(Step::Kill),
        2 => node().prop_map(Step::Restart),
        3 => (1..30_u64).prop_map(Step::Time),
    ]
}

fn run(steps: Vec<Step>) -> Cluster {
    let mut cluster = Cluster::new();
    for step in steps {
        match step {
            Step::Append(id) => cluster.append(NodeId(id)),
            Step::Fetch(id, fate) => cluster.fetch(NodeId(id), fate),
            Step::Alter(id, fate) => cluster.alter(NodeId(id), fate),
            Step::Deliver(which) => cluster.deliver(which),
            Step::Metadata(id) => cluster.metadata(NodeId(id)),
            Step::Tick(id) => cluster.tick(NodeId(id)),
            Step::Fence(id) => cluster.fence(NodeId(id)),
            Step::Unfence(id) if cluster.node(NodeId(id)).up => cluster.unfence(NodeId(id)),
            Step::Unfence(_) => {}
            Step::Kill(id) => cluster.kill(NodeId(id)),
            Step::Restart(id) => cluster.restart(NodeId(id)),
            Step::Time(ms) => cluster.now = cluster.now + ms,
        }
        cluster.check();
    }
    cluster.heal();
    cluster
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_acknowledged_is_lost_and_nothing_seen_changes(
        steps in prop::collection::vec(step(), 20..250),
    ) {
        run(steps);
    }
}

/// The property is worth nothing if its runs never come to the hard places.
#[test]
fn random_steps_come_to_elections_cuts_and_expansions() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let (mut elections, mut cuts, mut expansions, mut acked) = (0, 0, 0, 0);
    for _ in 0..60 {
        let steps =
            prop::collection::vec(step(), 200..250).new_tree(&mut runner).unwrap().current();
        let cluster = run(steps);
        elections += cluster.elections;
        cuts += cluster.cuts;
        expansions += cluster.expansions;
        acked += cluster.acked.len();
    }
    assert!(elections > 100, "{elections} elections");
    assert!(cuts > 20, "{cuts} cuts");
    assert!(expansions > 50, "{expansions} expansions");
    assert!(acked > 200, "{acked} acknowledged");
}
