//! `poll-skip` and `nonmonotonic-poll`, within one operation (`int-`) and across a process's
//! successive polls: from one record of a key to the next the rank grows by exactly one.
//!
//! Steps are taken over offsets, so they mean the same where an offset holds several values or a
//! value stands at several offsets.
//!
//! In a group, a member reads on where the group stood when it is given a key: steps across a
//! rebalance are told, and allowed. A history that logs no rebalance at all cannot tell which
//! steps those are; then every step of a subscribed process is allowed.

use history::{Batch, Change, History, Outcome};
use rustc_hash::FxHashMap;

use crate::cursor::{Cursors, Mode, Since};
use crate::findings::Findings;
use crate::order::{KeyOrder, Record};
use crate::verdict::{Example, Validity};

pub(crate) const SKIP: &str = "poll-skip";
pub(crate) const BACK: &str = "nonmonotonic-poll";
pub(crate) const INT_SKIP: &str = "int-poll-skip";
pub(crate) const INT_BACK: &str = "int-nonmonotonic-poll";

/// Most skipped records that an example names.
const SKIPPED_SHOWN: u32 = 4;

/// Two records of a key, one read after the other.
struct Step<'a> {
    from: Record,
    to: Record,
    /// The completions that returned them.
    lines: [u32; 2],
    /// Told beside it where Kafka promises no better.
    allowed: Option<&'a str>,
}

pub(super) fn check(order: &KeyOrder<'_>, findings: &mut Findings) {
    let logged = logs_rebalances(order.history);
    let mut cursors = Cursors::new(order.history, order.id());
    let mut last: FxHashMap<u32, (Record, u32)> = FxHashMap::default();
    let mut before: Option<&Batch> = None;
    for batch in &order.log.batches {
        let op = order.batch_op(batch);
        let same_op = before.filter(|before| before.op == batch.op);
        before = Some(batch);
        let (Some(first), Some(end)) = (order.first(batch), order.last(batch)) else {
            continue;
        };
        if !rebalanced_in(order, batch) {
            let before = same_op.and_then(|before| order.last(before));
            within(order, batch, before, findings);
        }
        if op.outcome != Outcome::Ok {
            continue;
        }
        let since = cursors.advance(batch);
        let known = last.insert(op.process, (end, op.completed));
        if let Some((from, line)) = known
            && same_op.is_none()
            && since.goes_on
        {
            let step = Step {
                from,
                to: first,
                lines: [line, op.completed],
                allowed: allowed(&since, logged),
            };
            judge(order, &step, SKIP, BACK, findings);
        }
    }
}

/// The steps inside a batch, and from the record that its operation polled before.
fn within(order: &KeyOrder<'_>, batch: &Batch, before: Option<Record>, findings: &mut Findings) {
    let mut before = before;
    for run in order.log.runs(batch) {
        // Nearly all are straight: only how they are joined is left to look at.
        let ids = if order.is_straight(*run) { run.start..run.start + 1 } else { run.ids() };
        for to in ids.map(|id| order.record(id)) {
            if let Some(from) = before {
                let step =
                    Step { from, to, lines: [order.batch_op(batch).completed; 2], allowed: None };
                judge(order, &step, INT_SKIP, INT_BACK, findings);
            }
            before = Some(to);
        }
        before = Some(order.record(run.end - 1));
    }
}

fn logs_rebalances(history: &History) -> bool {
    let mut setups = history.setups.values().flatten();
    setups.any(|setup| matches!(setup.change, Change::Rebalance { .. }))
}

fn rebalanced_in(order: &KeyOrder<'_>, batch: &Batch) -> bool {
    let Some(setups) = order.history.setups.get(&order.batch_op(batch).process) else {
        return false;
    };
    let place = setups.partition_point(|setup| setup.op < batch.op);
    setups[place..].iter().take_while(|setup| setup.op == batch.op).any(|setup| {
        match &setup.change {
            Change::Rebalance { keys } => keys.binary_search(&order.id()).is_ok(),
            _ => false,
        }
    })
}

fn allowed(since: &Since, logged: bool) -> Option<&'static str> {
    if since.rebalanced {
        Some("across a rebalance")
    } else if since.mode == Mode::Subscribed && !logged {
        Some("in a group whose rebalances the history does not tell")
    } else {
        None
    }
}

fn judge(
    order: &KeyOrder<'_>,
    step: &Step<'_>,
    skip: &'static str,
    back: &'static str,
    findings: &mut Findings,
) {
    let valid = if step.allowed.is_some() { Validity::True } else { Validity::False };
    if step.to.rank <= step.from.rank {
        findings.add(back, valid, || went_back(order, step));
    } else if step.to.rank - step.from.rank > 1 {
        findings.add(skip, valid, || skipped(order, step));
    }
}

fn next_to(order: &KeyOrder<'_>, step: &Step<'_>) -> String {
    let [from, to] = [step.from, step.to].map(|record| {
        let (offset, value) = (order.offset(record.rank), order.value(record.value));
        format!("{value} at offset {offset}")
    });
    let [first, second] = step.lines;
    if first == second {
        format!("{from} and next {to} (both index {second})")
    } else {
        format!("{from} (index {first}) and next {to} (index {second})")
    }
}

fn whether_allowed(step: &Step<'_>) -> String {
    let allowed = step.allowed.map(|why| format!("; allowed, as it was {why}"));
    allowed.unwrap_or_default()
}

fn of_step(order: &KeyOrder<'_>, step: &Step<'_>, text: String) -> Example {
    let both = [step.from, step.to];
    Example::new(order.name(), text)
        .offsets(both.map(|record| order.offset(record.rank)))
        .values(both.map(|record| order.value(record.value)))
        .lines(step.lines)
}

fn went_back(order: &KeyOrder<'_>, step: &Step<'_>) -> Example {
    let text = format!(
        "{}: one process read {}, which is not further{}.",
        order.name(),
        next_to(order, step),
        whether_allowed(step)
    );
    of_step(order, step, text)
}

fn skipped(order: &KeyOrder<'_>, step: &Step<'_>) -> Example {
    let between = step.from.rank + 1..step.to.rank;
    let count = between.len();
    let shown: Vec<u32> = between.take(SKIPPED_SHOWN as usize).collect();
    let lines: Vec<u32> =
        shown.iter().filter_map(|rank| order.sighting(*rank, order.at(*rank))).collect();
    let told: Vec<String> = shown
        .iter()
        .zip(&lines)
        .map(|(rank, line)| {
            let (offset, value) = (order.offset(*rank), order.value(order.at(*rank)));
            format!("{value} at offset {offset} (index {line})")
        })
        .collect();
    let more = count - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let text = format!(
        "{}: one process read {}, and skipped {}{more}{}.",
        order.name(),
        next_to(order, step),
        told.join(", "),
        whether_allowed(step)
    );
    let mut example = of_step(order, step, text).lines(lines);
    let ranks = shown.iter();
    example.values.extend(ranks.map(|rank| order.value(order.at(*rank))));
    example
}
