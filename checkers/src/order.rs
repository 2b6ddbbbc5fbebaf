//! The version order of each key: which value stands at which offset, as acknowledged sends and
//! polls say, and who wrote and read each value.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use history::{Batch, History, KeyLog, NameId, OpId, Operation, Outcome, RecordId, Run, Sent};
use rustc_hash::FxHashSet;

use crate::parallel::map_parallel;
use crate::passes::{Pass, passes};
use crate::ranks::Ranks;

/// Stands for a rank, a batch or a send that is not there.
const NONE: u32 = u32::MAX;

/// What is known of one value of a key.
#[derive(Clone, Copy, Debug)]
struct ValueFacts {
    /// Who sent it: a place in the log's sends.
    writer: u32,
    /// Where it stands first and last.
    first: u32,
    last: u32,
    /// Which ok poll returned it first: a place in the log's batches.
    reader: u32,
}

/// A record of a poll: where it stood and what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Record {
    /// Dense rank of its offset.
    pub(crate) rank: u32,
    /// Number of its value.
    pub(crate) value: ValueId,
}

/// What is known of a polled record.
#[derive(Clone, Copy, Debug)]
struct RecordFacts {
    record: Record,
    /// How many records up to this, in the order of their numbers, stand elsewhere than right
    /// behind the one before.
    jumps: u32,
    /// The first ok poll that returned it: a place in the log's batches.
    first_read: u32,
    /// The rank at which its value stands first.
    earliest: u32,
    /// Index at which the send of its value was invoked; 0 where none is known.
    sent: u32,
}

/// Number of a value among those of its key, ascending.
pub(crate) type ValueId = u32;

/// Who wrote and read which value of a key, wherever it stands.
#[derive(Debug)]
struct KeyValues {
    values: Ranks,
    facts: Vec<ValueFacts>,
    resent: Vec<ValueId>,
    first_read: Vec<u32>,
}

impl KeyValues {
    fn new(history: &History, log: &KeyLog) -> Self {
        let sent = log.sends.iter().map(|sent| sent.value);
        let values = Ranks::new(sent.chain(log.records.iter().map(|(_, value)| *value)));
        let unknown = ValueFacts { writer: NONE, first: NONE, last: NONE, reader: NONE };
        let mut known = Self {
            facts: vec![unknown; values.len()],
            values,
            resent: Vec::new(),
            first_read: Vec::new(),
        };
        known.note_writers(history, log);
        known.note_readers(history, log);
        known
    }

    fn note_writers(&mut self, history: &History, log: &KeyLog) {
        // Of several writers, the one that is surest to have written counts.
        let doubt = |sent: &Sent| match history.op(sent.op).outcome {
            Outcome::Ok => 0,
            Outcome::Info | Outcome::Open => 1,
            Outcome::Fail => 2,
        };
        for (place, sent) in (0..).zip(&log.sends) {
            let Some(value) = self.values.rank(sent.value) else {
                continue;
            };
            let facts = &mut self.facts[value as usize];
            let other = log.sends.get(facts.writer as usize);
            if other.is_none_or(|other| doubt(sent) < doubt(other)) {
                facts.writer = place;
            }
            if other.is_some() {
                self.resent.push(value);
            }
        }
    }

    fn note_readers(&mut self, history: &History, log: &KeyLog) {
        self.first_read = vec![NONE; log.records.len()];
        for (place, batch) in (0..).zip(&log.batches) {
            if history.op(batch.op).outcome != Outcome::Ok {
                continue;
            }
            for id in log.ids(batch) {
                let first = &mut self.first_read[id as usize];
                *first = (*first).min(place);
            }
        }
        for ((_, value), first) in log.records.iter().zip(&self.first_read) {
            if let Some(value) = self.values.rank(*value) {
                let reader = &mut self.facts[value as usize].reader;
                *reader = (*reader).min(*first);
            }
        }
    }

    /// Operations with several sends of which an ok poll returned one of this key.
    fn seen_txns(&self, history: &History, log: &KeyLog) -> Vec<OpId> {
        let several = log.sends.iter().filter(|sent| history.op(sent.op).sends > 1);
        several
            .filter(|sent| {
                let value = self.values.rank(sent.value);
                value.is_some_and(|value| self.facts[value as usize].reader != NONE)
            })
            .map(|sent| sent.op)
            .collect()
    }
}

/// Everything that checkers of a history start from.
#[derive(Debug)]
pub(crate) struct Orders<'a> {
    /// Keys that were sent to or polled, by name.
    pub(crate) keys: Vec<KeyOrder<'a>>,
    /// Operations with several sends of which an ok poll returned one: they were committed.
    pub(crate) seen_txns: FxHashSet<OpId>,
}

impl<'a> Orders<'a> {
    /// Works out the order of each key of `history`.
    pub(crate) fn new(history: &'a History) -> Self {
        let mut names: Vec<NameId> = (0..)
            .zip(&history.logs)
            .filter(|(_, log)| !log.is_empty())
            .map(|(key, _)| key)
            .collect();
        names.sort_by_key(|key| history.key(*key));
        let log = |key: NameId| &history.logs[key as usize];
        let values = map_parallel(names.clone(), |key| KeyValues::new(history, log(key)));
        let mut seen_txns = FxHashSet::default();
        for (key, values) in names.iter().zip(&values) {
            seen_txns.extend(values.seen_txns(history, log(*key)));
        }
        let parts = names.into_iter().zip(values).collect();
        let keys =
            map_parallel(parts, |(key, values)| KeyOrder::new(history, key, values, &seen_txns));
        Self { keys, seen_txns }
    }
}

/// One key.
#[derive(Debug)]
pub(crate) struct KeyOrder<'a> {
    pub(crate) history: &'a History,
    key: NameId,
    pub(crate) log: &'a KeyLog,
    values: Ranks,
    facts: Vec<ValueFacts>,
    offsets: Ranks,
    /// The first value known to stand at each rank.
    slots: Vec<ValueId>,
    /// Ranks at which more than one value stands: all of them.
    pub(crate) conflicts: BTreeMap<u32, BTreeSet<ValueId>>,
    /// By number of the record.
    records: Vec<RecordFacts>,
    /// Values that more than one operation sent.
    pub(crate) resent: Vec<ValueId>,
    /// By place in the log's sends: must it have been written?
    committed: Vec<bool>,
    passes: Vec<Pass>,
}

impl<'a> KeyOrder<'a> {
    fn new(
        history: &'a History,
        key: NameId,
        known: KeyValues,
        seen_txns: &FxHashSet<OpId>,
    ) -> Self {
        let log = &history.logs[key as usize];
        let KeyValues { values, facts, resent, first_read } = known;
        let committed: Vec<bool> = log
            .sends
            .iter()
            .map(|sent| match history.op(sent.op).outcome {
                Outcome::Ok => true,
                Outcome::Fail => false,
                Outcome::Info | Outcome::Open => {
                    seen_txns.contains(&sent.op)
                        || values
                            .rank(sent.value)
                            .is_some_and(|value| facts[value as usize].reader != NONE)
                }
            })
            .collect();
        let placed = log
            .sends
            .iter()
            .zip(&committed)
            .filter_map(|(sent, committed)| sent.offset().filter(|_| *committed));
        let polled = log.records.iter().map(|(offset, _)| *offset);
        let offsets = Ranks::new(placed.chain(polled));
        let mut order = Self {
            history,
            key,
            log,
            slots: vec![NONE; offsets.len()],
            offsets,
            values,
            facts,
            conflicts: BTreeMap::new(),
            records: Vec::with_capacity(log.records.len()),
            resent,
            committed,
            passes: Vec::new(),
        };
        order.place_sends();
        order.place_records(&first_read);
        order.passes = passes(&order);
        order
    }

    fn place_sends(&mut self) {
        for place in 0..self.log.sends.len() {
            let sent = &self.log.sends[place];
            if self.committed[place]
                && let Some(offset) = sent.offset()
                && let (Some(rank), Some(value)) =
                    (self.offsets.rank(offset), self.values.rank(sent.value))
            {
                self.put(Record { rank, value });
            }
        }
    }

    fn place_records(&mut self, first_read: &[u32]) {
        for ((offset, value), first_read) in self.log.records.iter().zip(first_read) {
            // Both sets were made from these numbers.
            let record = Record {
                rank: self.offsets.rank(*offset).unwrap_or(NONE),
                value: self.values.rank(*value).unwrap_or(NONE),
            };
            self.put(record);
            let jumps = self
                .records
                .last()
                .map_or(0, |last| last.jumps + u32::from(last.record.rank + 1 != record.rank));
            self.records.push(RecordFacts {
                record,
                jumps,
                first_read: *first_read,
                earliest: NONE,
                sent: self.writer_op(record.value).map_or(0, |op| op.invoked),
            });
        }
        // Known when all stand in their places.
        for facts in &mut self.records {
            facts.earliest = self.facts[facts.record.value as usize].first;
        }
    }

    fn put(&mut self, record: Record) {
        let Record { rank, value } = record;
        let slot = &mut self.slots[rank as usize];
        if *slot == NONE {
            *slot = value;
        } else if *slot != value {
            let all = self.conflicts.entry(rank).or_default();
            all.extend([*slot, value]);
        }
        let facts = &mut self.facts[value as usize];
        if facts.first == NONE {
            (facts.first, facts.last) = (rank, rank);
        } else {
            facts.first = facts.first.min(rank);
            facts.last = facts.last.max(rank);
        }
    }

    /// The key's name.
    pub(crate) fn name(&self) -> &'a str {
        self.history.key(self.key)
    }

    /// The number of the key's name.
    pub(crate) const fn id(&self) -> NameId {
        self.key
    }

    /// How many values there are; they are numbered from 0.
    pub(crate) fn value_ids(&self) -> Range<ValueId> {
        0..u32::try_from(self.facts.len()).unwrap_or(NONE)
    }

    /// How many offsets hold something; they are ranked from 0.
    pub(crate) fn ranks(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(NONE)
    }

    /// The value with number `value`.
    pub(crate) fn value(&self, value: ValueId) -> i64 {
        self.values.number(value).unwrap_or_default()
    }

    /// The number of a value of this key.
    pub(crate) fn value_id(&self, value: i64) -> Option<ValueId> {
        self.values.rank(value)
    }

    /// The offset at `rank`.
    pub(crate) fn offset(&self, rank: u32) -> i64 {
        self.offsets.number(rank).unwrap_or_default()
    }

    /// The value that stands at `rank`, the first of them where there are several.
    pub(crate) fn at(&self, rank: u32) -> ValueId {
        self.slots[rank as usize]
    }

    /// The first and the last rank at which `value` stands, where it stands anywhere.
    pub(crate) fn span(&self, value: ValueId) -> Option<(u32, u32)> {
        let facts = self.facts[value as usize];
        (facts.first != NONE).then_some((facts.first, facts.last))
    }

    /// The send of `value`, where it was sent.
    pub(crate) fn writer(&self, value: ValueId) -> Option<&'a Sent> {
        self.log.sends.get(self.facts[value as usize].writer as usize)
    }

    /// The operation that sent `value`.
    pub(crate) fn writer_op(&self, value: ValueId) -> Option<&'a Operation> {
        self.writer(value).map(|sent| self.history.op(sent.op))
    }

    /// Must `value` have been written: was its send ok, or was it, or another of its
    /// transaction, in an ok poll?
    pub(crate) fn is_committed(&self, value: ValueId) -> bool {
        let writer = self.facts[value as usize].writer;
        self.committed.get(writer as usize).is_some_and(|committed| *committed)
    }

    /// The first ok poll that returned `value`.
    pub(crate) fn reader(&self, value: ValueId) -> Option<&'a Batch> {
        self.log.batches.get(self.facts[value as usize].reader as usize)
    }

    /// Was `value` in an ok poll?
    pub(crate) fn is_read(&self, value: ValueId) -> bool {
        self.facts[value as usize].reader != NONE
    }

    /// How many distinct records were polled; they are numbered from 0.
    pub(crate) fn record_ids(&self) -> Range<RecordId> {
        0..u32::try_from(self.records.len()).unwrap_or(NONE)
    }

    /// The record with number `id`.
    pub(crate) fn record(&self, id: RecordId) -> Record {
        self.records[id as usize].record
    }

    /// The rank at which the value of a record stands first.
    pub(crate) fn earliest(&self, id: RecordId) -> u32 {
        self.records[id as usize].earliest
    }

    /// Index at which the send of a record's value was invoked; 0 where none is known.
    pub(crate) fn sent(&self, id: RecordId) -> u32 {
        self.records[id as usize].sent
    }

    /// The first ok poll that returned a record.
    pub(crate) fn first_read(&self, id: RecordId) -> Option<&'a Batch> {
        self.log.batches.get(self.records[id as usize].first_read as usize)
    }

    /// Do the records of `run` stand one right behind the other?
    pub(crate) fn is_straight(&self, run: Run) -> bool {
        let jumps = |id: RecordId| self.records[id as usize].jumps;
        jumps(run.start) == jumps(run.end - 1)
    }

    /// The first record of a batch.
    pub(crate) fn first(&self, batch: &Batch) -> Option<Record> {
        self.log.runs(batch).first().map(|run| self.record(run.start))
    }

    /// The last record of a batch.
    pub(crate) fn last(&self, batch: &Batch) -> Option<Record> {
        self.log.runs(batch).last().map(|run| self.record(run.end - 1))
    }

    /// The highest rank in a batch.
    pub(crate) fn highest(&self, batch: &Batch) -> Option<u32> {
        let highest = |run: &Run| {
            if self.is_straight(*run) {
                Some(self.record(run.end - 1).rank)
            } else {
                run.ids().map(|id| self.record(id).rank).max()
            }
        };
        self.log.runs(batch).iter().filter_map(highest).max()
    }

    /// The operation of a batch.
    pub(crate) fn batch_op(&self, batch: &Batch) -> &'a Operation {
        self.history.op(batch.op)
    }

    /// Where the send at `place` of the log's sends landed: where it says, or else where its
    /// value was polled, if that is one place. `None` where it need not have landed at all.
    pub(crate) fn landed(&self, place: usize) -> Option<u32> {
        let sent = &self.log.sends[place];
        if !self.committed[place] {
            return None;
        }
        if let Some(offset) = sent.offset() {
            return self.offsets.rank(offset);
        }
        let (first, last) = self.span(self.value_id(sent.value)?)?;
        (first == last).then_some(first)
    }

    /// Each process's reading of this key, cut where it began anew.
    pub(crate) fn passes(&self) -> &[Pass] {
        &self.passes
    }

    /// The first line that says that `value` stands at `rank`: the completion of a send or poll.
    pub(crate) fn sighting(&self, rank: u32, value: ValueId) -> Option<u32> {
        let record = Record { rank, value };
        let sent = self
            .writer(value)
            .filter(|sent| sent.offset() == Some(self.offset(rank)))
            .filter(|_| self.is_committed(value))
            .map(|sent| self.history.op(sent.op).completed);
        let polled = self.record_ids().find(|id| self.record(*id) == record);
        let polled = polled.and_then(|id| {
            let mut batches = self.log.batches.iter();
            let first = self.first_read(id);
            first.or_else(|| batches.find(|batch| self.log.ids(batch).any(|other| other == id)))
        });
        let polled = polled.map(|batch| self.batch_op(batch).completed);
        sent.into_iter().chain(polled).min()
    }
}
