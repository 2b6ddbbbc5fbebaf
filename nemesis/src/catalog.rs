//! The faults there are.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A kind of fault. Whom it strikes is the target's business, not the fault's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultKind {
    /// SIGKILL, then start again.
    Kill,
    /// SIGTERM, then start again.
    Stop,
    /// SIGSTOP, then SIGCONT.
    Pause,
    /// Links cut, then healed.
    Partition,
    /// What a node sends limited to a rate, then free again.
    Slow,
    /// What was not synced is gone, with the process; then start again.
    #[serde(rename = "power-off")]
    PowerOff,
    /// Nothing fits on a node's disk any more; then there is room again.
    #[serde(rename = "disk-full")]
    DiskFull,
    /// A node's disk takes and gives nothing any more; then it is whole again.
    #[serde(rename = "disk-error")]
    DiskError,
    /// Packets late, lost, twice, out of order or spoilt on some links; then good again.
    Impair,
    /// Chosen messages held, then let through.
    Intercept,
    /// A replica on a stopped node's disk spoilt. By hand only: no schedule knows what the cluster then owes.
    Spoil,
}

/// What is told about a fault in lists.
#[derive(Clone, Copy, Debug)]
pub struct FaultSummary {
    /// Which one.
    pub kind: FaultKind,
    /// The name in flags and histories.
    pub name: &'static str,
    /// The name of its undoing in histories.
    pub heal_name: &'static str,
    /// One sentence.
    pub sentence: &'static str,
}

/// Every fault, in the order in which lists show them.
pub const CATALOG: [FaultSummary; 11] = [
    FaultSummary {
        kind: FaultKind::Kill,
        name: "kill",
        heal_name: "start",
        sentence: "SIGKILL the node's process; its disk and page cache stay. Healed by starting it again.",
    },
    FaultSummary {
        kind: FaultKind::Stop,
        name: "stop",
        heal_name: "start",
        sentence: "SIGTERM the node's process, a controlled shutdown. Healed by starting it again.",
    },
    FaultSummary {
        kind: FaultKind::Pause,
        name: "pause",
        heal_name: "resume",
        sentence: "Freeze every process of the node; it still holds its connections and its beliefs. Healed by thawing it.",
    },
    FaultSummary {
        kind: FaultKind::Partition,
        name: "partition",
        heal_name: "heal",
        sentence: "Drop packets on chosen links, one way or both, established connections too. Healed by lifting the rules.",
    },
    FaultSummary {
        kind: FaultKind::Slow,
        name: "slow",
        heal_name: "hurry",
        sentence: "Limit what leaves a node to a rate, measured before it counts (namespaces only). Healed by lifting the limit.",
    },
    FaultSummary {
        kind: FaultKind::PowerOff,
        name: "power-off",
        heal_name: "power-on",
        sentence: "Drop what the node's disk was not told to sync, and kill it (namespaces as root only). Healed by starting it again.",
    },
    FaultSummary {
        kind: FaultKind::DiskFull,
        name: "disk-full",
        heal_name: "free-disk",
        sentence: "Take all the room on the node's disk (namespaces as root only). Healed by making room, and starting the node if it has ended.",
    },
    FaultSummary {
        kind: FaultKind::DiskError,
        name: "disk-error",
        heal_name: "mend-disk",
        sentence: "Every access to the node's disk fails, with what was written before intact (namespaces as root only). Healed by a good disk and a start.",
    },
    FaultSummary {
        kind: FaultKind::Impair,
        name: "impair",
        heal_name: "repair",
        sentence: "Make links bad: packets late, lost, twice, out of order or spoilt, measured before it counts (namespaces only). Healed by making them good.",
    },
    FaultSummary {
        kind: FaultKind::Intercept,
        name: "intercept",
        heal_name: "let-through",
        sentence: "Hold one kind of message between nodes, however late it then arrives (namespaces only). Healed by letting it through.",
    },
    FaultSummary {
        kind: FaultKind::Spoil,
        name: "spoil",
        heal_name: "leave",
        sentence: "Cut, flip or empty what a stopped node's disk holds of a replica; in scenarios only. Not healed.",
    },
];

impl FaultKind {
    /// What lists tell about it.
    pub fn summary(self) -> &'static FaultSummary {
        // The catalog's order is the enum's; the test below holds it to that.
        &CATALOG[self as usize]
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.summary().name)
    }
}

impl FromStr for FaultKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scheduled = || CATALOG.iter().filter(|fault| fault.kind != Self::Spoil);
        scheduled().find(|fault| fault.name == text).map(|fault| fault.kind).ok_or_else(|| {
            let names: Vec<_> = scheduled().map(|fault| fault.name).collect();
            format!("there is no fault `{text}`; there are {} and none", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_finds_its_own_summary_and_name() {
        for summary in &CATALOG {
            assert_eq!(summary.kind.summary().name, summary.name);
            let scheduled = summary.kind != FaultKind::Spoil;
            assert_eq!(summary.name.parse().ok(), scheduled.then_some(summary.kind));
        }
        assert!("kil".parse::<FaultKind>().unwrap_err().contains(
            "kill, stop, pause, partition, slow, power-off, disk-full, disk-error, impair, \
                           intercept"
        ));
    }
}
