//! What this node asks of other nodes.
//!
//! | subject | module |
//! |---|---|
//! | one connection, one question at a time, each with a deadline | [`connection`] |
//! | finding and asking the active controller | [`controllers`] |
//! | idle connections kept for the next question | [`peers`] |
//! | the metadata log's messages between nodes | [`quorum_link`] |

pub mod connection;
pub mod controllers;
pub mod peers;
pub mod quorum_link;
