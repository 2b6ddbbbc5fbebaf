//! What acknowledgements of a run promise: the observer's events `promise` and `exempt`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The observer's `f` for what the acknowledgements of a run promise, at its beginning.
pub const PROMISE: &str = "promise";
/// The observer's `f` for values whose acknowledgements promise less.
pub const EXEMPT: &str = "exempt";

/// What a topic promises to who sends with acks=all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicPromise {
    /// Replicas of each partition.
    pub replicas: usize,
    /// `min.insync.replicas`, no more than there are replicas (R19).
    pub min_isr: usize,
    /// May a replica that lacks acknowledged records be elected?
    pub unclean: bool,
}

/// The value of an event `promise`: the workload sends with acks=all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromiseValue {
    /// By topic.
    pub topics: BTreeMap<String, TopicPromise>,
}

/// The value of an event `exempt`: values that are sent with another acks than all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExemptValue {
    /// The partition.
    pub key: String,
    /// The least of them.
    pub first: i64,
    /// The greatest.
    pub last: i64,
}
