//! Labels on everything made: which run it belongs to, and which process owns it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;

use crate::proc_stat::start_ticks;

/// On every container and network of this rig.
pub(super) const MARK: &str = "highwater";
/// The run's id.
pub(super) const RUN: &str = "highwater.run";
/// Who owns it: see [`Owner`].
pub(super) const OWNER: &str = "highwater.owner";
/// The node's name.
pub(super) const NODE: &str = "highwater.node";
/// On images: the hash of what they were made from.
pub(super) const RECIPE: &str = "highwater.recipe";

/// How long containers and networks are meant to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// As long as the process that made them: leftovers once it is gone.
    Driver,
    /// Until they are removed on purpose (a cluster to work with by hand).
    Kept,
}

/// Who owns a container or network, as its label says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A process of this boot, or of an earlier one.
    Process(ProcessId),
    /// Nobody; to be removed on purpose only.
    Kept,
    /// A label that cannot be read.
    Unreadable,
}

/// A process, told apart from every other one before or after it, in any pid namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProcessId {
    pid: u32,
    /// Clock ticks since boot at which it started (field 22 of `/proc/PID/stat`).
    start_ticks: u64,
    /// `/proc/sys/kernel/random/boot_id`.
    boot: String,
    /// Inode of its pid namespace; pids mean nothing outside it.
    pid_namespace: String,
}

impl ProcessId {
    /// This process.
    pub(super) fn current() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            start_ticks: start_ticks(pid).unwrap_or_default(),
            boot: boot(),
            pid_namespace: pid_namespace(),
        }
    }

    /// Is it gone for certain? A process that cannot be seen from here counts as alive.
    fn is_gone(&self, here: &Self) -> bool {
        if self.boot != here.boot {
            return true;
        }
        self.pid_namespace == here.pid_namespace && start_ticks(self.pid) != Some(self.start_ticks)
    }
}

impl Owner {
    /// The owner of what this process makes.
    pub(super) fn current(lifetime: Lifetime) -> Self {
        match lifetime {
            Lifetime::Driver => Self::Process(ProcessId::current()),
            Lifetime::Kept => Self::Kept,
        }
    }

    /// Reads the value of the label.
    pub(super) fn parse(label: &str) -> Self {
        if label == "kept" {
            return Self::Kept;
        }
        let parse = || {
            let mut parts = label.split(':');
            let process = ProcessId {
                pid: parts.next()?.parse().ok()?,
                start_ticks: parts.next()?.parse().ok()?,
                boot: parts.next()?.to_owned(),
                pid_namespace: parts.next()?.to_owned(),
            };
            parts.next().is_none().then_some(process)
        };
        parse().map_or(Self::Unreadable, Self::Process)
    }

    /// Is what it owned a leftover now?
    pub(super) fn is_gone(&self) -> bool {
        match self {
            Self::Process(process) => process.is_gone(&ProcessId::current()),
            Self::Kept | Self::Unreadable => false,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(process) => write!(
                f,
                "{}:{}:{}:{}",
                process.pid, process.start_ticks, process.boot, process.pid_namespace
            ),
            Self::Kept => f.write_str("kept"),
            Self::Unreadable => f.write_str("unreadable"),
        }
    }
}

/// The labels of everything that belongs to a run.
pub(super) fn of_run(run: &str, owner: &Owner) -> BTreeMap<String, String> {
    BTreeMap::from([
        (MARK.into(), "1".into()),
        (RUN.into(), run.to_owned()),
        (OWNER.into(), owner.to_string()),
    ])
}

fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

fn pid_namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().chars().filter(char::is_ascii_digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_an_owner_that_lives() {
        let owner = Owner::current(Lifetime::Driver);
        assert_eq!(Owner::parse(&owner.to_string()), owner);
        assert!(!owner.is_gone());
    }

    #[test]
    fn an_owner_with_another_start_or_boot_is_gone() {
        let here = ProcessId::current();
        let later = ProcessId { start_ticks: here.start_ticks + 1, ..here.clone() };
        assert!(Owner::Process(later.clone()).is_gone(), "the pid was used again");
        let earlier_boot = ProcessId { boot: "other".into(), ..here.clone() };
        assert!(Owner::Process(earlier_boot).is_gone());
        let elsewhere = ProcessId { pid_namespace: "1".into(), ..later };
        assert!(!Owner::Process(elsewhere).is_gone(), "it cannot be seen from here");
    }

    #[test]
    fn what_cannot_be_judged_is_left_alone() {
        for label in ["", "kept", "12", "1:2:3", "1:2:boot:ns:more", "x:1:boot:ns"] {
            assert!(!Owner::parse(label).is_gone(), "{label}");
        }
        assert_eq!(Owner::parse("kept"), Owner::Kept);
        assert_eq!(Owner::parse("1:2:3"), Owner::Unreadable);
    }
}
