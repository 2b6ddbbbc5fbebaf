//! When what is struck, and when it is healed: a pure function of the plan and the seed.

use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use crate::catalog::FaultKind;
use crate::partition::PartitionKind;
use crate::target::Target;

/// What the user wants to go wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NemesisPlan {
    /// The faults to rotate through; empty: nothing is broken.
    pub faults: Vec<FaultKind>,
    /// Whom to strike; empty: any of [`Target::USUAL`].
    pub targets: Vec<Target>,
    /// Shapes of partitions; empty: every one that fits the cluster.
    pub partitions: Vec<PartitionKind>,
    /// From one fault's beginning to the next one's, milliseconds.
    pub interval_ms: u64,
    /// Steps by hand instead of a rotation; see [`crate::parse_script`].
    pub script: Vec<Step>,
}

impl NemesisPlan {
    /// Can it come to this fault?
    pub fn uses(&self, fault: FaultKind) -> bool {
        let in_script = |step: &Step| matches!(&step.action, StepAction::Inject(inject) if inject.fault == fault);
        self.faults.contains(&fault) || self.script.iter().any(in_script)
    }
}

/// A fault as the schedule knows it, before it is known whom it means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inject {
    /// Which fault.
    pub fault: FaultKind,
    /// Whom; for partitions, who is isolated or whose key it is. Absent: any.
    pub target: Option<Target>,
    /// The shape, of partitions only.
    pub partition: Option<PartitionKind>,
    /// Seed of the choices left open until it fires.
    pub choice: u64,
}

/// What happens at a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepAction {
    /// Break something.
    Inject(Inject),
    /// Undo the fault with the same id.
    Heal,
}

/// One line of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Milliseconds since the workload began.
    pub at_ms: u64,
    /// Ties a heal to its fault.
    pub id: u64,
    /// What happens.
    pub action: StepAction,
}

/// A fault that would last less than this part of an interval is not begun.
const LEAST_SHARE: f64 = 0.3;
/// The first fault waits for this part of an interval, so that there is a healthy beginning.
const LEAD_SHARE: f64 = 0.4;
/// How often a fault lasts into the next one's time.
const OVERLAP_PROBABILITY: f64 = 0.3;

/// The steps of a run of `time_limit_ms` on `nodes` nodes, in order of time.
///
/// The faults come in rounds: each round strikes with every kind once, in a random order, and
/// ends with an interval of quiet in which the cluster may recover. Some faults last into the
/// next one's time, so that faults overlap. All are healed at the limit at the latest.
pub fn schedule(
    plan: &NemesisPlan,
    nodes: usize,
    time_limit_ms: u64,
    rng: &mut impl Rng,
) -> Vec<Step> {
    if !plan.script.is_empty() {
        return plan.script.clone();
    }
    let interval = plan.interval_ms as f64;
    let limit = time_limit_ms as f64;
    let shapes = shapes(plan, nodes);
    let mut steps = Vec::new();
    let mut round: Vec<FaultKind> = Vec::new();
    let mut begins = interval * LEAD_SHARE;
    let mut id = 0;
    while !plan.faults.is_empty() && begins + interval * LEAST_SHARE <= limit {
        if round.is_empty() {
            if id > 0 {
                begins += interval;
            }
            round.clone_from(&plan.faults);
            round.shuffle(rng);
        }
        if begins + interval * LEAST_SHARE > limit {
            break;
        }
        let Some(fault) = round.pop() else { break };
        id += 1;
        let share = if rng.random_bool(OVERLAP_PROBABILITY) {
            rng.random_range(1.1..1.7)
        } else {
            rng.random_range(0.5..0.9)
        };
        let ends = (begins + interval * share).min(limit);
        let inject = StepAction::Inject(Inject {
            fault,
            target: choose_target(plan, fault, rng),
            partition: (fault == FaultKind::Partition)
                .then(|| shapes.choose(rng).copied())
                .flatten(),
            choice: rng.random(),
        });
        steps.push(Step { at_ms: whole_ms(begins), id, action: inject });
        steps.push(Step { at_ms: whole_ms(ends), id, action: StepAction::Heal });
        begins += interval;
    }
    steps.sort_by_key(|step| (step.at_ms, step.id));
    steps
}

fn choose_target(plan: &NemesisPlan, fault: FaultKind, rng: &mut impl Rng) -> Option<Target> {
    match (plan.targets.choose(rng), fault) {
        (Some(target), _) => Some(target.clone()),
        // The shape alone says who is cut off.
        (None, FaultKind::Partition) => None,
        (None, _) => Target::USUAL.choose(rng).cloned(),
    }
}

fn shapes(plan: &NemesisPlan, nodes: usize) -> Vec<PartitionKind> {
    if plan.partitions.is_empty() {
        PartitionKind::all().filter(|kind| kind.min_nodes() <= nodes).collect()
    } else {
        plan.partitions.clone()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "milliseconds of a run, positive and far below 2^53"
)]
fn whole_ms(ms: f64) -> u64 {
    ms.round() as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn plan(faults: &[FaultKind], interval_ms: u64) -> NemesisPlan {
        NemesisPlan {
            faults: faults.to_vec(),
            targets: vec![],
            partitions: vec![],
            interval_ms,
            script: vec![],
        }
    }

    const THREE: [FaultKind; 3] = [FaultKind::Kill, FaultKind::Pause, FaultKind::Partition];

    fn run(plan: &NemesisPlan, limit_ms: u64, seed: u64) -> Vec<Step> {
        schedule(plan, 3, limit_ms, &mut ChaCha8Rng::seed_from_u64(seed))
    }

    #[test]
    fn a_minute_strikes_with_every_kind() {
        for seed in 0..50 {
            let steps = run(&plan(&THREE, 10_000), 60_000, seed);
            for kind in THREE {
                assert!(steps.iter().any(
                    |step| matches!(&step.action, StepAction::Inject(inject) if inject.fault == kind)
                ));
            }
        }
    }

    #[test]
    fn no_faults_give_no_steps() {
        assert_eq!(run(&plan(&[], 10_000), 60_000, 1), []);
    }

    #[test]
    fn a_run_too_short_for_a_fault_has_none() {
        assert_eq!(run(&plan(&THREE, 10_000), 6_000, 1), []);
    }

    #[test]
    fn there_is_an_interval_of_quiet_after_each_round() {
        let steps = run(&plan(&[FaultKind::Kill], 10_000), 100_000, 4);
        let begins: Vec<u64> = steps
            .iter()
            .filter(|step| matches!(step.action, StepAction::Inject(_)))
            .map(|step| step.at_ms)
            .collect();
        assert_eq!(begins, [4_000, 24_000, 44_000, 64_000, 84_000]);
    }

    proptest! {
        #[test]
        fn every_fault_is_healed_once_and_within_the_limit(
            seed: u64, interval_ms in 500_u64..30_000, limit_ms in 1_000_u64..300_000
        ) {
            let steps = run(&plan(&THREE, interval_ms), limit_ms, seed);
            let mut open = BTreeMap::new();
            let mut last = 0;
            for step in &steps {
                prop_assert!(step.at_ms >= last);
                prop_assert!(step.at_ms <= limit_ms);
                last = step.at_ms;
                match step.action {
                    StepAction::Inject(_) => prop_assert!(open.insert(step.id, step.at_ms).is_none()),
                    StepAction::Heal => prop_assert!(open.remove(&step.id).is_some()),
                }
            }
            prop_assert!(open.is_empty());
        }

        #[test]
        fn the_same_seed_gives_the_same_schedule(seed: u64) {
            let plan = plan(&THREE, 5_000);
            prop_assert_eq!(run(&plan, 60_000, seed), run(&plan, 60_000, seed));
        }
    }
}
