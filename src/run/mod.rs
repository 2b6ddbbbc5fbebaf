//! One run, from the plan to the verdict.

mod bring_up;
mod disks;
mod judge;
mod observer;
mod phases;

pub(crate) use bring_up::{BringUp, Prepared, PreparedSystem, bring_up, prepare, run_id};
pub(crate) use judge::judge;
pub(crate) use phases::{Ended, run_test};
