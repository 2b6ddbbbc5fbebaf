//! What clients do, as plans and schedules: pure and seeded, no clock and no threads.
//!
//! | module | subject |
//! |---|---|
//! | [`rng`] | named random streams of one seed |
//! | [`plan`] | [`QueuePlan`]: everything that a run of the workload `queue` can set |
//! | [`queue`] | the schedules that follow from a plan and a seed |
#![forbid(unsafe_code)]

pub mod plan;
pub mod queue;
pub mod rng;

pub use plan::{
    Acks, Compression, ConsumerMode, ConsumerPlan, Isolation, PlanError, ProducerPlan, QueuePlan,
};
pub use queue::{ConsumerAction, ConsumerSchedule, PlannedSend, PlannedStep, SendSchedule};

/// A workload, as listed by `highwater workloads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadInfo {
    /// The name on the command line.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// Why it cannot run, where it cannot.
    pub unavailable: Option<&'static str>,
}

/// Every workload there is.
pub const WORKLOADS: &[WorkloadInfo] = &[WorkloadInfo {
    name: "queue",
    summary: "Producers write unique integers to the partitions of several topics at an open-loop \
              rate while consumers read them back by assign and in groups.",
    unavailable: None,
}];
