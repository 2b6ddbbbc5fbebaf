//! The network between nodes and clients: which packets are cut, and the proof that they are.

mod cut;
mod links;
mod passage;
mod speed;

pub(crate) use cut::CHAINS;
pub use cut::{Cut, Endpoint};
pub use links::{LinkReport, Network, Passes};
pub(crate) use speed::{limit, unlimited};
