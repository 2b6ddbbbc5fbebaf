//! Did enough happen to judge? What is missing makes the verdict unknown.

use history::{History, Outcome};
use serde_json::Value as Json;

use crate::faults::faults;
use crate::findings::Findings;
use crate::order::{KeyOrder, Orders};

/// Most keys that a sentence names.
const SHOWN: usize = 8;

pub(super) fn check(orders: &Orders<'_>, history: &History, findings: &mut Findings) {
    let reasons = &mut findings.reasons;
    if history.events == 0 {
        reasons.push("the history is empty".to_owned());
        return;
    }
    let acknowledged = |order: &KeyOrder<'_>| {
        let mut sends = order.log.sends.iter();
        sends.any(|sent| history.op(sent.op).outcome == Outcome::Ok)
    };
    if !orders.keys.iter().any(acknowledged) {
        reasons.push("no send was ok".to_owned());
    }
    // A heal that failed is told beside the numbers. It costs the verdict only what it keeps from
    // being read.
    let faults = faults(history);
    for fault in faults.iter().filter(|fault| fault.ended.is_none()) {
        let (index, _) = fault.installed;
        reasons.push(format!("the {} installed at index {index} was still in force", fault.name));
    }
    reasons.extend(unmet_steps(history));
    // Whatever the nemesis wrote last, foreign shapes included: reading must have gone on after it.
    let last_fault = history.nemesis.last().map(|note| note.index);
    reasons.extend(no_poll(history, last_fault));
    reasons.extend(orders.keys.iter().filter_map(|order| not_read_since(order, last_fault)));
    let unread: Vec<String> = orders.keys.iter().filter_map(unread_end).collect();
    if let Some(shown) = unread.get(..unread.len().min(SHOWN)).filter(|some| !some.is_empty()) {
        let more = unread.len() - shown.len();
        let more = if more > 0 { format!(" and {more} more keys") } else { String::new() };
        reasons
            .push(format!("not read to the last acknowledged value: {}{more}", shown.join(", ")));
    }
    let resent: Vec<&str> = orders
        .keys
        .iter()
        .filter(|order| !order.resent.is_empty())
        .map(KeyOrder::name)
        .take(SHOWN)
        .collect();
    if !resent.is_empty() {
        reasons.push(format!(
            "values must be unique, but some were sent more than once to {}",
            resent.join(", ")
        ));
    }
}

/// Steps of a scenario that did not come about: what it was to show was not shown.
fn unmet_steps(history: &History) -> impl Iterator<Item = String> + '_ {
    history.nemesis.iter().filter(|note| note.function == "step").filter_map(|note| {
        let word = |field: &str| note.value.get(field).and_then(Json::as_str);
        let why = word("unmet")?;
        let step = word("step").unwrap_or_default();
        Some(format!("the step `{step}` did not come about (index {}): {why}", note.index))
    })
}

fn no_poll(history: &History, last_fault: Option<u64>) -> Option<String> {
    let polls = [history.functions.find("poll"), history.functions.find("txn")];
    let after = last_fault.unwrap_or(0);
    let polled = history.operations.iter().rev().any(|op| {
        op.outcome == Outcome::Ok
            && polls.contains(&Some(op.function))
            && u64::from(op.invoked) >= after
    });
    match last_fault {
        _ if polled => None,
        Some(index) => Some(format!("no poll was ok after the last fault (index {index})")),
        None => Some("no poll was ok".to_owned()),
    }
}

/// A key that was sent to and of which nothing was read after the last fault: values read before
/// do not show that they survived it.
fn not_read_since(order: &KeyOrder<'_>, last_fault: Option<u64>) -> Option<String> {
    let after = last_fault.unwrap_or(0);
    let read = order.log.batches.iter().any(|batch| {
        let op = order.batch_op(batch);
        op.outcome == Outcome::Ok && u64::from(op.invoked) >= after
    });
    if read || order.log.sends.is_empty() {
        return None;
    }
    Some(match last_fault {
        Some(index) => {
            format!("nothing was read of {} after the last fault (index {index})", order.name())
        }
        None => format!("nothing was read of {}", order.name()),
    })
}

/// The last acknowledged value of a key: the one that stands furthest, or else the one that was
/// acknowledged last. Told if no ok poll returned it.
fn unread_end(order: &KeyOrder<'_>) -> Option<String> {
    let sends = order.log.sends.iter().enumerate();
    let acknowledged = sends.filter(|(_, sent)| order.history.op(sent.op).outcome == Outcome::Ok);
    let (_, last) = acknowledged.max_by_key(|(place, _)| (order.landed(*place), *place))?;
    let value = order.value_id(last.value)?;
    (!order.is_read(value)).then(|| {
        let index = order.history.op(last.op).completed;
        format!("{} ({}, index {index})", order.name(), last.value)
    })
}
