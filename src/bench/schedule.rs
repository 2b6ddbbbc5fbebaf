//! Whose turn it is, and the steps of a turn.

use super::metric::Measure;
use super::plan::{BenchPlan, RecordSize};

/// One system in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// From 1.
    pub(crate) round: u32,
    /// Index of the system in the plan.
    pub(crate) system: usize,
}

/// Every turn, in order: each round has all systems before the next round begins, so that a
/// machine that grows slower or busier does so for all of them.
pub(crate) fn turns(rounds: u32, systems: usize) -> Vec<Turn> {
    (1..=rounds).flat_map(|round| (0..systems).map(move |system| Turn { round, system })).collect()
}

/// When memory is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Ready, and asked for nothing for a while.
    Idle,
    /// After every record size was produced.
    AfterProduce,
}

/// Something that is done with a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Bringing it up. Always the first.
    Start,
    /// Looking at the memory of its brokers.
    Memory(Moment),
    /// Writing at full speed.
    Produce(RecordSize),
    /// Reading that back.
    Consume(RecordSize),
    /// Sending at a fixed rate.
    Latency,
    /// Killing leaders.
    Failover,
}

/// A step of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// What is done.
    pub(crate) work: Work,
    /// Was it asked for, or do others only need what it leaves behind?
    pub(crate) reported: bool,
}

/// The case of a failover whose leader does not lead the metadata quorum too.
pub(crate) const LEADER: &str = "leader";
/// The case of one that does.
pub(crate) const CONTROLLER: &str = "leader and controller";

/// The steps of a turn, in order. Failover comes last, since a broker that was killed and started
/// again is no longer the one that the others would measure.
pub(crate) fn steps(plan: &BenchPlan) -> Vec<Step> {
    let wanted = |measure: Measure| plan.measures.contains(&measure);
    let mut steps = Vec::new();
    let mut add = |work: Work, reported: bool| steps.push(Step { work, reported });
    add(Work::Start, wanted(Measure::Start));
    if wanted(Measure::Memory) {
        add(Work::Memory(Moment::Idle), true);
    }
    if [Measure::Produce, Measure::Consume, Measure::Memory].into_iter().any(wanted) {
        for size in &plan.sizes {
            add(Work::Produce(*size), wanted(Measure::Produce));
        }
    }
    if wanted(Measure::Memory) {
        add(Work::Memory(Moment::AfterProduce), true);
    }
    if wanted(Measure::Consume) {
        for size in &plan.sizes {
            add(Work::Consume(*size), true);
        }
    }
    for (measure, work) in [(Measure::Latency, Work::Latency), (Measure::Failover, Work::Failover)]
    {
        if wanted(measure) {
            add(work, true);
        }
    }
    steps
}

impl Work {
    /// What it is a measurement of.
    pub(crate) const fn measure(self) -> Measure {
        match self {
            Self::Start => Measure::Start,
            Self::Memory(_) => Measure::Memory,
            Self::Produce(_) => Measure::Produce,
            Self::Consume(_) => Measure::Consume,
            Self::Latency => Measure::Latency,
            Self::Failover => Measure::Failover,
        }
    }

    /// The cases that it measures, each with numbers of its own.
    pub(crate) fn cases(self, plan: &BenchPlan) -> Vec<String> {
        match self {
            Self::Start => vec!["cold".to_owned()],
            Self::Memory(Moment::Idle) => vec!["idle".to_owned()],
            Self::Memory(Moment::AfterProduce) => vec!["after produce".to_owned()],
            Self::Produce(size) | Self::Consume(size) => vec![size.to_string()],
            Self::Latency => vec![format!("{}/s", plan.latency_rate_per_s)],
            Self::Failover if plan.kills > 1 => vec![LEADER.to_owned(), CONTROLLER.to_owned()],
            Self::Failover => vec![LEADER.to_owned()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::tests::plan;

    fn told(flags: &str) -> Vec<String> {
        let plan = plan(&format!("--systems kafka {flags}")).unwrap();
        steps(&plan)
            .into_iter()
            .map(|step| {
                let mark = if step.reported { "" } else { "(" };
                let cases = step.work.cases(&plan).join(", ");
                format!("{mark}{} {cases}", step.work.measure().name())
            })
            .collect()
    }

    #[test]
    fn systems_take_turns_within_each_round() {
        let order: Vec<(u32, usize)> =
            turns(2, 2).into_iter().map(|turn| (turn.round, turn.system)).collect();
        assert_eq!(order, [(1, 0), (1, 1), (2, 0), (2, 1)]);
        assert_eq!(turns(0, 2), []);
    }

    #[test]
    fn a_whole_turn_goes_from_start_to_failover() {
        assert_eq!(
            told("--sizes 100B,1KiB"),
            [
                "start cold",
                "memory idle",
                "produce 100B",
                "produce 1KiB",
                "memory after produce",
                "consume 100B",
                "consume 1KiB",
                "latency 500/s",
                "failover leader, leader and controller",
            ]
        );
    }

    #[test]
    fn what_others_need_is_done_but_not_reported() {
        assert_eq!(
            told("--sizes 1KiB --only consume"),
            ["(start cold", "(produce 1KiB", "consume 1KiB"]
        );
        assert_eq!(
            told("--sizes 1KiB --only memory"),
            ["(start cold", "memory idle", "(produce 1KiB", "memory after produce"]
        );
        assert_eq!(told("--only failover --kills 1"), ["(start cold", "failover leader"]);
    }
}
