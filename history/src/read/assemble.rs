//! Puts parsed lines together in order: invocations and completions become operations.

use super::chunk::{Chunk, RawEvent, RawOp, RawValue};
use super::line::LineError;
use super::observed;
use super::processes::{Ask, Asked, Phase, Processes, State};
use super::records::Records;
use crate::error::ReadError;
use crate::event::{Kind, Process};
use crate::names::NameId;
use crate::operations::{
    Change, History, KeyLog, NEVER, Note, OpId, Operation, Outcome, Sent, Setup,
};

type Checked = Result<(), LineError>;

/// A history under construction.
#[derive(Default)]
pub(super) struct Assembly {
    history: History,
    processes: Processes,
    /// By the number of the key's name.
    records: Vec<Records>,
    /// Lines in the chunks before this one.
    lines: u64,
    time_went_back: bool,
}

/// A chunk, and the numbers of its names in the history's tables.
struct Part<'a> {
    chunk: &'a Chunk,
    names: Vec<NameId>,
    functions: Vec<NameId>,
}

impl Part<'_> {
    fn name(&self, id: NameId) -> NameId {
        self.names[id as usize]
    }

    /// Numbers of the names of a list, ascending.
    fn list(&self, span: super::chunk::Span) -> Vec<NameId> {
        let names = &self.chunk.names[span.range()];
        let mut list: Vec<NameId> = names.iter().map(|name| self.name(*name)).collect();
        list.sort_unstable();
        list
    }
}

/// The value of an event that is not a client's.
fn json<'a>(event: &RawEvent, part: &Part<'a>) -> &'a serde_json::Value {
    static NULL: serde_json::Value = serde_json::Value::Null;
    match event.value {
        RawValue::Json(place) => &part.chunk.jsons[place as usize],
        _ => &NULL,
    }
}

impl Assembly {
    /// Adds the next chunk. `ended` says whether its last line has a line end.
    pub(super) fn add(&mut self, chunk: &Chunk, ended: bool) -> Result<(), ReadError> {
        let history = &mut self.history;
        let names = &mut history.names;
        let functions = &mut history.functions;
        let part = Part {
            chunk,
            names: chunk.name_table.iter().map(|n| names.intern(n)).collect(),
            functions: (chunk.function_table.iter()).map(|name| functions.intern(name)).collect(),
        };
        history.logs.resize_with(names.len(), KeyLog::default);
        self.records.resize_with(names.len(), Records::default);
        for event in &chunk.events {
            self.event(event, &part).map_err(|problem| self.at(event.line, problem))?;
        }
        if let Some((line, problem)) = &chunk.failure {
            if ended || !problem.not_json {
                return Err(self.at(*line, problem.clone()));
            }
            let number = self.lines + u64::from(*line) + 1;
            self.history
                .warnings
                .push(format!("line {number}, the last, is cut: the history was read up to there"));
        }
        self.lines += u64::from(chunk.lines);
        Ok(())
    }

    /// Whatever is still open stays so.
    pub(super) fn finish(mut self) -> History {
        for (process, asked) in self.processes.take_open() {
            let op = self.push_operation(process, &asked, Outcome::Open, NEVER, asked.time_ns);
            for ask in &asked.ops {
                self.push_asked(op, *ask);
            }
        }
        self.history.processes = self.processes.into_numbers();
        self.history
    }

    fn at(&self, line: u32, problem: LineError) -> ReadError {
        ReadError::Line {
            line: self.lines + u64::from(line) + 1,
            expected: problem.expected,
            found: problem.found,
        }
    }

    fn event(&mut self, event: &RawEvent, part: &Part<'_>) -> Checked {
        let next = self.history.events;
        if event.index != next {
            return Err(LineError::new(format!("index {next}"), format!("index {}", event.index)));
        }
        let Some(index) = u32::try_from(next).ok().filter(|index| *index < NEVER) else {
            return Err(LineError::new(format!("at most {NEVER} lines"), "one more"));
        };
        self.history.events += 1;
        self.watch_clock(event);
        match event.process {
            Process::Client(number) => self.client_event(event, number, index, part),
            Process::Nemesis | Process::Observer => self.note(event, part),
        }
    }

    fn watch_clock(&mut self, event: &RawEvent) {
        let last = self.history.duration_ns;
        if event.time_ns >= last {
            self.history.duration_ns = event.time_ns;
        } else if !self.time_went_back {
            self.time_went_back = true;
            self.history.warnings.push(format!(
                "time goes back from {last} to {} at index {}: times are not to be trusted",
                event.time_ns, event.index
            ));
        }
    }

    fn note(&mut self, event: &RawEvent, part: &Part<'_>) -> Checked {
        let function = part.chunk.function_table.get(event.function);
        let value = json(event, part);
        if event.process == Process::Observer {
            let at = (event.index, event.time_ns);
            return observed::take(&mut self.history, function, at, value);
        }
        self.history.nemesis.push(Note {
            index: event.index,
            time_ns: event.time_ns,
            function: function.to_owned(),
            value: value.clone(),
        });
        Ok(())
    }

    fn client_event(
        &mut self,
        event: &RawEvent,
        number: u64,
        index: u32,
        part: &Part<'_>,
    ) -> Checked {
        let process = self.processes.number(number);
        let function = part.functions[event.function as usize];
        let state = self.processes.state(process);
        if event.kind == Kind::Invoke {
            may_begin(state, number)?;
            state.phase = Phase::Open;
            begin(&mut state.asked, event, function, index, part);
            return Ok(());
        }
        may_complete(state, number)?;
        if state.asked.function != function {
            return Err(LineError::new(
                format!(
                    "the completion of `{}`, which process {number} began at index {}",
                    self.history.functions.get(state.asked.function),
                    state.asked.index
                ),
                format!("that of `{}`", self.history.functions.get(function)),
            ));
        }
        state.phase = if event.kind == Kind::Info { Phase::Over } else { Phase::Idle };
        state.ended = index;
        // Lent out and given back, so that its list is allocated once for each process.
        let asked = std::mem::take(&mut state.asked);
        let result = self.complete(event, process, &asked, index, part);
        self.processes.state(process).asked = asked;
        result
    }

    fn complete(
        &mut self,
        event: &RawEvent,
        process: u32,
        asked: &Asked,
        index: u32,
        part: &Part<'_>,
    ) -> Checked {
        let outcome = match event.kind {
            Kind::Ok => Outcome::Ok,
            Kind::Fail => Outcome::Fail,
            Kind::Info | Kind::Invoke => Outcome::Info,
        };
        let op = self.push_operation(process, asked, outcome, index, event.time_ns);
        if let RawValue::Ops(span) = event.value {
            self.push_ops(op, asked, &part.chunk.ops[span.range()], part)?;
        } else {
            for ask in &asked.ops {
                self.push_asked(op, *ask);
            }
        }
        self.push_setup(event, process, op, part);
        if let Some(code) = event.error {
            let code = part.chunk.error_table.get(code).to_owned();
            *self.history.errors.entry((asked.function, code)).or_default() += 1;
        }
        Ok(())
    }

    fn push_operation(
        &mut self,
        process: u32,
        asked: &Asked,
        outcome: Outcome,
        completed: u32,
        completed_ns: u64,
    ) -> OpId {
        let operations = &mut self.history.operations;
        // There are fewer operations than lines.
        let op = OpId::try_from(operations.len()).unwrap_or(NEVER);
        let sends = asked.ops.iter().filter(|ask| **ask != Ask::Poll).count();
        operations.push(Operation {
            process,
            function: asked.function,
            outcome,
            sends: u32::try_from(sends).unwrap_or(u32::MAX),
            invoked: asked.index,
            completed,
            wanted_ns: asked.wanted_ns,
            invoked_ns: asked.time_ns,
            completed_ns,
        });
        op
    }

    fn push_asked(&mut self, op: OpId, ask: Ask) {
        if let Ask::Send { key, value } = ask {
            self.history.logs[key as usize].sends.push(Sent { op, offset: Sent::NOWHERE, value });
        }
    }

    /// The reads and writes of a completion, which must be those of the invocation.
    fn push_ops(&mut self, op: OpId, asked: &Asked, ops: &[RawOp], part: &Part<'_>) -> Checked {
        let mut asks = asked.ops.iter().copied();
        for raw in ops {
            match *raw {
                RawOp::Send { key, value } => {
                    self.push_sent(op, asks.next(), part.name(key), Sent::NOWHERE, value)?;
                }
                RawOp::Sent { key, offset, value } => {
                    self.push_sent(op, asks.next(), part.name(key), offset, value)?;
                }
                RawOp::Poll => {
                    let ask = asks.next();
                    if ask != Some(Ask::Poll) {
                        return Err(self.other_than_asked(ask, "a poll".to_owned()));
                    }
                }
                RawOp::Batch { key, pairs } if !pairs.is_empty() => {
                    let key = part.name(key) as usize;
                    let pairs = &part.chunk.pairs[pairs.range()];
                    self.records[key].add(&mut self.history.logs[key], op, pairs);
                }
                RawOp::Batch { .. } => {}
            }
        }
        match asks.next() {
            None => Ok(()),
            missing => Err(self.other_than_asked(missing, "nothing more".to_owned())),
        }
    }

    fn push_sent(
        &mut self,
        op: OpId,
        ask: Option<Ask>,
        key: NameId,
        offset: i64,
        value: i64,
    ) -> Checked {
        if ask != Some(Ask::Send { key, value }) {
            let found = format!("a send of {value} to {}", self.history.names.get(key));
            return Err(self.other_than_asked(ask, found));
        }
        let sent = Sent { op, offset, value };
        self.history.logs[key as usize].sends.push(sent);
        Ok(())
    }

    fn other_than_asked(&self, ask: Option<Ask>, found: String) -> LineError {
        let expected = match ask {
            None => "nothing more".to_owned(),
            Some(Ask::Poll) => "a poll".to_owned(),
            Some(Ask::Send { key, value }) => {
                format!("a send of {value} to {}", self.history.names.get(key))
            }
        };
        LineError::new(format!("{expected}, as it was invoked"), found)
    }

    fn push_setup(&mut self, event: &RawEvent, process: u32, op: OpId, part: &Part<'_>) {
        let certain = event.kind != Kind::Fail;
        let seek_to_beginning = event.seek_to_beginning;
        let change = match part.chunk.function_table.get(event.function) {
            "assign" if certain => {
                let keys = match event.value {
                    RawValue::Names(span) => part.list(span),
                    _ => Vec::new(),
                };
                Change::Assign { keys, seek_to_beginning }
            }
            "subscribe" if certain => Change::Subscribe { seek_to_beginning },
            "crash" => Change::Crash,
            _ if !event.rebalanced.is_empty() => {
                Change::Rebalance { keys: part.list(event.rebalanced) }
            }
            _ => return,
        };
        let setups = self.history.setups.entry(process).or_default();
        setups.push(Setup { op, change });
    }
}

fn may_begin(state: &State, number: u64) -> Checked {
    match state.phase {
        Phase::Idle => Ok(()),
        Phase::Open => Err(LineError::new(
            format!("the completion of what process {number} began at index {}", state.asked.index),
            "another invocation of it",
        )),
        Phase::Over => Err(LineError::new(
            format!(
                "no more of process {number}, whose operation ended info at index {}",
                state.ended
            ),
            "an invocation of it",
        )),
    }
}

fn may_complete(state: &State, number: u64) -> Checked {
    let found = match state.phase {
        Phase::Open => return Ok(()),
        Phase::Idle => "none that is open".to_owned(),
        Phase::Over => format!("that its last ended info at index {}", state.ended),
    };
    Err(LineError::new(format!("an invocation by process {number} before this completion"), found))
}

fn begin(asked: &mut Asked, event: &RawEvent, function: NameId, index: u32, part: &Part<'_>) {
    asked.index = index;
    asked.function = function;
    asked.time_ns = event.time_ns;
    asked.wanted_ns = event.scheduled_ns.unwrap_or(event.time_ns);
    asked.ops.clear();
    if let RawValue::Ops(span) = event.value {
        let ops = part.chunk.ops[span.range()].iter();
        asked.ops.extend(ops.filter_map(|op| match *op {
            RawOp::Send { key, value } | RawOp::Sent { key, value, .. } => {
                let key = part.name(key);
                Some(Ask::Send { key, value })
            }
            RawOp::Poll => Some(Ask::Poll),
            RawOp::Batch { .. } => None,
        }));
    }
}
