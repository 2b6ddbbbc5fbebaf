//! What must hold, one anomaly or family a file.
//!
//! | anomaly | checker, and its file |
//! |---|---|
//! | inconsistent-offsets | [`inconsistent_offsets`] |
//! | duplicate | [`duplicate`] |
//! | lost-write, unseen | [`lost_write`] |
//! | G1a, no-writer | [`aborted_read`] |
//! | precommitted-read | [`precommitted_read`] |
//! | poll-skip, nonmonotonic-poll, int-poll-skip, int-nonmonotonic-poll | [`poll_order`] |
//! | int-send-skip, int-nonmonotonic-send, nonmonotonic-send | [`send_order`] |
//! | realtime-order | [`realtime_order`] |
//! | read-uncommitted-hw | [`vanished`] |
//! | torn-txn | [`torn_txn`] |
//! | leaderless, stuck-replica, stuck-hw | [`recovery`] |
//! | replica-divergence, damaged-batch, misnumbered-batch, read-uncommitted-hw | [`disks`] |
//! | hw-violation, unchecked-fetch | [`raw_fetch`] |
//! | isr-thrash | [`isr_thrash`] |
//! | offset-commit-lost, offset-commit-ahead | [`offset_commit`] |
//! | ack-under-replicated | [`under_replicated`] |
//! | hw-regression, isr-invalid, replica-bounds | [`replica_state`] |
//! | too little to judge | [`coverage`] |
//!
//! A checker that panics makes the verdict unknown and takes nothing from the others.

mod aborted_read;
mod coverage;
mod disks;
mod duplicate;
mod inconsistent_offsets;
mod isr_thrash;
mod lost_write;
mod offset_commit;
mod poll_order;
mod precommitted_read;
mod raw_fetch;
mod realtime_order;
mod recovery;
mod replica_state;
mod send_order;
mod torn_txn;
mod under_replicated;
mod vanished;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use history::History;

use crate::findings::Findings;
use crate::order::{KeyOrder, Orders};
use crate::parallel::map_parallel;
use crate::verdict::{CheckerReport, Validity, Verdict};

/// What a checker looks at.
enum Scope {
    /// One key; keys are looked at side by side.
    Key(fn(&KeyOrder<'_>, &mut Findings)),
    /// All keys together.
    Orders(fn(&Orders<'_>, &History, &mut Findings)),
}

struct Checker {
    name: &'static str,
    scope: Scope,
}

const fn by_key(name: &'static str, check: fn(&KeyOrder<'_>, &mut Findings)) -> Checker {
    Checker { name, scope: Scope::Key(check) }
}

const fn overall(name: &'static str, check: fn(&Orders<'_>, &History, &mut Findings)) -> Checker {
    Checker { name, scope: Scope::Orders(check) }
}

const CHECKERS: &[Checker] = &[
    by_key("inconsistent-offsets", inconsistent_offsets::check),
    by_key("duplicate", duplicate::check),
    by_key("lost-write", lost_write::check),
    by_key("aborted-read", aborted_read::check),
    by_key("precommitted-read", precommitted_read::check),
    by_key("poll-order", poll_order::check),
    by_key("send-order", send_order::check),
    by_key("realtime-order", realtime_order::check),
    by_key("vanished", vanished::check),
    overall("torn-txn", torn_txn::check),
    overall("recovery", recovery::check),
    overall("replica-state", replica_state::check),
    overall("raw-fetch", raw_fetch::check),
    overall("isr-thrash", isr_thrash::check),
    overall("offset-commit", offset_commit::check),
    overall("under-replicated", under_replicated::check),
    overall("disks", disks::check),
    overall("coverage", coverage::check),
];

/// Runs every checker; statistics are left empty.
pub(crate) fn run(orders: &Orders<'_>, history: &History) -> Verdict {
    run_all(CHECKERS, orders, history)
}

fn run_all(checkers: &[Checker], orders: &Orders<'_>, history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let by_key = map_parallel(orders.keys.iter().collect(), |order| {
        let scoped = checkers.iter().map(|checker| match checker.scope {
            Scope::Key(check) => guarded(|findings| check(order, findings)),
            Scope::Orders(_) => Findings::default(),
        });
        scoped.collect::<Vec<Findings>>()
    });
    let mut sums: Vec<Findings> = checkers.iter().map(|_| Findings::default()).collect();
    for found in by_key {
        for (sum, more) in sums.iter_mut().zip(found) {
            sum.append(more);
        }
    }
    for (checker, mut findings) in checkers.iter().zip(sums) {
        if let Scope::Orders(check) = checker.scope {
            findings.append(guarded(|findings| check(orders, history, findings)));
        }
        report(checker.name, findings, &mut verdict);
    }
    verdict
}

/// Adds what one checker found to the verdict.
fn report(checker: &str, findings: Findings, verdict: &mut Verdict) {
    let valid = findings.valid();
    let reasons = findings.reasons.clone();
    let anomalies = findings.into_anomalies();
    let report = CheckerReport { valid, anomalies: anomalies.keys().cloned().collect(), reasons };
    verdict.valid = verdict.valid.merge(valid);
    verdict.checkers.insert(checker.to_owned(), report);
    verdict.anomalies.extend(anomalies);
}

/// What `check` found; unknown, with what it had found, if it panicked.
fn guarded(check: impl FnOnce(&mut Findings)) -> Findings {
    let mut findings = Findings::default();
    let outcome = catch_unwind(AssertUnwindSafe(|| check(&mut findings)));
    if let Err(panic) = outcome {
        findings.reasons.push(crash_reason(&*panic));
    }
    findings
}

/// The verdict, and that `part` panicked.
pub(crate) fn crashed(mut verdict: Verdict, part: &str, panic: &(dyn Any + Send)) -> Verdict {
    let report = CheckerReport {
        valid: Validity::Unknown,
        anomalies: Vec::new(),
        reasons: vec![crash_reason(panic)],
    };
    verdict.valid = verdict.valid.merge(report.valid);
    verdict.checkers.insert(part.to_owned(), report);
    verdict
}

fn crash_reason(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    format!("it crashed, which is a fault of its own: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crashes(_: &KeyOrder<'_>, _: &mut Findings) {
        panic!("on purpose");
    }

    #[test]
    fn a_checker_that_panics_is_unknown_and_the_others_still_speak() {
        let lines = concat!(
            r#"{"index":0,"time":0,"process":0,"type":"invoke","f":"send","value":[["send","k-0",1]]}"#,
            "\n",
            r#"{"index":1,"time":1,"process":0,"type":"fail","f":"send","value":[["send","k-0",1]]}"#,
            "\n",
            r#"{"index":2,"time":2,"process":1,"type":"invoke","f":"poll","value":[["poll"]]}"#,
            "\n",
            r#"{"index":3,"time":3,"process":1,"type":"ok","f":"poll","value":[["poll",{"k-0":[[0,1]]}]]}"#,
            "\n",
        );
        let history = History::read(lines.as_bytes()).unwrap();
        let orders = Orders::new(&history);
        let checkers = [by_key("crashing", crashes), by_key("aborted-read", aborted_read::check)];
        let alone = run_all(&checkers[..1], &orders, &history);
        assert_eq!(alone.valid, Validity::Unknown);
        assert_eq!(
            alone.checkers["crashing"].reasons,
            ["it crashed, which is a fault of its own: on purpose"]
        );
        let both = run_all(&checkers, &orders, &history);
        assert_eq!(both.valid, Validity::False);
        assert_eq!(both.anomalies["G1a"].count, 1);
        assert_eq!(both.checkers["crashing"].valid, Validity::Unknown);
    }
}
