//! The version order of each key: which value stands at which offset, as acknowledged sends and
//! polls say, and who wrote and read each value.

use std::collections::{BTreeMap, BTreeSet};

use history::{Batch, History, KeyLog, NameId, OpId, Operation, Outcome, Sent};
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

/// Number of a value among those of its key, ascending.
pub(crate) type ValueId = u32;

/// Who wrote and read which value of a key, wherever it stands.
#[derive(Debug)]
struct KeyValues {
    values: Ranks,
    facts: Vec<ValueFacts>,
    resent: Vec<ValueId>,
}

impl KeyValues {
    fn new(history: &History, log: &KeyLog) -> Self {
        let sent = log.sends.iter().map(|sent| sent.value);
        let values = Ranks::new(sent.chain(log.records.iter().map(|(_, value)| *value)));
        let unknown = ValueFacts { writer: NONE, first: NONE, last: NONE, reader: NONE };
        let mut known = Self { facts: vec![unknown; values.len()], values, resent: Vec::new() };
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
        for (place, batch) in (0..).zip(&log.batches) {
            if history.op(batch.op).outcome != Outcome::Ok {
                continue;
            }
            for (_, value) in &log.records[batch.range()] {
                if let Some(value) = self.values.rank(*value) {
                    let reader = &mut self.facts[value as usize].reader;
                    *reader = (*reader).min(place);
                }
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
    /// As [`KeyLog::records`].
    records: Vec<Record>,
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
        let KeyValues { values, facts, resent } = known;
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
        order.place_records();
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

    fn place_records(&mut self) {
        for (offset, value) in &self.log.records {
            // Both sets were made from these numbers.
            let record = Record {
                rank: self.offsets.rank(*offset).unwrap_or(NONE),
                value: self.values.rank(*value).unwrap_or(NONE),
            };
            self.records.push(record);
            self.put(record);
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
    pub(crate) fn value_ids(&self) -> std::ops::Range<ValueId> {
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

    /// The records of a batch.
    pub(crate) fn records(&self, batch: &Batch) -> &[Record] {
        &self.records[batch.range()]
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

    /// Every line that says that `value` stands at `rank`, the first first: the completion of a
    /// send or poll.
    pub(crate) fn sightings(&self, rank: u32, value: ValueId) -> impl Iterator<Item = u32> {
        let sent = self
            .writer(value)
            .filter(|sent| sent.offset() == Some(self.offset(rank)))
            .filter(|_| self.is_committed(value))
            .map(|sent| self.history.op(sent.op).completed);
        let record = Record { rank, value };
        let polled = self
            .log
            .batches
            .iter()
            .filter(move |batch| self.records(batch).contains(&record))
            .map(|batch| self.batch_op(batch).completed);
        sent.into_iter().chain(polled)
    }
}
