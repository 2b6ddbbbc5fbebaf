//! One line of a history.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::ser::{SerializeMap, SerializeSeq, SerializeTuple};
use serde::{Serialize, Serializer};

/// A partition, written as on disk: `orders-0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Key(Arc<str>);

impl Key {
    /// The key of `partition` of `topic`.
    pub fn new(topic: &str, partition: i32) -> Self {
        Self(format!("{topic}-{partition}").into())
    }

    /// The key as written in a history.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Topic and partition, where the key has the form `topic-partition`.
    pub fn split(&self) -> Option<(&str, i32)> {
        let (topic, partition) = self.0.rsplit_once('-')?;
        Some((topic, partition.parse().ok().filter(|p| *p >= 0)?))
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whose event it is.
///
/// A client process whose operation ended `info` is never used again: its thread goes on under
/// a new number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Process {
    /// A logical client thread; it has at most one operation open.
    Client(u64),
    /// The one who breaks things.
    Nemesis,
    /// The one who asks replicas what they know.
    Observer,
}

impl Serialize for Process {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Client(number) => out.serialize_u64(*number),
            Self::Nemesis => out.serialize_str("nemesis"),
            Self::Observer => out.serialize_str("observer"),
        }
    }
}

/// Where in its life an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// About to be asked.
    Invoke,
    /// It happened.
    Ok,
    /// It certainly did not happen.
    Fail,
    /// Nobody can know.
    Info,
}

/// What was asked: the field `f`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Function {
    /// Write values.
    Send,
    /// Read what came next.
    Poll,
    /// Both, in one transaction.
    Txn,
    /// Read these partitions from now on.
    Assign,
    /// Join a group for these topics.
    Subscribe,
    /// The client is dropped and a fresh one follows.
    Crash,
    /// A fault, a probe, or something that others added.
    Other(Arc<str>),
}

impl Function {
    /// The name in the file.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Send => "send",
            Self::Poll => "poll",
            Self::Txn => "txn",
            Self::Assign => "assign",
            Self::Subscribe => "subscribe",
            Self::Crash => "crash",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for Function {
    fn from(name: &str) -> Self {
        match name {
            "send" => Self::Send,
            "poll" => Self::Poll,
            "txn" => Self::Txn,
            "assign" => Self::Assign,
            "subscribe" => Self::Subscribe,
            "crash" => Self::Crash,
            other => Self::Other(other.into()),
        }
    }
}

impl Serialize for Function {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.as_str())
    }
}

/// An offset and the value that stands there: `[42,17]`.
pub type Pair = (i64, i64);

/// One read or write inside an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MicroOp {
    /// `["send","orders-0",17]` as invoked.
    Send {
        /// The partition written to.
        key: Key,
        /// The value, unique per key.
        value: i64,
    },
    /// `["send","orders-0",[42,17]]` as completed.
    Sent {
        /// The partition written to.
        key: Key,
        /// Where the value landed, where the client can know it.
        offset: Option<i64>,
        /// The value, unique per key.
        value: i64,
    },
    /// `["poll"]` as invoked.
    Poll,
    /// `["poll",{"orders-0":[[40,12],[42,17]]}]` as completed.
    Polled(BTreeMap<Key, Vec<Pair>>),
}

impl Serialize for MicroOp {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Send { key, value } => {
                let mut tuple = out.serialize_tuple(3)?;
                tuple.serialize_element("send")?;
                tuple.serialize_element(key)?;
                tuple.serialize_element(value)?;
                tuple.end()
            }
            Self::Sent { key, offset, value } => {
                let mut tuple = out.serialize_tuple(3)?;
                tuple.serialize_element("send")?;
                tuple.serialize_element(key)?;
                tuple.serialize_element(&(offset, value))?;
                tuple.end()
            }
            Self::Poll => {
                let mut tuple = out.serialize_tuple(1)?;
                tuple.serialize_element("poll")?;
                tuple.end()
            }
            Self::Polled(records) => {
                let mut tuple = out.serialize_tuple(2)?;
                tuple.serialize_element("poll")?;
                tuple.serialize_element(records)?;
                tuple.end()
            }
        }
    }
}

/// The field `value`.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Value {
    /// `null`, of `crash`.
    #[default]
    Null,
    /// Of `send`, `poll` and `txn`.
    Ops(Vec<MicroOp>),
    /// Keys of `assign`, topics of `subscribe`.
    Names(Vec<Arc<str>>),
    /// Of faults and probes, and of what others added.
    Json(serde_json::Value),
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => out.serialize_unit(),
            Self::Ops(ops) => {
                let mut list = out.serialize_seq(Some(ops.len()))?;
                for op in ops {
                    list.serialize_element(op)?;
                }
                list.end()
            }
            Self::Names(names) => names.serialize(out),
            Self::Json(json) => json.serialize(out),
        }
    }
}

/// What a group did to a consumer's partitions during a poll.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rebalance {
    /// Gained or lost.
    pub event: RebalanceKind,
    /// The partitions concerned.
    pub keys: Vec<Key>,
}

/// Gained or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RebalanceKind {
    /// The consumer reads these from now on.
    Assign,
    /// The consumer no longer reads these.
    Revoke,
}

/// An event that has no place in the history yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// Whose event.
    pub process: Process,
    /// Where in its life the operation is.
    pub kind: Kind,
    /// What was asked.
    pub function: Function,
    /// With what, or with what result.
    pub value: Value,
    /// Why, on fail and info: a kebab-case code, then optionally ": " and words.
    pub error: Option<String>,
    /// On assign and subscribe: reading starts at the beginning of every key.
    pub seek_to_beginning: bool,
    /// What the group did during this poll.
    pub rebalance_log: Vec<Rebalance>,
    /// On invocations: when the open-loop schedule wanted it, in nanoseconds since the run
    /// began. Latency counts from here.
    pub scheduled_ns: Option<u64>,
}

impl Draft {
    /// An event with nothing but the required fields.
    pub fn new(process: Process, kind: Kind, function: Function, value: Value) -> Self {
        Self {
            process,
            kind,
            function,
            value,
            error: None,
            seek_to_beginning: false,
            rebalance_log: Vec::new(),
            scheduled_ns: None,
        }
    }

    /// What the nemesis or the observer has to tell under the name `function`.
    pub fn note(process: Process, function: &str, told: serde_json::Value) -> Self {
        Self::new(process, Kind::Info, Function::from(function), Value::Json(told))
    }

    /// The same event with the reason why it failed or is unknown.
    #[must_use]
    pub fn with_error(mut self, error: impl Into<String>) -> Self {
        self.error = Some(error.into());
        self
    }
}

/// One line of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// 0, 1, 2, … without gaps.
    pub index: u64,
    /// Nanoseconds since the run began, monotonic clock.
    pub time_ns: u64,
    /// The rest.
    pub body: Draft,
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let body = &self.body;
        let mut map = out.serialize_map(None)?;
        map.serialize_entry("index", &self.index)?;
        map.serialize_entry("time", &self.time_ns)?;
        map.serialize_entry("process", &body.process)?;
        map.serialize_entry("type", &body.kind)?;
        map.serialize_entry("f", &body.function)?;
        map.serialize_entry("value", &body.value)?;
        if let Some(error) = &body.error {
            map.serialize_entry("error", error)?;
        }
        if body.seek_to_beginning {
            map.serialize_entry("seek-to-beginning", &true)?;
        }
        if !body.rebalance_log.is_empty() {
            map.serialize_entry("rebalance-log", &body.rebalance_log)?;
        }
        if let Some(scheduled) = body.scheduled_ns {
            map.serialize_entry("scheduled", &scheduled)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(body: Draft) -> String {
        let event = Event { index: 7, time_ns: 1_500, body };
        serde_json::to_string(&event).unwrap()
    }

    #[test]
    fn a_send_is_written_as_the_format_says() {
        let key = Key::new("orders", 0);
        let invoke = Draft::new(
            Process::Client(3),
            Kind::Invoke,
            Function::Send,
            Value::Ops(vec![MicroOp::Send { key: key.clone(), value: 17 }]),
        );
        assert_eq!(
            line(invoke),
            r#"{"index":7,"time":1500,"process":3,"type":"invoke","f":"send","value":[["send","orders-0",17]]}"#
        );
        let ok = Draft::new(
            Process::Client(3),
            Kind::Ok,
            Function::Send,
            Value::Ops(vec![MicroOp::Sent { key, offset: Some(42), value: 17 }]),
        );
        assert_eq!(
            line(ok),
            r#"{"index":7,"time":1500,"process":3,"type":"ok","f":"send","value":[["send","orders-0",[42,17]]]}"#
        );
    }

    #[test]
    fn a_poll_carries_pairs_by_key_and_its_rebalances() {
        let key = Key::new("orders", 0);
        let mut poll = Draft::new(
            Process::Client(3),
            Kind::Ok,
            Function::Poll,
            Value::Ops(vec![MicroOp::Polled(BTreeMap::from([(
                key.clone(),
                vec![(40, 12), (42, 17)],
            )]))]),
        );
        poll.rebalance_log = vec![Rebalance { event: RebalanceKind::Revoke, keys: vec![key] }];
        assert_eq!(
            line(poll),
            r#"{"index":7,"time":1500,"process":3,"type":"ok","f":"poll","value":[["poll",{"orders-0":[[40,12],[42,17]]}]],"rebalance-log":[{"event":"revoke","keys":["orders-0"]}]}"#
        );
    }

    #[test]
    fn a_key_splits_at_its_last_dash() {
        assert_eq!(Key::from("a-b-3").split(), Some(("a-b", 3)));
        assert_eq!(Key::from("ab").split(), None);
        assert_eq!(Key::from("a--1").split(), Some(("a-", 1)));
    }
}
