//! The network between nodes and clients: which packets are cut, late or lost, and the proof that they are.

mod cut;
mod impair;
mod links;
mod passage;
mod speed;

pub(crate) use cut::CHAINS;
pub use cut::{Cut, Endpoint};
pub use impair::{Done, Impairer, Impairment, Measured};
pub use links::{LinkReport, Network, Passes};
pub(crate) use speed::{limit, unlimited};
