//! Words of the field as types, so that an epoch is never taken for an offset.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// A node's id, `node.id`; never negative.
    NodeId(i32)
}
number! {
    /// A position in a partition's log. Never negative, but for [`Offset::UNDEFINED`].
    Offset(i64)
}
number! {
    /// How often a partition has had a new leader. Every batch carries it (R21).
    LeaderEpoch(i32)
}
number! {
    /// How often a partition's record in the metadata has changed; AlterPartition compares and
    /// sets it (R35).
    PartitionEpoch(i32)
}
number! {
    /// One life of a broker's process: the index in the metadata log of its registration.
    BrokerEpoch(i64)
}
number! {
    /// Milliseconds of a monotonic clock, from any origin. Pure code gets the time as an argument.
    Millis(u64)
}

impl Offset {
    /// Where every log begins.
    pub const ZERO: Self = Self(0);
    /// "No such offset" on the wire.
    pub const UNDEFINED: Self = Self(-1);
}

impl LeaderEpoch {
    /// "No such epoch" on the wire.
    pub const UNDEFINED: Self = Self(-1);

    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl PartitionEpoch {
    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl BrokerEpoch {
    /// The bypass of R3: whoever says -1 does not say in which life it is.
    pub const BYPASS: Self = Self(-1);
}

impl Add<i64> for Offset {
    type Output = Self;

    fn add(self, records: i64) -> Self {
        Self(self.0 + records)
    }
}

impl AddAssign<i64> for Offset {
    fn add_assign(&mut self, records: i64) {
        self.0 += records;
    }
}

/// The distance in records.
impl Sub for Offset {
    type Output = i64;

    fn sub(self, other: Self) -> i64 {
        self.0 - other.0
    }
}

impl Millis {
    /// The time that passed since `earlier`; nothing if that lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Millis {
    type Output = Self;

    fn add(self, more: u64) -> Self {
        Self(self.0.saturating_add(more))
    }
}

/// A topic's id; a topic that was deleted and created anew has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TopicId(pub Uuid);

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A partition of a topic, by the topic's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartitionId {
    /// The topic.
    pub topic: TopicId,
    /// The partition's number, from 0.
    pub index: i32,
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.index)
    }
}

/// How trustworthy a leader's log is (KIP-704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recovery {
    /// Holds everything that was committed.
    #[default]
    Recovered,
    /// Elected uncleanly; committed records may be missing (R29).
    Recovering,
}
