//! `highwater bench`: systems measured against each other, in turn within one run.
//!
//! | module | subject |
//! |---|---|
//! | `plan` | what is going to be measured, from the command line |
//! | `metric` | what can be measured, in which units, and which way is better |
//! | `schedule` | whose turn it is, and the steps of a turn |
//! | `rounds` | the whole run: turn after turn, written down after each |
//! | `turn` | one turn: a cluster of its own, every step, and its end |
//! | `start`, `memory`, `failover` | measurements that load alone does not make |
//! | `record` | what is written down: the raw numbers of every turn |
//! | `stats`, `summary`, `table` | medians, spreads and ratios, and how a person reads them |
//! | `machine` | what the numbers depend on |
//!
//! The load itself is driven by `client::bench`.

mod failover;
mod machine;
mod memory;
mod metric;
mod plan;
mod record;
mod rounds;
mod schedule;
mod start;
mod stats;
mod summary;
mod table;
mod turn;

pub(crate) use metric::Measure;
pub(crate) use plan::{BenchPlan, RecordSize};
pub(crate) use rounds::{BenchDir, run};
pub(crate) use table::report;
