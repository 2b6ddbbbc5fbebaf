//! A stretch of whole lines, parsed into columns. Chunks are parsed side by side.

use memchr::memchr;

use super::fast;
use super::line::LineError;
use super::observed::UNDERSTOOD;
use crate::event::{Event, Function, Kind, MicroOp, Pair, Process, Value};
use crate::names::{NameId, Names};
use crate::operations::Sent;

/// Part of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    pub(crate) const fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// Where the value of an event lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RawValue {
    /// Null, or nothing that anyone relies on.
    Nothing,
    /// In `mops`.
    Ops(Span),
    /// In `names`.
    Names(Span),
    /// In `jsons`.
    Json(u32),
}

/// One read or write; a poll is followed by its batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RawOp {
    Send { key: NameId, value: i64 },
    Sent { key: NameId, offset: i64, value: i64 },
    Poll,
    Batch { key: NameId, pairs: Span },
}

/// A line without its contents. Names are numbers of the chunk's own tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawEvent {
    pub(crate) index: u64,
    pub(crate) time_ns: u64,
    pub(crate) scheduled_ns: Option<u64>,
    pub(crate) process: Process,
    /// Place of the line in the chunk, from 0.
    pub(crate) line: u32,
    pub(crate) function: NameId,
    pub(crate) kind: Kind,
    pub(crate) seek_to_beginning: bool,
    pub(crate) error: Option<NameId>,
    pub(crate) value: RawValue,
    /// Keys in `names` that a rebalance concerned.
    pub(crate) rebalanced: Span,
}

/// Lines as columns.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Chunk {
    pub(crate) events: Vec<RawEvent>,
    pub(crate) ops: Vec<RawOp>,
    pub(crate) pairs: Vec<Pair>,
    /// Lists of keys and topics.
    pub(crate) names: Vec<NameId>,
    pub(crate) jsons: Vec<serde_json::Value>,
    /// Keys and topics.
    pub(crate) name_table: Names,
    /// Values of `f`.
    pub(crate) function_table: Names,
    /// Codes of errors.
    pub(crate) error_table: Names,
    /// How many lines there are, blank ones included.
    pub(crate) lines: u32,
    /// The line at which reading stopped, and why.
    pub(crate) failure: Option<(u32, LineError)>,
}

/// How long each column was.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    ops: usize,
    pairs: usize,
    names: usize,
}

impl Chunk {
    /// Parses `text` to its end or to the first line that is broken.
    pub(crate) fn parse(text: &[u8]) -> Self {
        let mut chunk = Self::default();
        let mut rest = text;
        while !rest.is_empty() {
            let (line, next) = match memchr(b'\n', rest) {
                Some(end) => (&rest[..end], &rest[end + 1..]),
                None => (rest, &[][..]),
            };
            rest = next;
            if let Err(problem) = chunk.push_line(line) {
                chunk.failure = Some((chunk.lines, problem));
                return chunk;
            }
            chunk.lines += 1;
        }
        chunk
    }

    fn push_line(&mut self, line: &[u8]) -> Result<(), LineError> {
        let mark = self.mark();
        if let Some(event) = fast::parse(line, self) {
            self.events.push(event);
            return Ok(());
        }
        self.rewind(mark);
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        self.push_event(&Event::from_line(line)?);
        Ok(())
    }

    fn mark(&self) -> Mark {
        Mark { ops: self.ops.len(), pairs: self.pairs.len(), names: self.names.len() }
    }

    fn rewind(&mut self, mark: Mark) {
        self.ops.truncate(mark.ops);
        self.pairs.truncate(mark.pairs);
        self.names.truncate(mark.names);
    }

    /// From `start` to the end of a column that is now `end` long.
    pub(crate) fn span(start: usize, end: usize) -> Span {
        // Chunks are a few MiB long.
        let short = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        Span { start: short(start), end: short(end) }
    }

    pub(crate) fn push_event(&mut self, event: &Event) {
        let body = &event.body;
        let value = match &body.value {
            Value::Null => RawValue::Nothing,
            Value::Ops(ops) => self.push_ops(ops),
            Value::Names(names) => {
                let start = self.names.len();
                let ids = names.iter().map(|name| self.name_table.intern(name));
                self.names.extend(ids);
                RawValue::Names(Self::span(start, self.names.len()))
            }
            Value::Json(json) => self.push_json(body.process, &body.function, json),
        };
        let start = self.names.len();
        for rebalance in &body.rebalance_log {
            let ids = rebalance.keys.iter().map(|key| self.name_table.intern(key.as_str()));
            self.names.extend(ids);
        }
        let event = RawEvent {
            index: event.index,
            time_ns: event.time_ns,
            scheduled_ns: body.scheduled_ns,
            process: body.process,
            line: self.lines,
            function: self.function_table.intern(body.function.as_str()),
            kind: body.kind,
            seek_to_beginning: body.seek_to_beginning,
            error: body.error.as_deref().map(|error| self.intern_error(error)),
            value,
            rebalanced: Self::span(start, self.names.len()),
        };
        self.events.push(event);
    }

    /// The kebab-case code before the words.
    pub(crate) fn intern_error(&mut self, error: &str) -> NameId {
        let code = error.split_once(": ").map_or(error, |(code, _)| code);
        self.error_table.intern(code)
    }

    fn push_ops(&mut self, ops: &[MicroOp]) -> RawValue {
        let start = self.ops.len();
        for op in ops {
            match op {
                MicroOp::Send { key, value } => {
                    let key = self.name_table.intern(key.as_str());
                    self.ops.push(RawOp::Send { key, value: *value });
                }
                MicroOp::Sent { key, offset, value } => {
                    let key = self.name_table.intern(key.as_str());
                    self.ops.push(RawOp::Sent {
                        key,
                        offset: offset.unwrap_or(Sent::NOWHERE),
                        value: *value,
                    });
                }
                MicroOp::Poll => self.ops.push(RawOp::Poll),
                MicroOp::Polled(records) => {
                    self.ops.push(RawOp::Poll);
                    for (key, pairs) in records {
                        let key = self.name_table.intern(key.as_str());
                        let first = self.pairs.len();
                        self.pairs.extend_from_slice(pairs);
                        let pairs = Self::span(first, self.pairs.len());
                        self.ops.push(RawOp::Batch { key, pairs });
                    }
                }
            }
        }
        RawValue::Ops(Self::span(start, self.ops.len()))
    }

    /// Keeps what faults say, and of the observer what is known here.
    fn push_json(
        &mut self,
        process: Process,
        function: &Function,
        json: &serde_json::Value,
    ) -> RawValue {
        let kept = match process {
            Process::Client(_) => false,
            Process::Nemesis => true,
            Process::Observer => UNDERSTOOD.contains(&function.as_str()),
        };
        if !kept {
            return RawValue::Nothing;
        }
        self.jsons.push(json.clone());
        RawValue::Json(Self::span(0, self.jsons.len() - 1).end)
    }
}
