//! The proof that the rig catches bugs: each seeded bug is switched on in the in-repo broker and must be
//! found; without it the same plan must come out as expected.
//!
//! | part | file | pure |
//! |---|---|---|
//! | which bugs there are, and what should expose each | `catalog.rs` | yes |
//! | one run in a process of its own | `attempt.rs` | no |
//! | all runs of one bug, and of all | `trial.rs` | no |
//! | what came out, as text, JSON and a page of the book | `table.rs` | yes |

mod attempt;
mod catalog;
mod table;
mod trial;

pub(crate) use catalog::{CATALOG, Case};
pub(crate) use table::{Line, markdown, text};
pub(crate) use trial::{Settings, prove};
