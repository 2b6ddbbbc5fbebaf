//! Bugs on purpose: each breaks one rule as it is usually broken, so that whoever checks a cluster can
//! be shown to notice. Only builds with the feature `seeded-bugs` have them; elsewhere
//! [`Bug::is_on`] is `false` for the compiler, and nothing of this is left.

#[cfg(feature = "seeded-bugs")]
use std::sync::atomic::{AtomicU64, Ordering};

/// Those that are on, a bit each: of the whole process, since a rule has no other input for it.
#[cfg(feature = "seeded-bugs")]
static ON: AtomicU64 = AtomicU64::new(0);

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// An acks=all write is answered once the leader has it.
    AckBeforeReplication,
    /// A batch that is sent again is written again.
    NoDedup,
    /// R10: a shrink of the ISR counts before the controller has taken it.
    R10AssumeSuccess,
    /// R17: an eligible replica that is caught up is not waited for.
    R17NoWait,
    /// R18: the leader's high watermark is whatever comes out.
    R18PlainAssignment,
    /// R20: a follower takes its leader's high watermark although its log ends before.
    R20NoUpperClamp,
    /// R24: a follower begins by cutting its log to its high watermark.
    R24TruncateToHighWatermark,
    /// R34: consumers are served to the end of the log.
    R34ServeToLogEnd,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::AckBeforeReplication,
        Self::NoDedup,
        Self::R10AssumeSuccess,
        Self::R17NoWait,
        Self::R18PlainAssignment,
        Self::R20NoUpperClamp,
        Self::R24TruncateToHighWatermark,
        Self::R34ServeToLogEnd,
    ];

    /// Its name on command lines and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AckBeforeReplication => "ack-before-replication",
            Self::NoDedup => "no-dedup",
            Self::R10AssumeSuccess => "r10-assume-success",
            Self::R17NoWait => "r17-no-wait",
            Self::R18PlainAssignment => "r18-plain-assignment",
            Self::R20NoUpperClamp => "r20-no-upper-clamp",
            Self::R24TruncateToHighWatermark => "r24-truncate-to-hw",
            Self::R34ServeToLogEnd => "r34-serve-to-log-end",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bug| bug.name() == name)
    }

    /// Is it on in this process?
    #[cfg(feature = "seeded-bugs")]
    pub fn is_on(self) -> bool {
        ON.load(Ordering::Relaxed) & self.bit() != 0
    }

    /// Is it on in this process? Not in this build.
    #[cfg(not(feature = "seeded-bugs"))]
    pub const fn is_on(self) -> bool {
        false
    }

    /// Switches it on, for the rest of the process.
    #[cfg(feature = "seeded-bugs")]
    pub fn switch_on(self) {
        ON.fetch_or(self.bit(), Ordering::Relaxed);
    }

    #[cfg(feature = "seeded-bugs")]
    const fn bit(self) -> u64 {
        1 << self as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_under_its_name_and_off_at_first() {
        for bug in Bug::ALL {
            assert_eq!(Bug::named(bug.name()), Some(bug));
            assert!(!bug.is_on());
        }
        assert_eq!(Bug::named("r99-none"), None);
    }
}
