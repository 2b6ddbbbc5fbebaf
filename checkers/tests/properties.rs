//! Histories of a log that keeps every promise are valid; one promise broken is found.

mod simulation;

use checkers::{Validity, Verdict};
use history::{Event, Function, Kind, MicroOp, Pair, Process, Value};
use proptest::prelude::*;
use proptest::sample::Index;

use simulation::{Shape, events, jsonl};

fn shapes() -> impl Strategy<Value = Shape> {
    let size = (any::<u64>(), 30..400_usize, 1..5_usize, 1..10_usize);
    let readers = (0..4_usize, 0..4_usize, 0..3_usize, 1..8_usize);
    let rest = (any::<bool>(), prop_oneof![Just(0_i64), Just(1_000_000_000_000)], 2..30_u32);
    (size, readers, rest, 0..4_usize).prop_map(
        |(
            (seed, operations, keys, open_sends),
            (consumers, members, transactors, poll_records),
            (holes, first_offset, trouble_every),
            faults,
        )| Shape {
            keys,
            open_sends,
            consumers,
            members,
            transactors,
            poll_records,
            holes,
            first_offset,
            trouble_every,
            faults,
            ..Shape::small(seed, operations)
        },
    )
}

fn judge(events: &[Event]) -> Result<Verdict, TestCaseError> {
    checkers::check(jsonl(events).as_slice())
        .map_err(|error| TestCaseError::fail(error.to_string()))
}

fn polled(event: &Event) -> impl Iterator<Item = (&str, &Vec<Pair>)> {
    let ops = match &event.body.value {
        Value::Ops(ops) => ops.as_slice(),
        _ => &[],
    };
    ops.iter().flat_map(|op| match op {
        MicroOp::Polled(records) => {
            records.iter().map(|(key, pairs)| (key.as_str(), pairs)).collect()
        }
        _ => Vec::new(),
    })
}

fn polled_mut(event: &mut Event) -> impl Iterator<Item = (String, &mut Vec<Pair>)> {
    let ops = match &mut event.body.value {
        Value::Ops(ops) => ops.as_mut_slice(),
        _ => &mut [],
    };
    ops.iter_mut().flat_map(|op| match op {
        MicroOp::Polled(records) => {
            records.iter_mut().map(|(key, pairs)| (key.to_string(), pairs)).collect()
        }
        _ => Vec::new(),
    })
}

/// An acknowledged send: the event, the key, the offset and the value.
type Acked = (usize, String, i64, i64);

/// Acknowledged sends whose offset is known, but for those of the last phase.
fn acknowledged(events: &[Event]) -> Vec<Acked> {
    let end = events.iter().position(|event| event.body.process == Process::Observer);
    let before = events.iter().enumerate().take(end.unwrap_or_default());
    before
        .filter(|(_, event)| event.body.kind == Kind::Ok && event.body.function == Function::Send)
        .filter_map(|(place, event)| match &event.body.value {
            Value::Ops(ops) => match ops.as_slice() {
                [MicroOp::Sent { key, offset: Some(offset), value }] => {
                    Some((place, key.to_string(), *offset, *value))
                }
                _ => None,
            },
            _ => None,
        })
        .collect()
}

/// Batches of ok polls during which nothing was rebalanced, with at least `least` records: the
/// place of the event and which of its batches.
fn batches(events: &[Event], least: usize) -> Vec<(usize, usize)> {
    let quiet = events
        .iter()
        .enumerate()
        .filter(|(_, event)| event.body.kind == Kind::Ok && event.body.rebalance_log.is_empty());
    quiet
        .flat_map(|(place, event)| {
            let batches = polled(event).enumerate();
            batches
                .filter(|(_, (_, pairs))| pairs.len() >= least)
                .map(move |(batch, _)| (place, batch))
                .collect::<Vec<_>>()
        })
        .collect()
}

fn pick<T: Clone>(items: &[T], index: Index) -> Result<T, TestCaseError> {
    if items.is_empty() {
        return Err(TestCaseError::reject("nothing to change"));
    }
    Ok(index.get(items).clone())
}

fn found(verdict: &Verdict, anomaly: &str) -> Result<(), TestCaseError> {
    let names: Vec<&String> = verdict.anomalies.keys().collect();
    prop_assert_eq!(verdict.valid, Validity::False, "found only {:?}", names);
    let valid = verdict.anomalies.get(anomaly).map(|anomaly| anomaly.valid);
    prop_assert_eq!(valid, Some(Validity::False), "{} is not among {:?}", anomaly, names);
    Ok(())
}

proptest! {
    // Each case judges a whole history: fewer than usual, unless PROPTEST_CASES says more.
    #![proptest_config(ProptestConfig {
        cases: 64,
        max_global_rejects: 1_000_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_log_that_keeps_every_promise_is_valid(shape in shapes()) {
        let events = events(&shape);
        let verdict = judge(&events)?;
        prop_assert_eq!(verdict.valid, Validity::True, "{:#?}", verdict);
        let ends = events.iter().filter(|event| event.body.kind == Kind::Invoke).count();
        prop_assert_eq!(verdict.stats.operations, ends as u64);
    }

    #[test]
    fn a_cut_history_of_such_a_log_is_never_invalid(shape in shapes(), cut in any::<Index>()) {
        let text = jsonl(&events(&shape));
        let verdict = checkers::check(&text[..cut.index(text.len())]).expect("a cut history");
        prop_assert_ne!(verdict.valid, Validity::False, "{:#?}", verdict);
    }

    #[test]
    fn an_acknowledged_value_that_nobody_reads_is_lost(shape in shapes(), which in any::<Index>()) {
        let mut events = events(&shape);
        let (_, key, offset, value) = pick(&acknowledged(&events), which)?;
        for event in &mut events {
            for (at, pairs) in polled_mut(event) {
                pairs.retain(|pair| at != key || *pair != (offset, value));
            }
        }
        found(&judge(&events)?, "lost-write")?;
    }

    #[test]
    fn a_tail_that_is_cut_off_is_lost(shape in shapes(), which in any::<Index>()) {
        let mut events = events(&shape);
        let (_, key, offset, value) = pick(&acknowledged(&events), which)?;
        // The value never was in the log, and where its sender thinks it landed there is nothing.
        for event in &mut events {
            for (at, pairs) in polled_mut(event) {
                pairs.retain(|pair| at != key || *pair != (offset, value));
            }
            if let Value::Ops(ops) = &mut event.body.value {
                for op in ops {
                    if let MicroOp::Sent { key: at, offset: there, value: other } = op
                        && at.as_str() == key && *other == value
                    {
                        *there = Some(i64::MAX - 1);
                    }
                }
            }
        }
        found(&judge(&events)?, "lost-write")?;
    }

    #[test]
    fn a_hole_in_a_poll_is_a_skip(
        shape in shapes(), which in any::<Index>(), record in any::<Index>(),
    ) {
        let mut events = events(&shape);
        let known = acknowledged(&events);
        let (place, batch) = pick(&batches(&events, 3), which)?;
        let (key, pairs) = polled_mut(&mut events[place]).nth(batch).expect("it is there");
        let gone = pairs.remove(1 + record.index(pairs.len() - 2));
        // Of what nobody acknowledged, that poll may be all that is known.
        prop_assume!(known.iter().any(|(_, at, offset, value)| {
            *at == key && (*offset, *value) == gone
        }));
        found(&judge(&events)?, "int-poll-skip")?;
    }

    #[test]
    fn swapped_records_go_back(
        shape in shapes(), which in any::<Index>(), record in any::<Index>(),
    ) {
        let mut events = events(&shape);
        let (place, batch) = pick(&batches(&events, 2), which)?;
        let (_, pairs) = polled_mut(&mut events[place]).nth(batch).expect("it is there");
        let first = record.index(pairs.len() - 1);
        pairs.swap(first, first + 1);
        found(&judge(&events)?, "int-nonmonotonic-poll")?;
    }

    #[test]
    fn a_value_that_stands_twice_is_a_duplicate(shape in shapes(), which in any::<Index>()) {
        let mut events = events(&shape);
        let (place, batch) = pick(&batches(&events, 1), which)?;
        let (_, pairs) = polled_mut(&mut events[place]).nth(batch).expect("it is there");
        let (_, value) = pairs[0];
        pairs.push((i64::MAX - 1, value));
        found(&judge(&events)?, "duplicate")?;
    }

    #[test]
    fn a_rewritten_record_is_inconsistent(shape in shapes(), which in any::<Index>()) {
        let mut events = events(&shape);
        let (_, key, offset, value) = pick(&acknowledged(&events), which)?;
        let read = events.iter_mut().rev().flat_map(polled_mut).find_map(|(at, pairs)| {
            pairs.iter_mut().find(|pair| at == key && **pair == (offset, value))
        });
        read.expect("the last reads return all").1 = value + 1_000_000;
        found(&judge(&events)?, "inconsistent-offsets")?;
    }

    #[test]
    fn a_rewritten_acknowledgement_is_inconsistent(shape in shapes(), which in any::<Index>()) {
        let mut events = events(&shape);
        let acknowledged = acknowledged(&events);
        let (place, key, offset, _) = pick(&acknowledged, which)?;
        let same = acknowledged.iter().find(|(_, other, at, _)| *other == key && *at != offset);
        let Some((_, _, elsewhere, _)) = same else {
            return Err(TestCaseError::reject("nothing to confuse it with"));
        };
        if let Value::Ops(ops) = &mut events[place].body.value
            && let [MicroOp::Sent { offset, .. }] = ops.as_mut_slice()
        {
            *offset = Some(*elsewhere);
        }
        found(&judge(&events)?, "inconsistent-offsets")?;
    }

    #[test]
    fn a_failed_send_that_is_read_is_an_aborted_read(shape in shapes(), which in any::<Index>()) {
        let mut events = events(&shape);
        let (place, ..) = pick(&acknowledged(&events), which)?;
        events[place].body.kind = Kind::Fail;
        found(&judge(&events)?, "G1a")?;
    }

    #[test]
    fn a_record_that_vanishes_after_its_delivery_is_found(
        shape in shapes(), which in any::<Index>(),
    ) {
        let mut events = events(&shape);
        let end = events.iter().position(|event| event.body.process == Process::Observer);
        let (before, last) = events.split_at_mut(end.expect("an observer"));
        let delivered: Vec<(String, Pair)> = before
            .iter()
            .filter(|event| event.body.kind == Kind::Ok)
            .flat_map(|event| polled(event).collect::<Vec<_>>())
            .flat_map(|(key, pairs)| pairs.iter().map(|pair| (key.to_owned(), *pair)))
            .collect();
        let (key, gone) = pick(&delivered, which)?;
        // A transaction that was not acknowledged may have been seen by a reader of uncommitted
        // records: nothing is concluded from those.
        let in_txn = before.iter().any(|event| {
            let Value::Ops(ops) = &event.body.value else {
                return false;
            };
            event.body.function == Function::Txn
                && event.body.kind == Kind::Invoke
                && ops.iter().any(|op| {
                    matches!(op, MicroOp::Send { key: at, value }
                        if at.as_str() == key && *value == gone.1)
                })
        });
        prop_assume!(!in_txn);
        // What precedes the first record that is read may have been removed by retention.
        let first = last.iter().flat_map(|event| polled(event).collect::<Vec<_>>());
        let first = first.filter(|(at, _)| *at == key).find_map(|(_, pairs)| pairs.first());
        prop_assume!(first != Some(&gone));
        for event in last {
            for (at, pairs) in polled_mut(event) {
                pairs.retain(|pair| at != key || *pair != gone);
            }
        }
        found(&judge(&events)?, "read-uncommitted-hw")?;
    }
}
