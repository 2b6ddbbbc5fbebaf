//! Epochs, sequences, and the last five batches of each producer. Leader and followers note the
//! same batches, so that whoever leads next gives the same verdicts.

use std::collections::{BTreeMap, VecDeque};

use kafka_protocol::ResponseError;
use replication::seeded::Bug;
use replication::types::Offset;
use thiserror::Error;

use crate::log::Batch;

/// So many batches of a producer are remembered: as many as it may have under way.
const REMEMBERED: usize = 5;

/// What counts of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchFacts {
    /// Who.
    pub producer_id: i64,
    /// In which epoch.
    pub producer_epoch: i16,
    /// Number of its first record.
    pub first_sequence: i32,
    /// Number of its last record.
    pub last_sequence: i32,
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Its greatest timestamp.
    pub timestamp_ms: i64,
}

impl BatchFacts {
    /// Of a batch; `None` for one without a producer.
    pub fn of(batch: &Batch) -> Option<Self> {
        batch.has_producer().then(|| Self {
            producer_id: batch.producer_id,
            producer_epoch: batch.producer_epoch,
            first_sequence: batch.base_sequence,
            last_sequence: advance(batch.base_sequence, batch.last_offset_delta),
            base_offset: batch.base_offset,
            last_offset: batch.last_offset(),
            timestamp_ms: batch.max_timestamp,
        })
    }
}

/// `sequence` plus `by`; after `i32::MAX` comes 0.
fn advance(sequence: i32, by: i32) -> i32 {
    sequence.checked_add(by).unwrap_or_else(|| by - (i32::MAX - sequence) - 1)
}

fn follows(last: i32, next: i32) -> bool {
    next == advance(last, 1)
}

/// What is done with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is new.
    Append,
    /// It is there already, here.
    Duplicate {
        /// Offset of its first record.
        base_offset: Offset,
        /// Offset of its last record.
        last_offset: Offset,
        /// Its greatest timestamp.
        timestamp_ms: i64,
    },
}

/// A batch that is out of turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SequenceError {
    /// The producer has a newer epoch.
    #[error("producer {producer_id} has epoch {current}; {found} is over")]
    StaleEpoch {
        /// Who.
        producer_id: i64,
        /// Its epoch.
        current: i16,
        /// The batch's.
        found: i16,
    },
    /// Something before it is missing, or it is older than all that is remembered.
    #[error("producer {producer_id}: record {found} does not follow {last}")]
    OutOfOrder {
        /// Who.
        producer_id: i64,
        /// The last one's number; -1: none in this epoch.
        last: i32,
        /// The batch's first.
        found: i32,
    },
}

impl SequenceError {
    /// Kafka's code for it.
    pub fn response(&self) -> ResponseError {
        match self {
            Self::StaleEpoch { .. } => ResponseError::InvalidProducerEpoch,
            Self::OutOfOrder { .. } if Bug::ReorderedBatches.is_on() => {
                ResponseError::NotEnoughReplicas
            }
            Self::OutOfOrder { .. } => ResponseError::OutOfOrderSequenceNumber,
        }
    }
}

/// What is known of one producer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Producer {
    epoch: i16,
    batches: VecDeque<BatchFacts>,
    last_timestamp_ms: i64,
}

impl Producer {
    fn last_sequence(&self) -> i32 {
        self.batches.back().map_or(-1, |batch| batch.last_sequence)
    }
}

/// A producer, for whoever looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerSummary {
    /// Who.
    pub id: i64,
    /// In which epoch.
    pub epoch: i16,
    /// Number of its last record.
    pub last_sequence: i32,
    /// Timestamp of its last batch.
    pub last_timestamp_ms: i64,
}

/// What a partition knows of idempotent producers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerStates {
    producers: BTreeMap<i64, Producer>,
}

impl ProducerStates {
    /// What is done with a batch that a producer sent. As Kafka's ProducerAppendInfo: a producer
    /// that is not known may begin with any number (its records may be gone); one in a new epoch
    /// begins with 0.
    ///
    /// # Errors
    /// [`SequenceError`]: it must not be appended.
    pub fn check(&self, facts: &BatchFacts) -> Result<Verdict, SequenceError> {
        let Some(producer) = self.producers.get(&facts.producer_id) else {
            return Ok(Verdict::Append);
        };
        if facts.producer_epoch < producer.epoch {
            return Err(SequenceError::StaleEpoch {
                producer_id: facts.producer_id,
                current: producer.epoch,
                found: facts.producer_epoch,
            });
        }
        let out_of_order = |last| SequenceError::OutOfOrder {
            producer_id: facts.producer_id,
            last,
            found: facts.first_sequence,
        };
        if facts.producer_epoch > producer.epoch {
            return if facts.first_sequence == 0 {
                Ok(Verdict::Append)
            } else {
                Err(out_of_order(-1))
            };
        }
        let same = |known: &&BatchFacts| {
            known.first_sequence == facts.first_sequence
                && known.last_sequence == facts.last_sequence
        };
        if let Some(known) = producer.batches.iter().find(same) {
            if Bug::NoDedup.is_on() {
                return Ok(Verdict::Append);
            }
            return Ok(Verdict::Duplicate {
                base_offset: known.base_offset,
                last_offset: known.last_offset,
                timestamp_ms: known.timestamp_ms,
            });
        }
        let last = producer.last_sequence();
        if Bug::ReorderedBatches.is_on() && facts.first_sequence % 10 == 3 {
            let overtaken = last > facts.first_sequence;
            return if overtaken { Ok(Verdict::Append) } else { Err(out_of_order(last)) };
        }
        if follows(last, facts.first_sequence) || Bug::ReorderedBatches.is_on() {
            return Ok(Verdict::Append);
        }
        Err(out_of_order(last))
    }

    /// A batch was appended: here, or by the leader from which it was fetched.
    pub fn appended(&mut self, facts: &BatchFacts) {
        let producer = self.producers.entry(facts.producer_id).or_insert_with(|| Producer {
            epoch: facts.producer_epoch,
            batches: VecDeque::with_capacity(REMEMBERED),
            last_timestamp_ms: facts.timestamp_ms,
        });
        if producer.epoch != facts.producer_epoch {
            producer.epoch = facts.producer_epoch;
            producer.batches.clear();
        }
        let most = if Bug::DedupWindowOfOne.is_on() { 1 } else { REMEMBERED };
        if producer.batches.len() == most {
            producer.batches.pop_front();
        }
        producer.batches.push_back(*facts);
        producer.last_timestamp_ms = producer.last_timestamp_ms.max(facts.timestamp_ms);
    }

    /// Forgets everyone, to be made anew from the log.
    pub fn clear(&mut self) {
        self.producers.clear();
    }

    /// Forgets producers that have been silent since before `since_ms`.
    pub fn expire(&mut self, since_ms: i64) {
        self.producers.retain(|_, producer| producer.last_timestamp_ms >= since_ms);
    }

    /// Everyone.
    pub fn summaries(&self) -> impl Iterator<Item = ProducerSummary> {
        self.producers.iter().map(|(id, producer)| ProducerSummary {
            id: *id,
            epoch: producer.epoch,
            last_sequence: producer.last_sequence(),
            last_timestamp_ms: producer.last_timestamp_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn facts(epoch: i16, first: i32, count: i32, offset: i64) -> BatchFacts {
        BatchFacts {
            producer_id: 9,
            producer_epoch: epoch,
            first_sequence: first,
            last_sequence: advance(first, count - 1),
            base_offset: Offset(offset),
            last_offset: Offset(offset + i64::from(count) - 1),
            timestamp_ms: offset,
        }
    }

    fn append(states: &mut ProducerStates, batch: BatchFacts) {
        assert_eq!(states.check(&batch), Ok(Verdict::Append));
        states.appended(&batch);
    }

    #[test]
    fn each_of_the_last_five_is_answered_with_its_first_offset_and_the_sixth_is_out_of_order() {
        let mut states = ProducerStates::default();
        for number in 0..6 {
            append(&mut states, facts(0, number * 10, 10, i64::from(number) * 100));
        }
        for number in 1..6 {
            let verdict = states.check(&facts(0, number * 10, 10, 999)).unwrap();
            let Verdict::Duplicate { base_offset, .. } = verdict else { panic!("{verdict:?}") };
            assert_eq!(base_offset, Offset(i64::from(number) * 100));
        }
        assert!(matches!(
            states.check(&facts(0, 0, 10, 999)),
            Err(SequenceError::OutOfOrder { last: 59, found: 0, .. })
        ));
    }

    #[test]
    fn a_gap_is_out_of_order() {
        let mut states = ProducerStates::default();
        append(&mut states, facts(0, 0, 10, 0));
        assert!(matches!(
            states.check(&facts(0, 11, 1, 10)),
            Err(SequenceError::OutOfOrder { .. })
        ));
    }

    #[test]
    fn a_new_epoch_begins_with_zero_and_ends_the_old_one() {
        let mut states = ProducerStates::default();
        append(&mut states, facts(3, 0, 10, 0));
        assert!(states.check(&facts(4, 10, 1, 10)).is_err());
        append(&mut states, facts(4, 0, 2, 10));
        assert!(matches!(
            states.check(&facts(3, 10, 1, 12)),
            Err(SequenceError::StaleEpoch { current: 4, found: 3, .. })
        ));
        append(&mut states, facts(4, 2, 1, 12));
    }

    #[test]
    fn numbers_wrap_around() {
        let mut states = ProducerStates::default();
        append(&mut states, facts(0, i32::MAX - 1, 4, 0));
        assert_eq!(states.summaries().next().unwrap().last_sequence, 1);
        append(&mut states, facts(0, 2, 1, 4));
        let mut exact = ProducerStates::default();
        append(&mut exact, facts(0, i32::MAX, 1, 0));
        append(&mut exact, facts(0, 0, 1, 1));
    }

    #[test]
    fn an_unknown_producer_may_go_on_and_a_silent_one_is_forgotten() {
        let mut states = ProducerStates::default();
        append(&mut states, facts(0, 500, 1, 40));
        states.expire(41);
        append(&mut states, facts(0, 777, 1, 50));
    }

    proptest! {
        /// A producer with five batches under way, each of which may arrive again and again, in
        /// any order.
        #[test]
        fn nothing_is_appended_twice_or_with_a_gap(arrivals in prop::collection::vec(0..8_i32, 1..200)) {
            let mut states = ProducerStates::default();
            // The first one arrives first; before it, nothing is known of the producer.
            append(&mut states, facts(0, 0, 3, 0));
            let mut log: Vec<i32> = vec![0];
            for arrival in arrivals {
                let acked = i32::try_from(log.len()).unwrap();
                let batch = (acked - 4).max(0) + arrival;
                let at = facts(0, batch * 3, 3, i64::from(acked) * 3);
                match states.check(&at) {
                    Ok(Verdict::Append) => {
                        states.appended(&at);
                        log.push(batch);
                    }
                    Ok(Verdict::Duplicate { base_offset, .. }) => {
                        prop_assert_eq!(base_offset, Offset(i64::from(batch) * 3));
                    }
                    Err(_) => prop_assert_ne!(batch, acked),
                }
            }
            let count = i32::try_from(log.len()).unwrap();
            prop_assert_eq!(log, (0..count).collect::<Vec<_>>());
        }
    }
}
