//! The in-repo broker: a replicated log that speaks Kafka's protocol and obeys the replication
//! rules R1 to R36.
//!
//! | module | subject |
//! |---|---|
//! | [`node`] | one node, put together |
//! | [`config`] | what a node is told |
//! | [`server`] | the wire: connections, dispatch, one file an API |
//! | [`wire`] | frames, and whether they have the shape of what they claim to be |
//! | [`replica`] | replicas: appending, fetching, following |
//! | [`log`] | a partition's log on disk |
//! | [`producers`] | idempotent producers |
//! | [`coordinator`] | groups |
//! | [`controller`] | the active controller |
//! | [`quorum`] | the metadata log |
//! | [`lifecycle`] | a broker's life as its controller sees it |
//! | [`net`] | what this node asks of others |
//! | [`admin`] | HTTP for whoever looks |
//! | [`fatal`] | what a node cannot go on after |

pub mod admin;
pub mod config;
pub mod controller;
pub mod coordinator;
pub mod fatal;
pub mod lifecycle;
pub mod log;
pub mod net;
pub mod node;
pub mod producers;
pub mod quorum;
pub mod replica;
pub mod server;
pub mod wire;

pub use replication::seeded;
