//! A fault whose victims are known.

use std::collections::BTreeSet;

use cluster::network::{Cut, Impairment};
use cluster::relay::Rule;
use cluster::{Ailment, NodeName, Spoilage};
use history::Key;
use serde_json::{Value as Json, json};

use crate::catalog::FaultKind;
use crate::faults::{
    BadDisk, Fault, Impair, Intercept, Kill, Partition, Pause, PowerOff, Slow, Spoil, Stop,
};

/// What is done, and to whom.
#[derive(Clone, Debug, PartialEq)]
pub enum Strike {
    /// SIGKILL to these, all before any of them can hear of it.
    Kill(BTreeSet<NodeName>),
    /// SIGTERM to these.
    Stop(BTreeSet<NodeName>),
    /// SIGTERM to these, and nobody waits for them to end.
    BeginStop(BTreeSet<NodeName>),
    /// These are frozen.
    Pause(BTreeSet<NodeName>),
    /// What these send is limited to so many kbit a second.
    Slow(BTreeSet<NodeName>, u32),
    /// These lose their power.
    PowerOff(BTreeSet<NodeName>),
    /// Nothing fits on the disks of these.
    DiskFull(BTreeSet<NodeName>),
    /// The disks of these fail.
    DiskError(BTreeSet<NodeName>),
    /// These links are cut.
    Cut(BTreeSet<Cut>),
    /// These links are made bad; the seed decides which packets it meets.
    Impair(BTreeSet<Cut>, Impairment, u64),
    /// The replicas of a key on these stopped nodes are spoilt.
    Spoil(BTreeSet<NodeName>, Key, Spoilage),
    /// These messages are stopped.
    Intercept(Rule),
}

impl Strike {
    /// Which fault it is.
    pub const fn kind(&self) -> FaultKind {
        match self {
            Self::Kill(_) => FaultKind::Kill,
            Self::Stop(_) | Self::BeginStop(_) => FaultKind::Stop,
            Self::Pause(_) => FaultKind::Pause,
            Self::Slow(..) => FaultKind::Slow,
            Self::PowerOff(_) => FaultKind::PowerOff,
            Self::DiskFull(_) => FaultKind::DiskFull,
            Self::DiskError(_) => FaultKind::DiskError,
            Self::Cut(_) => FaultKind::Partition,
            Self::Impair(..) => FaultKind::Impair,
            Self::Spoil(..) => FaultKind::Spoil,
            Self::Intercept(_) => FaultKind::Intercept,
        }
    }

    /// Its victims, as histories name them.
    pub(crate) fn whom(&self) -> Json {
        match self {
            Self::Kill(nodes)
            | Self::Stop(nodes)
            | Self::BeginStop(nodes)
            | Self::Pause(nodes)
            | Self::DiskFull(nodes)
            | Self::DiskError(nodes)
            | Self::PowerOff(nodes) => {
                json!({ "nodes": nodes })
            }
            Self::Spoil(nodes, key, spoilage) => {
                json!({ "nodes": nodes, "key": key, "what": format!("{spoilage:?}") })
            }
            Self::Slow(nodes, kbit) => json!({ "nodes": nodes, "kbit_per_s": kbit }),
            Self::Cut(cuts) => {
                let links: Vec<_> = cuts.iter().map(ToString::to_string).collect();
                json!({ "links": links })
            }
            Self::Impair(cuts, impairment, seed) => {
                let links: Vec<_> = cuts.iter().map(ToString::to_string).collect();
                json!({ "links": links, "by": impairment.to_string(), "seed": seed })
            }
            Self::Intercept(rule) => json!({ "messages": rule }),
        }
    }

    /// The one who does it.
    pub(crate) fn fault(self, id: u64) -> Box<dyn Fault> {
        match self {
            Self::Kill(nodes) => Box::new(Kill::new(nodes)),
            Self::Stop(nodes) => Box::new(Stop::new(nodes)),
            Self::BeginStop(nodes) => Box::new(Stop::begun(nodes)),
            Self::Pause(nodes) => Box::new(Pause::new(nodes)),
            Self::Slow(nodes, kbit) => Box::new(Slow::new(nodes, kbit)),
            Self::PowerOff(nodes) => Box::new(PowerOff::new(nodes)),
            Self::DiskFull(nodes) => Box::new(BadDisk::new(nodes, Ailment::Full)),
            Self::DiskError(nodes) => Box::new(BadDisk::new(nodes, Ailment::Failing)),
            Self::Cut(cuts) => Box::new(Partition::new(id, cuts)),
            Self::Impair(links, impairment, seed) => {
                Box::new(Impair::new(id, links, impairment, seed))
            }
            Self::Spoil(nodes, key, spoilage) => Box::new(Spoil::new(nodes, key, spoilage)),
            Self::Intercept(rule) => Box::new(Intercept::new(id, rule)),
        }
    }
}
