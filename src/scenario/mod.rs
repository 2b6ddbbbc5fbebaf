//! Scenarios: named incidents as steps, with conditions in place of sleeps.
//!
//! | part | file | pure |
//! |---|---|---|
//! | one step, as written | `step.rs` | yes |
//! | a scenario's file: cluster, steps, what must come out | `file.rs` | yes |
//! | does a condition hold in what was seen | `condition.rs` | yes |
//! | carrying the steps out, and recording them | `play.rs` | no |
//! | the plan of its run | `plan.rs` | yes |
//! | is the verdict the expected one | `outcome.rs` | yes |

mod cast;
mod condition;
mod file;
mod outcome;
mod plan;
mod play;
mod step;

pub(crate) use file::{Expectation, Scenario, find, ours};
pub(crate) use outcome::{Outcome, compare};
pub(crate) use play::Player;
pub(crate) use step::parse_steps;
