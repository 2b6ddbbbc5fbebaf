//! One line, read with care: the definition of what a line may be.
//!
//! [`super::fast`] reads the shapes that the rig itself writes, without a detour; whatever it
//! does not know comes here. Both give the same events.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value as Json};

use crate::event::{
    Draft, Event, Function, Key, Kind, MicroOp, Pair, Process, Rebalance, RebalanceKind, Value,
};

/// Most characters of a line that a message repeats.
const SHOWN: usize = 60;

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// What should have been there.
    pub expected: String,
    /// What was there instead.
    pub found: String,
    /// It is not even JSON: what a line looks like whose end was cut off.
    pub(crate) not_json: bool,
}

impl LineError {
    pub(crate) fn new(expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { expected: expected.into(), found: found.into(), not_json: false }
    }

    fn shape(expected: &str, found: &Json) -> Self {
        Self::new(expected, quoted(found))
    }
}

type Parsed<T> = Result<T, LineError>;

impl Event {
    /// Reads one line of a history. Fields that are not known are passed over.
    ///
    /// # Errors
    /// The line is not JSON, or a field that the format names is missing or of another shape.
    pub fn from_line(line: &[u8]) -> Result<Self, LineError> {
        let json: Json = serde_json::from_slice(line).map_err(|error| LineError {
            expected: "a JSON object".to_owned(),
            found: format!("`{}` ({error})", shortened(&String::from_utf8_lossy(line))),
            not_json: true,
        })?;
        let Json::Object(mut fields) = json else {
            return Err(LineError::shape("a JSON object", &json));
        };
        let index = natural(&fields, "index")?;
        let time_ns = natural(&fields, "time")?;
        let process = process(field(&fields, "process")?)?;
        let kind = kind(field(&fields, "type")?)?;
        let function = match field(&fields, "f")? {
            Json::String(name) => Function::from(name.as_str()),
            other => return Err(LineError::shape("a string as \"f\"", other)),
        };
        let raw = fields.remove("value").unwrap_or(Json::Null);
        let value = value(raw, process, kind, &function)?;
        Ok(Self {
            index,
            time_ns,
            body: Draft {
                process,
                kind,
                function,
                value,
                error: error(&fields),
                seek_to_beginning: flag(&fields, "seek-to-beginning")?,
                rebalance_log: rebalance_log(&fields)?,
                scheduled_ns: match fields.get("scheduled") {
                    None | Some(Json::Null) => None,
                    Some(_) => Some(natural(&fields, "scheduled")?),
                },
            },
        })
    }
}

fn field<'a>(fields: &'a Map<String, Json>, name: &str) -> Parsed<&'a Json> {
    fields.get(name).ok_or_else(|| LineError::new(format!("a field \"{name}\""), "none"))
}

fn natural(fields: &Map<String, Json>, name: &str) -> Parsed<u64> {
    let json = field(fields, name)?;
    json.as_u64()
        .ok_or_else(|| LineError::shape(&format!("an integer from 0 up as \"{name}\""), json))
}

fn flag(fields: &Map<String, Json>, name: &str) -> Parsed<bool> {
    match fields.get(name) {
        None | Some(Json::Null) => Ok(false),
        Some(Json::Bool(set)) => Ok(*set),
        Some(other) => {
            let expected = format!("true or false as \"{name}\"");
            Err(LineError::shape(&expected, other))
        }
    }
}

/// Others write more than strings here; nothing is concluded from it.
fn error(fields: &Map<String, Json>) -> Option<String> {
    match fields.get("error")? {
        Json::Null => None,
        Json::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn process(json: &Json) -> Parsed<Process> {
    match json {
        Json::String(name) if name == "nemesis" => Ok(Process::Nemesis),
        Json::String(name) if name == "observer" => Ok(Process::Observer),
        _ => json.as_u64().map(Process::Client).ok_or_else(|| {
            let expected = "an integer from 0 up, \"nemesis\" or \"observer\" as \"process\"";
            LineError::shape(expected, json)
        }),
    }
}

fn kind(json: &Json) -> Parsed<Kind> {
    match json.as_str() {
        Some("invoke") => Ok(Kind::Invoke),
        Some("ok") => Ok(Kind::Ok),
        Some("fail") => Ok(Kind::Fail),
        Some("info") => Ok(Kind::Info),
        _ => {
            let expected = "\"invoke\", \"ok\", \"fail\" or \"info\" as \"type\"";
            Err(LineError::shape(expected, json))
        }
    }
}

fn value(json: Json, process: Process, kind: Kind, function: &Function) -> Parsed<Value> {
    // Who failed, or does not know, need not say more.
    if json.is_null() && matches!(kind, Kind::Fail | Kind::Info) {
        return Ok(Value::Null);
    }
    match (process, function) {
        (Process::Client(_), Function::Send | Function::Poll | Function::Txn) => {
            ops(&json, kind, function).map(Value::Ops)
        }
        (Process::Client(_), Function::Assign | Function::Subscribe) => {
            names(&json, "a list of keys or topics as \"value\"").map(Value::Names)
        }
        _ if json.is_null() => Ok(Value::Null),
        _ => Ok(Value::Json(json)),
    }
}

fn names(json: &Json, expected: &str) -> Parsed<Vec<Arc<str>>> {
    json.as_array()
        .and_then(|list| list.iter().map(|name| name.as_str().map(Into::into)).collect())
        .ok_or_else(|| LineError::shape(expected, json))
}

fn ops(json: &Json, kind: Kind, function: &Function) -> Parsed<Vec<MicroOp>> {
    let expected = "a list of sends and polls as \"value\"";
    let list = json.as_array().ok_or_else(|| LineError::shape(expected, json))?;
    list.iter()
        .map(|item| {
            let op = micro_op(item, kind)?;
            let sends = matches!(op, MicroOp::Send { .. } | MicroOp::Sent { .. });
            match function {
                Function::Send if !sends => Err(LineError::shape("a send in a send", item)),
                Function::Poll if sends => Err(LineError::shape("a poll in a poll", item)),
                _ => Ok(op),
            }
        })
        .collect()
}

fn micro_op(json: &Json, kind: Kind) -> Parsed<MicroOp> {
    let items = json.as_array().map(Vec::as_slice).unwrap_or_default();
    match (items, kind) {
        ([Json::String(name), Json::String(key), content], _) if name == "send" => {
            send(json, key, content, kind)
        }
        ([Json::String(name)], Kind::Invoke | Kind::Fail | Kind::Info) if name == "poll" => {
            Ok(MicroOp::Poll)
        }
        ([Json::String(name), Json::Object(records)], Kind::Ok | Kind::Fail | Kind::Info)
            if name == "poll" =>
        {
            polled(records).map(MicroOp::Polled)
        }
        (_, Kind::Invoke) => Err(LineError::shape("[\"send\",KEY,VALUE] or [\"poll\"]", json)),
        _ => Err(LineError::shape(
            "[\"send\",KEY,[OFFSET,VALUE]] or [\"poll\",{KEY:[[OFFSET,VALUE],…],…}]",
            json,
        )),
    }
}

fn send(json: &Json, key: &str, content: &Json, kind: Kind) -> Parsed<MicroOp> {
    let key = Key::from(key);
    if let Some(value) = content.as_i64()
        && kind != Kind::Ok
    {
        return Ok(MicroOp::Send { key, value });
    }
    let pair = content.as_array().map(Vec::as_slice).unwrap_or_default();
    let place = match (pair, kind) {
        (_, Kind::Invoke) => None,
        ([Json::Null, value], _) => value.as_i64().map(|value| (None, value)),
        ([at, value], _) => offset(at).zip(value.as_i64()).map(|(o, v)| (Some(o), v)),
        _ => None,
    };
    let expected = if kind == Kind::Invoke {
        "[\"send\",KEY,VALUE] with an integer VALUE"
    } else {
        "[\"send\",KEY,[OFFSET,VALUE]] with integers, or null as OFFSET"
    };
    place
        .map(|(offset, value)| MicroOp::Sent { key, offset, value })
        .ok_or_else(|| LineError::shape(expected, json))
}

fn offset(json: &Json) -> Option<i64> {
    json.as_i64().filter(|offset| *offset >= 0)
}

fn polled(records: &Map<String, Json>) -> Parsed<BTreeMap<Key, Vec<Pair>>> {
    let pair = |json: &Json| -> Option<Pair> {
        match json.as_array()?.as_slice() {
            [at, value] => Some((offset(at)?, value.as_i64()?)),
            _ => None,
        }
    };
    records
        .iter()
        .map(|(key, json)| {
            let expected = "a list of [OFFSET,VALUE] pairs of integers for each key";
            let pairs = json
                .as_array()
                .and_then(|list| list.iter().map(pair).collect::<Option<Vec<Pair>>>())
                .ok_or_else(|| LineError::shape(expected, json))?;
            Ok((Key::from(key.as_str()), pairs))
        })
        .collect()
}

fn rebalance_log(fields: &Map<String, Json>) -> Parsed<Vec<Rebalance>> {
    let expected = "a list of {\"event\":\"assign\"|\"revoke\",\"keys\":[…]} as \"rebalance-log\"";
    let list = match fields.get("rebalance-log") {
        None | Some(Json::Null) => return Ok(Vec::new()),
        Some(Json::Array(list)) => list,
        Some(other) => return Err(LineError::shape(expected, other)),
    };
    list.iter()
        .map(|entry| {
            let event = match entry.get("event").and_then(Json::as_str) {
                Some("assign") => RebalanceKind::Assign,
                Some("revoke") => RebalanceKind::Revoke,
                _ => return Err(LineError::shape(expected, entry)),
            };
            let keys = names(entry.get("keys").unwrap_or(&Json::Null), expected)?;
            Ok(Rebalance { event, keys: keys.iter().map(|key| Key::from(&**key)).collect() })
        })
        .collect()
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= SHOWN {
        return text.to_owned();
    }
    let head: String = text.chars().take(SHOWN).collect();
    format!("{head}…")
}

fn quoted(json: &Json) -> String {
    format!("`{}`", shortened(&json.to_string()))
}
