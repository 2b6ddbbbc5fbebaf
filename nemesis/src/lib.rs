//! What goes wrong, when, to whom, and the proof that it did.
//!
//! | part | file | pure |
//! |---|---|---|
//! | which faults there are, what they promise | `catalog.rs` | yes |
//! | whom a fault strikes | `target.rs` | yes |
//! | which links a partition cuts | `partition.rs` | yes |
//! | when what is struck and healed, from a seed | `schedule.rs` | yes |
//! | the same, written by hand | `script.rs` | yes |
//! | a fault whose victims are known | `strike.rs` | yes |
//! | doing and undoing, one file a fault | `faults/` | no |
//! | carrying a schedule out | `conductor.rs` | no |

mod catalog;
mod conductor;
pub mod faults;
mod partition;
mod schedule;
mod script;
mod situation;
mod strike;
mod target;

pub use catalog::{CATALOG, FaultKind, FaultSummary};
pub use conductor::{ActiveFaults, Conductor, HealReport};
pub use partition::PartitionKind;
pub use schedule::{Inject, NemesisPlan, Step, StepAction, schedule};
pub use script::{ScriptError, parse_script};
pub use situation::{Leadership, Situation};
pub use strike::Strike;
pub use target::{Target, TargetError};
