//! Histories of a log that keeps every promise: what tests and benchmarks judge.
//!
//! A model of the cluster (a list of records a key) is written and read by open-loop producers,
//! consumers that choose their keys, a group, and transactions, while operations overlap, fail
//! and end unknown. Everything comes from the seed.
#![allow(dead_code, reason = "tests, benchmarks and examples each use a part of it")]

mod consumers;
mod producers;

use std::collections::BTreeSet;
use std::sync::Arc;

use history::{Draft, Event, Function, Key, Kind, Pair, Process, Value};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde_json::json;

use consumers::Consumer;
use producers::OpenSend;

/// What a history is to hold.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Of every choice.
    pub(crate) seed: u64,
    /// Operations before the last phase.
    pub(crate) operations: usize,
    /// Partitions.
    pub(crate) keys: usize,
    /// Most sends that are open at a time.
    pub(crate) open_sends: usize,
    /// Consumers that choose their keys.
    pub(crate) consumers: usize,
    /// Members of one group.
    pub(crate) members: usize,
    /// Processes that run transactions.
    pub(crate) transactors: usize,
    /// Most records of a key in one poll.
    pub(crate) poll_records: usize,
    /// One operation in so many is a poll, or what belongs to reading.
    pub(crate) read_every: u32,
    /// One step of a reader in so many says anew what to read.
    pub(crate) set_up_every: u32,
    /// One of so many fresh positions is the beginning; others are the end.
    pub(crate) replay_every: u32,
    /// Holes between offsets, as markers of transactions leave them.
    pub(crate) holes: bool,
    /// The first offset of each key.
    pub(crate) first_offset: i64,
    /// One operation in so many does not end ok; 0 = all do.
    pub(crate) trouble_every: u32,
    /// Injected faults, each healed.
    pub(crate) faults: usize,
}

impl Shape {
    /// A little of everything.
    pub(crate) fn small(seed: u64, operations: usize) -> Self {
        Self {
            seed,
            operations,
            keys: 3,
            open_sends: 6,
            consumers: 2,
            members: 2,
            transactors: 1,
            poll_records: 5,
            read_every: 3,
            set_up_every: 20,
            replay_every: 2,
            holes: true,
            first_offset: 0,
            trouble_every: 8,
            faults: 2,
        }
    }

    /// As the workload `queue` writes it: mostly sends, a few consumers, seldom trouble.
    pub(crate) fn queue(seed: u64, operations: usize) -> Self {
        Self {
            keys: 16,
            open_sends: 200,
            consumers: 4,
            members: 4,
            transactors: 0,
            poll_records: 100,
            read_every: 10,
            set_up_every: 3_000,
            replay_every: 2_000,
            holes: false,
            trouble_every: 200,
            faults: 6,
            ..Self::small(seed, operations)
        }
    }
}

/// A history, line by line.
pub(crate) fn simulate(shape: &Shape, sink: &mut dyn FnMut(&Event)) {
    let mut world = World::new(shape.clone(), sink);
    world.run();
    world.close();
}

/// A history in memory.
pub(crate) fn events(shape: &Shape) -> Vec<Event> {
    let mut events = Vec::new();
    simulate(shape, &mut |event| events.push(event.clone()));
    events
}

/// The lines of a history.
pub(crate) fn jsonl(events: &[Event]) -> Vec<u8> {
    let mut text = Vec::new();
    for event in events {
        if serde_json::to_writer(&mut text, event).is_ok() {
            text.push(b'\n');
        }
    }
    text
}

/// One partition.
#[derive(Debug, Default)]
struct Log {
    records: Vec<Pair>,
    next_offset: i64,
    next_value: i64,
}

struct World<'a> {
    shape: Shape,
    rng: ChaCha8Rng,
    sink: &'a mut dyn FnMut(&Event),
    index: u64,
    time_ns: u64,
    next_process: u64,
    keys: Vec<Key>,
    logs: Vec<Log>,
    /// Processes of producers that have nothing open.
    idle: BTreeSet<u64>,
    open: Vec<OpenSend>,
    consumers: Vec<Consumer>,
    /// Where the group stands in each key: a place in its records.
    committed: Vec<usize>,
    active: Vec<u64>,
    faults: u64,
}

impl<'a> World<'a> {
    fn new(shape: Shape, sink: &'a mut dyn FnMut(&Event)) -> Self {
        let keys: Vec<Key> =
            (0..shape.keys).map(|n| Key::new("orders", i32::try_from(n).unwrap_or(0))).collect();
        let log = || Log { next_offset: shape.first_offset, ..Log::default() };
        let mut world = Self {
            rng: ChaCha8Rng::seed_from_u64(shape.seed),
            sink,
            index: 0,
            time_ns: 0,
            next_process: 0,
            logs: (0..shape.keys).map(|_| log()).collect(),
            keys,
            idle: BTreeSet::new(),
            open: Vec::new(),
            consumers: Vec::new(),
            committed: vec![0; shape.keys],
            active: Vec::new(),
            faults: 0,
            shape,
        };
        for _ in 0..world.shape.consumers {
            let process = world.fresh_process();
            world.consumers.push(Consumer::assigning(process));
        }
        for _ in 0..world.shape.members {
            let process = world.fresh_process();
            world.consumers.push(Consumer::member(process));
        }
        for _ in 0..world.shape.transactors {
            let process = world.fresh_process();
            world.consumers.push(Consumer::transactor(process));
        }
        world
    }

    fn fresh_process(&mut self) -> u64 {
        self.next_process += 1;
        self.next_process - 1
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.random_range(0..bound.max(1))
    }

    fn once_in(&mut self, times: u32) -> bool {
        times > 0 && self.rng.random_ratio(1, times)
    }

    fn record(&mut self, body: Draft) {
        self.time_ns += self.rng.random_range(1..100_000);
        let event = Event { index: self.index, time_ns: self.time_ns, body };
        self.index += 1;
        (self.sink)(&event);
    }

    fn client(&mut self, process: u64, kind: Kind, function: Function, value: Value) {
        self.record(Draft::new(Process::Client(process), kind, function, value));
    }

    fn trouble(&mut self) -> bool {
        let every = self.shape.trouble_every;
        self.once_in(every)
    }

    /// Appends `value` to key number `key`; its offset.
    fn append(&mut self, key: usize, value: i64) -> i64 {
        let hole =
            if self.shape.holes && self.once_in(10) { self.rng.random_range(1..4) } else { 0 };
        let log = &mut self.logs[key];
        let offset = log.next_offset + hole;
        log.next_offset = offset + 1;
        log.records.push((offset, value));
        offset
    }

    fn fresh_value(&mut self, key: usize) -> i64 {
        let log = &mut self.logs[key];
        log.next_value += 1;
        log.next_value - 1
    }

    fn run(&mut self) {
        let fault_every = self.shape.operations / (2 * self.shape.faults + 1).max(1);
        let mut begun = 0;
        while begun < self.shape.operations {
            if self.shape.faults > 0 && begun % fault_every.max(1) == fault_every / 2 {
                self.disturb();
            }
            let reads = !self.consumers.is_empty();
            if reads && self.once_in(self.shape.read_every) {
                let reader = self.below(self.consumers.len());
                begun += self.step_consumer(reader);
            } else if self.open.len() < self.shape.open_sends && self.rng.random_bool(0.5) {
                self.begin_send();
                begun += 1;
            } else {
                self.step_send();
            }
        }
    }

    fn note(&mut self, function: &str, value: serde_json::Value) {
        let function = Function::from(function);
        self.record(Draft::new(Process::Nemesis, Kind::Info, function, Value::Json(value)));
    }

    fn disturb(&mut self) {
        if let Some(id) = self.active.pop() {
            self.note("heal", json!({"id": id, "phase": "asked"}));
            self.note("heal", json!({"id": id, "phase": "done", "outcome": "healed"}));
        } else {
            let id = self.faults;
            self.faults += 1;
            let asked = json!({"id": id, "phase": "asked", "target": "one", "nodes": ["n1"]});
            self.note("partition", asked);
            let done = json!({"id": id, "phase": "done", "outcome": "installed"});
            self.note("partition", done);
            self.active.push(id);
        }
    }

    /// Heals, writes a last value to each key and reads everything back.
    fn close(&mut self) {
        while !self.active.is_empty() {
            self.disturb();
        }
        for reader in 0..self.consumers.len() {
            self.end_consumer(reader);
        }
        while !self.open.is_empty() {
            self.step_send();
        }
        let report = json!({"deadline_ms": 30_000, "waited_ms": 10, "leaderless": [],
            "stuck-replica": {}, "stuck-hw": []});
        self.record(Draft::new(
            Process::Observer,
            Kind::Info,
            Function::from("recovery"),
            Value::Json(report),
        ));
        for key in 0..self.keys.len() {
            self.closing_write(key);
        }
        self.final_read();
    }

    fn names(&self, keys: &[usize]) -> Value {
        let names = keys.iter().map(|key| Arc::from(self.keys[*key].as_str()));
        Value::Names(names.collect())
    }
}
