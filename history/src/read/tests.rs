//! Both readers of lines agree, and what is broken is named.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::chunk::{Chunk, RawOp, RawValue};
use super::fast;
use crate::{
    Draft, Event, Function, History, Key, Kind, MicroOp, Outcome, Process, ReadError, Rebalance,
    RebalanceKind, Value,
};

fn key() -> impl Strategy<Value = Key> {
    "[a-z]{1,3}-[0-9]".prop_map(|name| Key::from(name.as_str()))
}

fn micro_op(kind: Kind, sends: bool) -> BoxedStrategy<MicroOp> {
    let value = prop_oneof![0..1_000_i64, any::<i64>()];
    match (sends, kind) {
        (true, Kind::Ok) => (key(), prop::option::of(0..i64::MAX), value)
            .prop_map(|(key, offset, value)| MicroOp::Sent { key, offset, value })
            .boxed(),
        (true, _) => (key(), value).prop_map(|(key, value)| MicroOp::Send { key, value }).boxed(),
        (false, Kind::Ok) => {
            let pairs = prop::collection::vec((0..i64::MAX, value), 0..4);
            prop::collection::btree_map(key(), pairs, 0..3).prop_map(MicroOp::Polled).boxed()
        }
        (false, _) => Just(MicroOp::Poll).boxed(),
    }
}

fn body() -> impl Strategy<Value = Draft> {
    let kind = prop_oneof![Just(Kind::Invoke), Just(Kind::Ok), Just(Kind::Fail), Just(Kind::Info)];
    let function = prop_oneof![
        Just("send"),
        Just("poll"),
        Just("txn"),
        Just("assign"),
        Just("subscribe"),
        Just("crash"),
        Just("debug"),
    ];
    let rebalance = (any::<bool>(), prop::collection::vec(key(), 0..3)).prop_map(|(gain, keys)| {
        let event = if gain { RebalanceKind::Assign } else { RebalanceKind::Revoke };
        Rebalance { event, keys }
    });
    let rest = (
        prop_oneof![0..50_u64, any::<u64>()],
        prop::option::of(".{0,12}"),
        any::<bool>(),
        prop::collection::vec(rebalance, 0..2),
        prop::option::of(any::<u64>()),
    );
    (kind, function, rest).prop_flat_map(|(kind, function, rest)| {
        let ops = move |sends: Vec<bool>| -> BoxedStrategy<Value> {
            let ops: Vec<_> = sends.into_iter().map(|sends| micro_op(kind, sends)).collect();
            ops.prop_map(Value::Ops).boxed()
        };
        let value = match function {
            "send" => (0..3_usize).prop_flat_map(move |n| ops(vec![true; n])).boxed(),
            "poll" => (0..3_usize).prop_flat_map(move |n| ops(vec![false; n])).boxed(),
            "txn" => prop::collection::vec(any::<bool>(), 0..4).prop_flat_map(ops).boxed(),
            "assign" | "subscribe" => prop::collection::vec(".{0,6}", 0..3)
                .prop_map(|names| Value::Names(names.iter().map(|n| Arc::from(&**n)).collect()))
                .boxed(),
            _ => Just(Value::Null).boxed(),
        };
        let (process, error, seek_to_beginning, rebalance_log, scheduled_ns) = rest;
        value.prop_map(move |value| Draft {
            process: Process::Client(process),
            kind,
            function: Function::from(function),
            value,
            error: error.clone(),
            seek_to_beginning,
            rebalance_log: rebalance_log.clone(),
            scheduled_ns,
        })
    })
}

fn event() -> impl Strategy<Value = Event> {
    (any::<u64>(), any::<u64>(), body()).prop_map(|(index, time_ns, body)| Event {
        index,
        time_ns,
        body,
    })
}

/// The text of an event, its fields in another order, with spaces and a field nobody knows.
fn disguised(event: &Event, turn: usize, space: bool, stranger: bool) -> String {
    let text = serde_json::to_string(event).unwrap();
    let json: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    let mut fields: Vec<String> = json
        .iter()
        .map(|(name, value)| {
            let value = value.to_string();
            if space { format!(" \"{name}\" :\t{value} ") } else { format!("\"{name}\":{value}") }
        })
        .collect();
    let turn = turn % fields.len();
    fields.rotate_left(turn);
    if stranger {
        fields.push("\"stranger\":[1,{\"a\":null}]".to_owned());
    }
    format!("{{{}}}", fields.join(","))
}

/// What a chunk holds, with names instead of numbers.
fn told(chunk: &Chunk) -> Vec<String> {
    let name = |id: &u32| chunk.name_table.get(*id).to_owned();
    let op = |op: &RawOp| match op {
        RawOp::Send { key, value } => format!("send {} {value}", name(key)),
        RawOp::Sent { key, offset, value } => format!("sent {} {offset} {value}", name(key)),
        RawOp::Poll => "poll".to_owned(),
        RawOp::Batch { key, pairs } => {
            format!("{} {:?}", name(key), &chunk.pairs[pairs.range()])
        }
    };
    let events = chunk.events.iter().map(|event| {
        let value: Vec<String> = match event.value {
            RawValue::Nothing => Vec::new(),
            RawValue::Ops(span) => chunk.ops[span.range()].iter().map(op).collect(),
            RawValue::Names(span) => chunk.names[span.range()].iter().map(name).collect(),
            RawValue::Json(place) => vec![chunk.jsons[place as usize].to_string()],
        };
        let rebalanced: Vec<String> =
            chunk.names[event.rebalanced.range()].iter().map(name).collect();
        format!(
            "{} {} {:?} {:?} {} {:?} {} {:?} {:?} {value:?} {rebalanced:?}",
            event.index,
            event.time_ns,
            event.scheduled_ns,
            event.process,
            event.line,
            event.kind,
            event.seek_to_beginning,
            event.error.map(|code| chunk.error_table.get(code)),
            chunk.function_table.get(event.function),
        )
    });
    events.collect()
}

fn careful(line: &[u8]) -> Option<Chunk> {
    let mut chunk = Chunk::default();
    chunk.push_event(&Event::from_line(line).ok()?);
    Some(chunk)
}

fn quick(line: &[u8]) -> Option<Chunk> {
    let mut chunk = Chunk::default();
    let event = fast::parse(line, &mut chunk)?;
    chunk.events.push(event);
    Some(chunk)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_event_is_read_as_it_was_written(event in event()) {
        let line = serde_json::to_vec(&event).unwrap();
        prop_assert_eq!(Event::from_line(&line).unwrap(), event);
    }

    #[test]
    fn both_readers_agree(
        event in event(), turn in 0..12_usize, space in any::<bool>(), stranger in any::<bool>(),
    ) {
        let line = disguised(&event, turn, space, stranger);
        let careful = careful(line.as_bytes()).expect("it is well formed");
        if let Some(quick) = quick(line.as_bytes()) {
            prop_assert_eq!(told(&quick), told(&careful));
        }
        prop_assert_eq!(told(&Chunk::parse(line.as_bytes())), told(&careful));
    }

    #[test]
    fn what_the_careful_reader_refuses_the_quick_one_does_not_take(
        event in event(), cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3),
    ) {
        let mut line = serde_json::to_vec(&event).unwrap();
        for (place, byte) in cuts {
            let place = place.index(line.len());
            if byte < 100 {
                line.truncate(place.max(1));
            } else {
                line[place] = byte % 128;
            }
        }
        match (quick(&line), careful(&line)) {
            (Some(quick), Some(careful)) => prop_assert_eq!(told(&quick), told(&careful)),
            (Some(_), None) => prop_assert!(false, "{}", String::from_utf8_lossy(&line)),
            (None, _) => {}
        }
    }

    #[test]
    fn nothing_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = History::read(bytes.as_slice());
    }
}

#[test]
fn the_shapes_that_the_rig_writes_are_read_quickly() {
    for line in [
        r#"{"index":0,"time":1,"process":3,"type":"invoke","f":"send","value":[["send","orders-0",17]],"scheduled":5}"#,
        r#"{"index":0,"time":1,"process":3,"type":"ok","f":"send","value":[["send","orders-0",[42,17]]]}"#,
        r#"{"index":0,"time":1,"process":3,"type":"ok","f":"send","value":[["send","orders-0",[null,17]]]}"#,
        r#"{"index":0,"time":1,"process":3,"type":"info","f":"send","value":[["send","orders-0",17]],"error":"timed-out: no answer"}"#,
        r#"{"index":0,"time":1,"process":3,"type":"ok","f":"poll","value":[["poll",{"a-0":[[1,2]],"b-0":[]}]],"rebalance-log":[{"event":"assign","keys":["a-0"]}]}"#,
        r#"{"index":0,"time":1,"process":3,"type":"ok","f":"assign","value":["a-0"],"seek-to-beginning":true}"#,
        r#"{"index":0,"time":1,"process":3,"type":"info","f":"crash","value":null}"#,
    ] {
        assert!(quick(line.as_bytes()).is_some(), "{line}");
    }
}

const INVOKE: &str =
    r#"{"index":0,"time":1,"process":3,"type":"invoke","f":"send","value":[["send","k-0",1]]}"#;

fn refused(lines: &[&str]) -> (u64, String, String) {
    let text = lines.join("\n") + "\n";
    match History::read(text.as_bytes()) {
        Err(ReadError::Line { line, expected, found }) => (line, expected, found),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_broken_is_named_with_its_line() {
    let second = |line: &str| refused(&[INVOKE, line]);
    for (line, expected, found) in [
        ("{\"index\":1,", "a JSON object", "`{\"index\":1,` (EOF"),
        ("[1]", "a JSON object", "`[1]`"),
        (r#"{"index":1}"#, "a field \"time\"", "none"),
        (r#"{"index":1.5,"time":1}"#, "an integer from 0 up as \"index\"", "`1.5`"),
        (
            r#"{"index":1,"time":1,"process":"n1","type":"ok","f":"send"}"#,
            "an integer from 0 up, \"nemesis\" or \"observer\" as \"process\"",
            "`\"n1\"`",
        ),
        (
            r#"{"index":1,"time":1,"process":3,"type":"done","f":"send"}"#,
            "\"invoke\", \"ok\", \"fail\" or \"info\" as \"type\"",
            "`\"done\"`",
        ),
        (
            r#"{"index":2,"time":1,"process":3,"type":"ok","f":"send","value":[["send","k-0",[0,1]]]}"#,
            "index 1",
            "index 2",
        ),
        (
            r#"{"index":1,"time":1,"process":3,"type":"ok","f":"send","value":[["send","k-0",1]]}"#,
            "[\"send\",KEY,[OFFSET,VALUE]] with integers, or null as OFFSET",
            "`[\"send\",\"k-0\",1]`",
        ),
        (
            r#"{"index":1,"time":1,"process":3,"type":"ok","f":"send","value":[["send","k-0",[0,2]]]}"#,
            "a send of 1 to k-0, as it was invoked",
            "a send of 2 to k-0",
        ),
        (
            r#"{"index":1,"time":1,"process":3,"type":"ok","f":"send","value":[["send","k-0",[-1,1]]]}"#,
            "[\"send\",KEY,[OFFSET,VALUE]] with integers, or null as OFFSET",
            "[-1,1]",
        ),
        (
            r#"{"index":1,"time":1,"process":4,"type":"ok","f":"poll","value":[["poll",{}]]}"#,
            "an invocation by process 4 before this completion",
            "none that is open",
        ),
        (
            r#"{"index":1,"time":1,"process":3,"type":"ok","f":"poll","value":[["poll",{}]]}"#,
            "the completion of `send`, which process 3 began at index 0",
            "that of `poll`",
        ),
        (
            r#"{"index":1,"time":1,"process":3,"type":"invoke","f":"poll","value":[["poll"]]}"#,
            "the completion of what process 3 began at index 0",
            "another invocation of it",
        ),
        (
            r#"{"index":1,"time":1,"process":4,"type":"invoke","f":"poll","value":[["send","k-0",1]]}"#,
            "a poll in a poll",
            "`[\"send\",\"k-0\",1]`",
        ),
        (
            r#"{"index":1,"time":1,"process":4,"type":"invoke","f":"assign","value":"k-0"}"#,
            "a list of keys or topics as \"value\"",
            "`\"k-0\"`",
        ),
    ] {
        let (at, wanted, seen) = second(line);
        assert_eq!((at, wanted.as_str()), (2, expected), "{line}");
        assert!(seen.contains(found), "{line}: {seen}");
    }
}

#[test]
fn a_process_that_ended_info_is_never_used_again() {
    let info =
        r#"{"index":1,"time":2,"process":3,"type":"info","f":"send","value":[["send","k-0",1]]}"#;
    let again =
        r#"{"index":2,"time":3,"process":3,"type":"invoke","f":"send","value":[["send","k-0",2]]}"#;
    let (line, expected, _) = refused(&[INVOKE, info, again]);
    assert_eq!(line, 3);
    assert_eq!(expected, "no more of process 3, whose operation ended info at index 1");
}

#[test]
fn a_cut_last_line_warns_and_a_whole_one_without_line_end_counts() {
    let ok =
        r#"{"index":1,"time":2,"process":3,"type":"ok","f":"send","value":[["send","k-0",[0,1]]]}"#;
    let whole = History::read(format!("{INVOKE}\n{ok}").as_bytes()).unwrap();
    assert_eq!((whole.events, whole.warnings.len()), (2, 0));
    for cut in 1..ok.len() {
        let text = format!("{INVOKE}\n{}", &ok[..cut]);
        let history = History::read(text.as_bytes()).unwrap();
        assert_eq!(history.events, 1);
        assert_eq!(
            history.warnings,
            ["line 2, the last, is cut: the history was read up to there"]
        );
        assert_eq!(history.operations[0].outcome, Outcome::Open);
    }
    // With a line end it is not cut, but broken.
    let (line, ..) = refused(&[INVOKE, &ok[..20]]);
    assert_eq!(line, 2);
}

#[test]
fn lines_are_numbered_across_chunks_and_long_lines_are_read() {
    let mut text = String::new();
    let mut index = 0;
    let pairs: Vec<(i64, i64)> = (0..200_000).map(|n| (n, n)).collect();
    let records = BTreeMap::from([(Key::new("k", 0), pairs)]);
    for process in 0..2_u64 {
        let asked = Value::Ops(vec![MicroOp::Poll]);
        let done = Value::Ops(vec![MicroOp::Polled(records.clone())]);
        for (kind, value) in [(Kind::Invoke, asked), (Kind::Ok, done)] {
            let body = Draft::new(Process::Client(process), kind, Function::Poll, value);
            let event = Event { index, time_ns: index, body };
            text += &serde_json::to_string(&event).unwrap();
            text += "\n\n";
            index += 1;
        }
    }
    assert!(text.len() > 4 << 20);
    let history = History::read(text.as_bytes()).unwrap();
    assert_eq!(history.events, 4);
    let key = history.names.find("k-0").unwrap();
    let log = &history.logs[key as usize];
    assert_eq!((log.records.len(), log.batches.len()), (200_000, 2));
    assert!(log.batches.iter().all(|batch| log.runs(batch).len() == 1));
    text += "oops\n";
    match History::read(text.as_bytes()) {
        Err(ReadError::Line { line, .. }) => assert_eq!(line, 9),
        other => panic!("{other:?}"),
    }
}

#[test]
fn compressed_histories_are_read_and_broken_ones_refused() {
    let packed = zstd::encode_all(format!("{INVOKE}\n").as_bytes(), 0).unwrap();
    assert_eq!(History::read(packed.as_slice()).unwrap().events, 1);
    let cut = &packed[..packed.len() - 3];
    assert!(matches!(History::read(cut), Err(ReadError::Io(_))));
    assert_eq!(History::read(&b""[..]).unwrap().events, 0);
}
