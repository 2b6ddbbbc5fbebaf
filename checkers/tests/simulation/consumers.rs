//! Readers: those that choose their keys, members of a group, and transactions.

use std::collections::BTreeMap;

use history::{
    Draft, Function, Key, Kind, MicroOp, Pair, Process, Rebalance, RebalanceKind, Value,
};
use rand::RngExt;

use super::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Assigning,
    Member,
    Transactor,
}

/// One reader, over all its processes.
#[derive(Debug)]
pub(super) struct Consumer {
    role: Role,
    process: u64,
    /// By key: the place of the next record to read.
    positions: BTreeMap<usize, usize>,
    /// Has it said what to read?
    ready: bool,
    /// What its group did and it has not been told.
    rebalances: Vec<Rebalance>,
    open: Option<Open>,
}

/// A poll or transaction that has been invoked.
#[derive(Debug)]
struct Open {
    function: Function,
    asked: Vec<MicroOp>,
}

impl Consumer {
    fn new(role: Role, process: u64) -> Self {
        Self {
            role,
            process,
            positions: BTreeMap::new(),
            ready: false,
            rebalances: Vec::new(),
            open: None,
        }
    }

    pub(super) fn assigning(process: u64) -> Self {
        Self::new(Role::Assigning, process)
    }

    pub(super) fn member(process: u64) -> Self {
        Self::new(Role::Member, process)
    }

    pub(super) fn transactor(process: u64) -> Self {
        Self::new(Role::Transactor, process)
    }
}

impl World<'_> {
    /// Moves a reader on; how many operations it began.
    pub(super) fn step_consumer(&mut self, reader: usize) -> usize {
        if self.consumers[reader].open.is_some() {
            self.complete(reader);
            return 0;
        }
        if !self.consumers[reader].ready || self.once_in(self.shape.set_up_every) {
            self.set_up(reader);
        } else if self.trouble() && self.once_in(3) {
            self.crash(reader);
        } else {
            self.begin_read(reader);
        }
        1
    }

    /// Lets a reader end what it has begun.
    pub(super) fn end_consumer(&mut self, reader: usize) {
        if self.consumers[reader].open.is_some() {
            self.complete(reader);
        }
    }

    fn set_up(&mut self, reader: usize) {
        let process = self.consumers[reader].process;
        if self.consumers[reader].role == Role::Member {
            let value = Value::Names(vec!["orders".into()]);
            self.client(process, Kind::Invoke, Function::Subscribe, value.clone());
            self.client(process, Kind::Ok, Function::Subscribe, value);
            self.consumers[reader].ready = true;
            self.rebalance();
            return;
        }
        let keys: Vec<usize> = (0..self.keys.len()).filter(|_| self.rng.random_bool(0.7)).collect();
        let seek = self.once_in(self.shape.replay_every);
        let value = self.names(&keys);
        let mut event = Draft::new(Process::Client(process), Kind::Invoke, Function::Assign, value);
        event.seek_to_beginning = seek;
        self.record(event.clone());
        event.kind = Kind::Ok;
        self.record(event);
        let old = std::mem::take(&mut self.consumers[reader].positions);
        for key in keys {
            let end = self.logs[key].records.len();
            let replays = self.once_in(self.shape.replay_every);
            let fresh = if replays { 0 } else { end };
            let kept = old.get(&key).copied().unwrap_or(fresh);
            let position = if seek { 0 } else { kept };
            self.consumers[reader].positions.insert(key, position);
        }
        self.consumers[reader].ready = true;
    }

    /// Gives every key of the group to some member that is ready.
    fn rebalance(&mut self) {
        let members: Vec<usize> = (0..self.consumers.len())
            .filter(|m| self.consumers[*m].role == Role::Member && self.consumers[*m].ready)
            .collect();
        for member in &members {
            let lost = std::mem::take(&mut self.consumers[*member].positions);
            let keys = lost.keys().map(|key| self.keys[*key].clone()).collect();
            let event = RebalanceKind::Revoke;
            self.consumers[*member].rebalances.push(Rebalance { event, keys });
        }
        if members.is_empty() {
            return;
        }
        for key in 0..self.keys.len() {
            let member = members[self.below(members.len())];
            let committed = self.committed[key];
            let keys = vec![self.keys[key].clone()];
            let event = RebalanceKind::Assign;
            self.consumers[member].positions.insert(key, committed);
            self.consumers[member].rebalances.push(Rebalance { event, keys });
        }
    }

    /// The client is gone; a fresh process follows.
    fn retire(&mut self, reader: usize) {
        let member = self.consumers[reader].role == Role::Member;
        let process = self.fresh_process();
        let consumer = &mut self.consumers[reader];
        consumer.process = process;
        consumer.positions.clear();
        consumer.rebalances.clear();
        consumer.ready = false;
        if member {
            self.rebalance();
        }
    }

    fn crash(&mut self, reader: usize) {
        let process = self.consumers[reader].process;
        self.client(process, Kind::Invoke, Function::Crash, Value::Null);
        self.client(process, Kind::Info, Function::Crash, Value::Null);
        self.retire(reader);
    }

    fn begin_read(&mut self, reader: usize) {
        let consumer = &self.consumers[reader];
        let (process, role) = (consumer.process, consumer.role);
        let (function, asked) = if role == Role::Transactor {
            (Function::Txn, self.transaction())
        } else {
            (Function::Poll, vec![MicroOp::Poll])
        };
        let value = Value::Ops(asked.clone());
        self.client(process, Kind::Invoke, function.clone(), value);
        self.consumers[reader].open = Some(Open { function, asked });
    }

    fn transaction(&mut self) -> Vec<MicroOp> {
        let length = self.rng.random_range(1..5);
        let mut ops = Vec::new();
        for _ in 0..length {
            if self.rng.random_bool(0.4) {
                ops.push(MicroOp::Poll);
            } else {
                let key = self.below(self.keys.len());
                let value = self.fresh_value(key);
                let key = self.keys[key].clone();
                ops.push(MicroOp::Send { key, value });
            }
        }
        ops
    }

    fn complete(&mut self, reader: usize) {
        let Some(Open { function, asked }) = self.consumers[reader].open.take() else {
            return;
        };
        let trouble = self.trouble().then(|| self.below(3));
        let process = self.consumers[reader].process;
        let value = match trouble {
            // Refused, or aborted: positions stay.
            Some(0) => Value::Ops(asked),
            // Given up, perhaps after it was done.
            Some(landed) => {
                if landed == 1 {
                    self.perform(reader, &asked);
                }
                Value::Ops(asked)
            }
            None => Value::Ops(self.perform(reader, &asked)),
        };
        let kind = match trouble {
            None => Kind::Ok,
            Some(0) => Kind::Fail,
            Some(_) => Kind::Info,
        };
        let mut event = Draft::new(Process::Client(process), kind, function, value);
        event.error = trouble.map(|_| "poll-failed: whatever".to_owned());
        event.rebalance_log = std::mem::take(&mut self.consumers[reader].rebalances);
        self.record(event);
        if kind == Kind::Info {
            self.retire(reader);
        }
    }

    /// Carries out reads first, then writes, at one moment.
    fn perform(&mut self, reader: usize, asked: &[MicroOp]) -> Vec<MicroOp> {
        let mut done: Vec<MicroOp> = Vec::new();
        for op in asked {
            done.push(match op {
                MicroOp::Poll => MicroOp::Polled(self.read(reader)),
                other => other.clone(),
            });
        }
        for op in &mut done {
            if let MicroOp::Send { key, value } = op
                && let Some(place) = self.keys.iter().position(|known| known == key)
            {
                let offset = Some(self.append(place, *value));
                *op = MicroOp::Sent { key: key.clone(), offset, value: *value };
            }
        }
        done
    }

    fn read(&mut self, reader: usize) -> BTreeMap<Key, Vec<Pair>> {
        let mut records = BTreeMap::new();
        let most = self.shape.poll_records;
        let commits = self.rng.random_bool(0.7);
        let keys: Vec<usize> = self.consumers[reader].positions.keys().copied().collect();
        for key in keys {
            let Some(position) = self.consumers[reader].positions.get(&key).copied() else {
                continue;
            };
            let end = (position + self.below(most + 1)).min(self.logs[key].records.len());
            if end > position {
                let pairs = self.logs[key].records[position..end].to_vec();
                records.insert(self.keys[key].clone(), pairs);
            }
            self.consumers[reader].positions.insert(key, end);
            if self.consumers[reader].role == Role::Member && commits {
                self.committed[key] = end;
            }
        }
        records
    }

    /// One process reads every key from its beginning to its end.
    pub(super) fn final_read(&mut self) {
        let process = self.fresh_process();
        let reader = self.consumers.len();
        self.consumers.push(Consumer::assigning(process));
        let keys: Vec<usize> = (0..self.keys.len()).collect();
        let value = self.names(&keys);
        let mut event = Draft::new(Process::Client(process), Kind::Invoke, Function::Assign, value);
        event.seek_to_beginning = true;
        self.record(event.clone());
        event.kind = Kind::Ok;
        self.record(event);
        self.consumers[reader].positions = keys.into_iter().map(|key| (key, 0)).collect();
        loop {
            let asked = Value::Ops(vec![MicroOp::Poll]);
            self.client(process, Kind::Invoke, Function::Poll, asked);
            let records = self.read(reader);
            let read = Value::Ops(vec![MicroOp::Polled(records)]);
            self.client(process, Kind::Ok, Function::Poll, read);
            let positions = &self.consumers[reader].positions;
            let at_end = |(key, place): (&usize, &usize)| self.logs[*key].records.len() == *place;
            if positions.iter().all(at_end) {
                return;
            }
        }
    }
}
