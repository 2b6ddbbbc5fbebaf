//! The wire: connections, dispatch, one file an API.
//!
//! | subject | module |
//! |---|---|
//! | accepting, and how many connections there may be | [`listener`] |
//! | one connection: frames in, answers out in order | `connection` |
//! | what all connections together may hold | [`budget`] |
//! | which APIs are spoken where, in which versions | [`versions`] |
//! | from an API key to its handler | `dispatch` |
//! | the handlers | [`api`] |
//! | topics that a broker asks for by itself | `topic_creation` |
//! | what handlers work with | [`services`] |

pub mod api;
pub mod budget;
mod connection;
mod dispatch;
pub mod listener;
pub mod services;
mod topic_creation;
pub mod versions;
