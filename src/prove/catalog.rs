//! The seeded bugs: which rule each breaks, and what should expose it.

/// A bug and the plans that should expose it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Its name in `seeded.bugs`.
    pub(crate) bug: &'static str,
    /// The rule that it breaks; general ones break none of the list.
    pub(crate) rule: &'static str,
    /// The mistake, in a few words.
    pub(crate) mistake: &'static str,
    /// Scenarios written for it, the best first.
    pub(crate) scenarios: &'static [&'static str],
    /// Flags of `highwater test` for the random schedules that follow.
    pub(crate) random: &'static str,
    /// Why nobody outside can see it, where that is so.
    pub(crate) unobservable: Option<&'static str>,
}

/// Schedules that break everything in turn.
const ANY: &str = "--nemesis kill,pause,partition --nemesis-interval 4s --time-limit 20s";

const fn case(
    bug: &'static str,
    rule: &'static str,
    mistake: &'static str,
    scenarios: &'static [&'static str],
) -> Case {
    Case { bug, rule, mistake, scenarios, random: ANY, unobservable: None }
}

/// One that nobody outside can see, and why.
const fn hidden(
    bug: &'static str,
    rule: &'static str,
    mistake: &'static str,
    why: &'static str,
) -> Case {
    Case { unobservable: Some(why), ..case(bug, rule, mistake, &[]) }
}

/// All of them, by rule.
pub(crate) const CATALOG: &[Case] = &[
    case(
        "r1-no-recheck",
        "R1",
        "who was found caught up once is not looked at again",
        &["slow-catch-up"],
    ),
    case("r2-no-fenced-check", "R2", "a fenced replica is eligible", &["kip-841-fenced-replica"]),
    case(
        "r3-accept-mismatch",
        "R3",
        "a replica in another life than the metadata knows is eligible",
        &["kip-903-stale-broker-epoch"],
    ),
    case(
        "r4-no-epoch-clause",
        "R4",
        "the start of the leader's epoch need not be reached",
        &["kafka-7128-join-before-epoch-start"],
    ),
    case(
        "r5-admit-by-lag",
        "R5",
        "a replica that lacks some thousand records is in sync",
        &["slow-catch-up"],
    ),
    case(
        "r6-last-fetch-time",
        "R6",
        "whoever fetches is in sync, however far behind",
        &["slow-replica-leaves"],
    ),
    case(
        "r7-update-on-diverging",
        "R7",
        "a fetch that diverges tells how far the replica is",
        &["diverging-fetch"],
    ),
    case(
        "r8-no-second-clause",
        "R8",
        "only a fetch at the leader's end counts as caught up",
        &["steady-writes-steady-isr"],
    ),
    case(
        "r9-maximal-is-isr",
        "R9",
        "who is about to enter does not count yet",
        &["lost-expansion"],
    ),
    case(
        "r10-assume-success",
        "R10",
        "a shrink of the ISR counts before it is confirmed",
        &["zombie-leader"],
    ),
    hidden(
        "r11-keep-proposed",
        "R11",
        "the ISR is what was proposed, whatever the controller answered",
        "an answer names another ISR than the proposal only where it completes a reassignment; the controller then begins a new leader epoch, and such an answer does not count (R12)",
    ),
    case("r12-accept-older", "R12", "any answer counts, however old", &["late-isr-answer"]),
    case(
        "r13-no-hw-attempt",
        "R13",
        "a changed ISR does not move the high watermark",
        &["kafka-13091-hw-after-shrink"],
    ),
    case(
        "r14-retry",
        "R14",
        "a proposal that was refused for good is sent again",
        &["refused-for-good"],
    ),
    case("r15-stay-pending", "R15", "a rejected proposal stays pending", &["rejected-once"]),
    case(
        "r16-lose-retry",
        "R16",
        "a proposal that got no answer is forgotten",
        &["lost-isr-change"],
    ),
    case(
        "r17-no-wait",
        "R17",
        "an eligible replica that is caught up is not waited for",
        &["kafka-4485-small-writes"],
    ),
    case(
        "r17-no-eligibility",
        "R17",
        "a replica is waited for though it cannot enter the ISR",
        &["stopped-follower"],
    ),
    case(
        "r18-plain-assignment",
        "R18",
        "the leader's high watermark is whatever comes out",
        &["kip-841-unfenced-behind"],
    ),
    case(
        "r19-no-min-isr",
        "R19",
        "the high watermark moves however small the ISR is",
        &["kafka-15583-hw-below-min-isr"],
    ),
    case(
        "r20-no-upper-clamp",
        "R20",
        "a follower's high watermark lies above its log's end",
        &["slow-catch-up"],
    ),
    case(
        "r21-record-on-append",
        "R21",
        "a new leader's epoch is noted with its first record only",
        &["kip-279-fast-failover"],
    ),
    case(
        "r22-offset-without-epoch",
        "R22",
        "the answer is an offset, not the epoch that ends there",
        &["kip-279-fast-failover"],
    ),
    case(
        "r23-ignore-own-end",
        "R23",
        "the follower does not look where the epoch ends in its own log",
        &["kip-279-fast-failover"],
    ),
    case(
        "r24-truncate-to-hw",
        "R24",
        "a follower begins by cutting its log to its high watermark",
        &["kip-101-truncation-to-hw"],
    ),
    case(
        "r25-compare-lengths",
        "R25",
        "a follower whose log is no longer than its leader's keeps it",
        &["kip-101-two-lengths"],
    ),
    hidden(
        "r26-start-at-log-end",
        "R26",
        "a follower without epochs keeps its whole log",
        "every batch carries its epoch and the last segment is read at each start, checkpoint or not: a log with records never lacks an epoch, and one without has nothing to cut",
    ),
    case(
        "r27-batch-expiries",
        "R27",
        "brokers that fall silent together are fenced in one event",
        &["simultaneous-expiries"],
    ),
    case(
        "r28-reverse",
        "R28",
        "a broker leaves ISRs before it is recorded that it is on its way out",
        &["controlled-shutdown"],
    ),
    case(
        "r29-ignore-topic",
        "R29",
        "unclean elections whatever the topic allows",
        &["unclean-election-off/elr-off"],
    ),
    hidden(
        "r29-no-repeat",
        "R29",
        "what one pass of elections leaves over is not taken up at once",
        "the controller looks for leaderless partitions several times a second, so that what one pass leaves over is taken up by the next; a controller that looks every few minutes would need it",
    ),
    case(
        "r30-empty-isr",
        "R30",
        "the last member of the ISR leaves it",
        &["unclean-election-off/elr-off"],
    ),
    case("r31-no-epoch-check", "R31", "the asker's leader epoch is not looked at", &["calm"]),
    case(
        "r32-fail-always",
        "R32",
        "a fenced fetcher gives up for good, newer metadata or not",
        &["kafka-7786-fenced-fetcher"],
    ),
    case(
        "r33-hw-before-truncating",
        "R33",
        "the high watermark is the leader's before the log is cut",
        &["kafka-14704-hw-while-diverging"],
    ),
    case("r34-serve-to-log-end", "R34", "consumers are served to the log's end", &["dirty-read"]),
    case(
        "r35-no-partition-epoch",
        "R35",
        "the partition epoch on which a proposal builds is not looked at",
        &["late-isr-request"],
    ),
    case(
        "r36-no-eligibility",
        "R36",
        "the controller takes anyone into an ISR",
        &["kip-903-stale-broker-epoch"],
    ),
    case(
        "ack-before-replication",
        "general",
        "an acks=all write is answered once the leader has it",
        &["zombie-leader"],
    ),
    case("no-dedup", "general", "a batch that is sent again is written again", &["lost-answers"]),
    case(
        "dedup-window-of-one",
        "general",
        "only the last batch of a producer is remembered",
        &["lost-pipelined-answers"],
    ),
    case(
        "dedup-lost-on-failover",
        "general",
        "followers do not learn what producers have written",
        &["lost-answers"],
    ),
    case(
        "fetch-skips-at-segment-end",
        "general",
        "a consumer is not given the last batch of a segment",
        &["small-segments"],
    ),
    case(
        "fetch-falls-back-to-log-start",
        "general",
        "a consumer beyond the end is served from the log's start",
        &["calm"],
    ),
    case(
        "offset-commit-lost",
        "general",
        "some commits of groups are answered and not kept",
        &["group-offsets"],
    ),
    case(
        "reordered-batches",
        "general",
        "some batches are put off until the producer's next one was written",
        &["pipelined-batches"],
    ),
    case(
        "offset-zero-answered",
        "general",
        "a producer is told that its record is at offset 0",
        &["calm"],
    ),
    case(
        "error-after-append",
        "general",
        "some writes are refused after they were written",
        &["calm"],
    ),
    case("value-corrupted", "general", "some values are changed, checksum and all", &["calm"]),
    case("wrong-partition", "general", "some writes land in the next partition", &["calm"]),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use broker::seeded::Bug;

    use super::*;

    #[test]
    fn every_bug_of_the_broker_has_its_case_and_every_scenario_exists() {
        let known: BTreeSet<&str> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        let here: BTreeSet<&str> = CATALOG.iter().map(|case| case.bug).collect();
        assert_eq!(known, here);
        let scenarios = crate::scenario::ours().unwrap();
        let names: BTreeSet<&str> = scenarios.iter().map(|one| one.name.as_str()).collect();
        for case in CATALOG {
            for name in case.scenarios {
                let stem = name.split('/').next().unwrap();
                assert!(names.contains(stem), "{}: there is no scenario {name}", case.bug);
            }
        }
    }
}
