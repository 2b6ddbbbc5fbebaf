//! Polled records of a key, each kept once.

use rustc_hash::FxHashMap;

use crate::event::Pair;
use crate::operations::{Batch, KeyLog, OpId, RecordId, Run};

/// The numbers of the records of one key.
#[derive(Debug, Default)]
pub(super) struct Records {
    numbers: FxHashMap<Pair, RecordId>,
}

impl Records {
    /// Adds to `log` what `op` polled.
    pub(super) fn add(&mut self, log: &mut KeyLog, op: OpId, pairs: &[Pair]) {
        let first = log.runs.len();
        let mut run: Option<Run> = None;
        for pair in pairs {
            // Most of what is read follows what was read just before, as it did last time.
            if let Some(run) = &mut run
                && log.records.get(run.end as usize) == Some(pair)
            {
                run.end += 1;
                continue;
            }
            let id = self.number(log, *pair);
            match &mut run {
                Some(run) if run.end == id => run.end += 1,
                _ => {
                    let next = Run { start: id, end: id + 1 };
                    log.runs.extend(run.replace(next));
                }
            }
        }
        log.runs.extend(run);
        // There are fewer records and runs than bytes in any history that fits in memory.
        let short = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        let runs = Run { start: short(first), end: short(log.runs.len()) };
        log.batches.push(Batch { op, runs });
    }

    fn number(&mut self, log: &mut KeyLog, pair: Pair) -> RecordId {
        let next = RecordId::try_from(log.records.len()).unwrap_or(RecordId::MAX);
        let id = *self.numbers.entry(pair).or_insert(next);
        if id == next {
            log.records.push(pair);
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_again_takes_one_run() {
        let (mut records, mut log) = (Records::default(), KeyLog::default());
        records.add(&mut log, 0, &[(0, 10), (1, 11), (2, 12)]);
        records.add(&mut log, 1, &[(1, 11), (2, 12), (5, 15)]);
        records.add(&mut log, 2, &[(5, 15), (0, 10), (0, 99)]);
        assert_eq!(log.records, [(0, 10), (1, 11), (2, 12), (5, 15), (0, 99)]);
        let ids = |batch: usize| log.ids(&log.batches[batch]).collect::<Vec<_>>();
        assert_eq!(ids(0), [0, 1, 2]);
        assert_eq!(ids(1), [1, 2, 3]);
        assert_eq!(ids(2), [3, 0, 4]);
        assert_eq!(log.runs(&log.batches[1]).len(), 1);
    }
}
