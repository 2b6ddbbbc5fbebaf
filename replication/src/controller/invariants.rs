//! What holds after whatever was decided, in whatever order.

use proptest::prelude::*;

use crate::controller::alter_partition::{Asked, alter};
use crate::controller::testing::Cluster;
use crate::controller::{election, fencing, reassignment, shutdown};
use crate::metadata::{Image, PartitionState, Record};
use crate::types::{BrokerEpoch, NodeId, Recovery};

const BROKERS: i32 = 4;

/// Something that happens to a cluster.
#[derive(Clone, Debug)]
enum Step {
    Fence(i32),
    Unfence(i32),
    BeginShutdown(i32),
    Reborn(i32),
    Alter { partition: i32, isr: Vec<i32>, stale: bool },
    Reassign { partition: i32, target: Option<Vec<i32>> },
    Prefer,
    Unclean(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let broker = 1..=BROKERS;
    let some = prop::sample::subsequence((1..=BROKERS).collect::<Vec<_>>(), 1..=3);
    prop_oneof![
        broker.clone().prop_map(Step::Fence),
        broker.clone().prop_map(Step::Unfence),
        broker.clone().prop_map(Step::BeginShutdown),
        broker.prop_map(Step::Reborn),
        (0..2, some.clone(), any::<bool>()).prop_map(|(partition, isr, stale)| Step::Alter {
            partition,
            isr,
            stale
        }),
        (0..2, prop::option::of(some))
            .prop_map(|(partition, target)| Step::Reassign { partition, target }),
        Just(Step::Prefer),
        any::<bool>().prop_map(Step::Unclean),
    ]
}

fn take(cluster: &mut Cluster, step: &Step) -> Vec<Record> {
    match step {
        Step::Fence(id) => fencing::fence(cluster.world(), NodeId(*id)),
        Step::Unfence(id) => fencing::unfence(cluster.world(), NodeId(*id)),
        Step::BeginShutdown(id) => shutdown::begin(cluster.world(), NodeId(*id)),
        Step::Reborn(id) => {
            cluster.reborn(*id);
            Vec::new()
        }
        Step::Alter { partition, isr, stale } => {
            let state = cluster.partition("t", *partition).clone();
            let Some(leader) = state.leader else { return Vec::new() };
            let mut isr: Vec<NodeId> = isr.iter().copied().map(NodeId).collect();
            if !isr.contains(&leader) {
                isr.push(leader);
            }
            let mut asked = Asked {
                id: cluster.id("t", *partition),
                leader_epoch: state.leader_epoch,
                partition_epoch: state.partition_epoch,
                isr: isr.into_iter().map(|id| (id, BrokerEpoch::BYPASS)).collect(),
                recovery: Recovery::Recovered,
            };
            if *stale {
                asked.partition_epoch.0 -= 1;
            }
            let epoch = cluster.epoch(leader.0);
            let (records, outcomes) =
                alter(cluster.world(), leader, epoch, &[asked], 3).expect("its life is current");
            assert!(!stale || outcomes[0].1.is_err(), "compare-and-set");
            records
        }
        Step::Reassign { partition, target } => {
            let target: Option<Vec<NodeId>> =
                target.as_ref().map(|ids| ids.iter().copied().map(NodeId).collect());
            let id = cluster.id("t", *partition);
            let record = reassignment::reassign(cluster.world(), id, target.as_deref());
            record.ok().flatten().into_iter().collect()
        }
        Step::Prefer => election::preferred_sweep(cluster.world(), 100).0,
        Step::Unclean(allowed) => {
            cluster.set("t", "unclean.leader.election.enable", &allowed.to_string());
            election::unclean_sweep(cluster.world(), 100).0
        }
    }
}

fn holds(image: &Image, state: &PartitionState, with_elr: bool) {
    for member in &state.isr {
        assert!(state.replicas.contains(member), "the ISR is among the replicas: {state:?}");
        let alone = !with_elr && state.leader.is_none() && state.isr.len() == 1;
        assert!(
            alone || image.is_active(*member),
            "{member} is in the ISR and not active: {state:?}"
        );
        assert!(!state.elr.contains(member), "ISR and ELR are apart: {state:?}");
    }
    for waited_for in state.elr.iter().chain(&state.last_known_elr) {
        assert!(state.replicas.contains(waited_for), "{waited_for} has a replica: {state:?}");
    }
    if let Some(leader) = state.leader {
        assert!(state.isr.contains(&leader), "the leader is in the ISR: {state:?}");
        assert!(image.is_active(leader), "the leader is active: {state:?}");
    }
    assert!(with_elr || !state.isr.is_empty(), "without ELR someone stays: {state:?}");
}

proptest! {
    #[test]
    fn an_image_is_sound_after_any_steps(
        steps in prop::collection::vec(step(), 1..40),
        with_elr: bool,
        min_isr in 1..=3_i32,
    ) {
        let mut cluster = Cluster::of(BROKERS);
        if with_elr {
            cluster = cluster.with_elr();
        }
        cluster = cluster.with_topic("t", &[&[1, 2, 3], &[2, 3, 4]]);
        cluster.set("t", "min.insync.replicas", &min_isr.to_string());
        for step in steps {
            let before = cluster.clone();
            let records = take(&mut cluster, &step);
            cluster.apply(&records);
            for (id, state) in cluster.image().partitions() {
                holds(cluster.image(), state, with_elr);
                let was = before.image().partition(id).expect("it is not deleted");
                prop_assert!(state.leader_epoch >= was.leader_epoch);
                prop_assert!(state.partition_epoch >= was.partition_epoch);
                prop_assert!(
                    state.leader == was.leader || state.leader_epoch > was.leader_epoch,
                    "another leader has another epoch"
                );
                prop_assert!(
                    state == was || state.partition_epoch > was.partition_epoch,
                    "another state has another epoch"
                );
            }
        }
        let json = serde_json::to_string(cluster.image()).expect("JSON");
        let read: Image = serde_json::from_str(&json).expect("the same");
        prop_assert_eq!(&read, cluster.image());
    }
}
