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
    /// R1: who was found caught up once is not looked at again.
    R1NoRecheck,
    /// R2: a fenced replica is eligible.
    R2NoFencedCheck,
    /// R3: a replica in another life than the metadata knows is eligible.
    R3AcceptMismatch,
    /// R4: the start of the leader's epoch need not be reached.
    R4NoEpochClause,
    /// R5: a replica that lacks some thousand records is in sync.
    R5AdmitByLag,
    /// R6: whoever fetches is in sync, however far behind.
    R6LastFetchTime,
    /// R7: a fetch that diverges tells how far the replica is.
    R7UpdateOnDiverging,
    /// R8: only a fetch at the leader's end counts as caught up.
    R8NoSecondClause,
    /// R9: who is about to enter does not count yet.
    R9MaximalIsIsr,
    /// R10: a shrink of the ISR counts before the controller has taken it.
    R10AssumeSuccess,
    /// R11: the ISR is what was proposed, whatever the controller answered.
    R11KeepProposed,
    /// R12: any answer counts, however old.
    R12AcceptOlder,
    /// R13: a changed ISR does not move the high watermark.
    R13NoHighWatermarkAttempt,
    /// R14: a proposal that was refused for good is sent again.
    R14Retry,
    /// R15: a rejected proposal stays pending.
    R15StayPending,
    /// R16: a proposal that got no answer is forgotten.
    R16LoseRetry,
    /// R17: an eligible replica that is caught up is not waited for.
    R17NoWait,
    /// R17: a replica is waited for though it cannot enter the ISR.
    R17NoEligibility,
    /// R18: the leader's high watermark is whatever comes out.
    R18PlainAssignment,
    /// R19: the high watermark moves however small the ISR is.
    R19NoMinIsr,
    /// R20: a follower takes its leader's high watermark although its log ends before.
    R20NoUpperClamp,
    /// R21: a new leader's epoch is noted with its first record only.
    R21RecordOnAppend,
    /// R22: the answer is an offset, not the epoch that ends there.
    R22OffsetWithoutEpoch,
    /// R23: the follower does not look where the epoch ends in its own log.
    R23IgnoreOwnEnd,
    /// R24: a follower begins by cutting its log to its high watermark.
    R24TruncateToHighWatermark,
    /// R25: a follower whose log is no longer than its leader's keeps it.
    R25CompareLengths,
    /// R26: a follower without epochs keeps its whole log.
    R26StartAtLogEnd,
    /// R27: brokers that fall silent together are fenced in one event.
    R27BatchExpiries,
    /// R28: a broker leaves ISRs before it is known to be on its way out.
    R28Reverse,
    /// R29: unclean elections whatever the topic allows.
    R29IgnoreTopic,
    /// R29: what one pass of elections leaves over is not taken up at once.
    R29NoRepeat,
    /// R30: the last member of the ISR leaves it.
    R30EmptyIsr,
    /// R31: the asker's leader epoch is not looked at.
    R31NoEpochCheck,
    /// R32: a fenced fetcher gives up for good, newer epoch or not.
    R32FailAlways,
    /// R33: the high watermark is the leader's before the log is cut.
    R33BeforeTruncating,
    /// R34: consumers are served to the end of the log.
    R34ServeToLogEnd,
    /// R35: the partition epoch on which a proposal builds is not looked at.
    R35NoPartitionEpoch,
    /// R36: the controller takes anyone into an ISR.
    R36NoEligibility,
    /// An acks=all write is answered once the leader has it.
    AckBeforeReplication,
    /// A batch that is sent again is written again.
    NoDedup,
    /// Only the last batch of a producer is remembered.
    DedupWindowOfOne,
    /// Followers do not learn what producers have written.
    DedupLostOnFailover,
    /// A consumer is not given the last batch of a segment.
    FetchSkipsAtSegmentEnd,
    /// A consumer beyond the end is served from the log's start.
    FetchFallsBackToLogStart,
    /// Some commits of groups are answered and not kept.
    OffsetCommitLost,
    /// Some batches are put off until the producer's next one was written.
    ReorderedBatches,
    /// A producer is told that its record is at offset 0.
    OffsetZeroAnswered,
    /// Some writes are refused after they were written.
    ErrorAfterAppend,
    /// Some values are changed, checksum and all.
    ValueCorrupted,
    /// Some writes land in the next partition.
    WrongPartition,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 50] = [
        Self::R1NoRecheck,
        Self::R2NoFencedCheck,
        Self::R3AcceptMismatch,
        Self::R4NoEpochClause,
        Self::R5AdmitByLag,
        Self::R6LastFetchTime,
        Self::R7UpdateOnDiverging,
        Self::R8NoSecondClause,
        Self::R9MaximalIsIsr,
        Self::R10AssumeSuccess,
        Self::R11KeepProposed,
        Self::R12AcceptOlder,
        Self::R13NoHighWatermarkAttempt,
        Self::R14Retry,
        Self::R15StayPending,
        Self::R16LoseRetry,
        Self::R17NoWait,
        Self::R17NoEligibility,
        Self::R18PlainAssignment,
        Self::R19NoMinIsr,
        Self::R20NoUpperClamp,
        Self::R21RecordOnAppend,
        Self::R22OffsetWithoutEpoch,
        Self::R23IgnoreOwnEnd,
        Self::R24TruncateToHighWatermark,
        Self::R25CompareLengths,
        Self::R26StartAtLogEnd,
        Self::R27BatchExpiries,
        Self::R28Reverse,
        Self::R29IgnoreTopic,
        Self::R29NoRepeat,
        Self::R30EmptyIsr,
        Self::R31NoEpochCheck,
        Self::R32FailAlways,
        Self::R33BeforeTruncating,
        Self::R34ServeToLogEnd,
        Self::R35NoPartitionEpoch,
        Self::R36NoEligibility,
        Self::AckBeforeReplication,
        Self::NoDedup,
        Self::DedupWindowOfOne,
        Self::DedupLostOnFailover,
        Self::FetchSkipsAtSegmentEnd,
        Self::FetchFallsBackToLogStart,
        Self::OffsetCommitLost,
        Self::ReorderedBatches,
        Self::OffsetZeroAnswered,
        Self::ErrorAfterAppend,
        Self::ValueCorrupted,
        Self::WrongPartition,
    ];

    /// Its name on command lines and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::R1NoRecheck => "r1-no-recheck",
            Self::R2NoFencedCheck => "r2-no-fenced-check",
            Self::R3AcceptMismatch => "r3-accept-mismatch",
            Self::R4NoEpochClause => "r4-no-epoch-clause",
            Self::R5AdmitByLag => "r5-admit-by-lag",
            Self::R6LastFetchTime => "r6-last-fetch-time",
            Self::R7UpdateOnDiverging => "r7-update-on-diverging",
            Self::R8NoSecondClause => "r8-no-second-clause",
            Self::R9MaximalIsIsr => "r9-maximal-is-isr",
            Self::R10AssumeSuccess => "r10-assume-success",
            Self::R11KeepProposed => "r11-keep-proposed",
            Self::R12AcceptOlder => "r12-accept-older",
            Self::R13NoHighWatermarkAttempt => "r13-no-hw-attempt",
            Self::R14Retry => "r14-retry",
            Self::R15StayPending => "r15-stay-pending",
            Self::R16LoseRetry => "r16-lose-retry",
            Self::R17NoWait => "r17-no-wait",
            Self::R17NoEligibility => "r17-no-eligibility",
            Self::R18PlainAssignment => "r18-plain-assignment",
            Self::R19NoMinIsr => "r19-no-min-isr",
            Self::R20NoUpperClamp => "r20-no-upper-clamp",
            Self::R21RecordOnAppend => "r21-record-on-append",
            Self::R22OffsetWithoutEpoch => "r22-offset-without-epoch",
            Self::R23IgnoreOwnEnd => "r23-ignore-own-end",
            Self::R24TruncateToHighWatermark => "r24-truncate-to-hw",
            Self::R25CompareLengths => "r25-compare-lengths",
            Self::R26StartAtLogEnd => "r26-start-at-log-end",
            Self::R27BatchExpiries => "r27-batch-expiries",
            Self::R28Reverse => "r28-reverse",
            Self::R29IgnoreTopic => "r29-ignore-topic",
            Self::R29NoRepeat => "r29-no-repeat",
            Self::R30EmptyIsr => "r30-empty-isr",
            Self::R31NoEpochCheck => "r31-no-epoch-check",
            Self::R32FailAlways => "r32-fail-always",
            Self::R33BeforeTruncating => "r33-hw-before-truncating",
            Self::R34ServeToLogEnd => "r34-serve-to-log-end",
            Self::R35NoPartitionEpoch => "r35-no-partition-epoch",
            Self::R36NoEligibility => "r36-no-eligibility",
            Self::AckBeforeReplication => "ack-before-replication",
            Self::NoDedup => "no-dedup",
            Self::DedupWindowOfOne => "dedup-window-of-one",
            Self::DedupLostOnFailover => "dedup-lost-on-failover",
            Self::FetchSkipsAtSegmentEnd => "fetch-skips-at-segment-end",
            Self::FetchFallsBackToLogStart => "fetch-falls-back-to-log-start",
            Self::OffsetCommitLost => "offset-commit-lost",
            Self::ReorderedBatches => "reordered-batches",
            Self::OffsetZeroAnswered => "offset-zero-answered",
            Self::ErrorAfterAppend => "error-after-append",
            Self::ValueCorrupted => "value-corrupted",
            Self::WrongPartition => "wrong-partition",
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
