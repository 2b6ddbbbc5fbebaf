//! Counts and times of operations.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use hdrhistogram::Histogram;
use history::{History, NameId, Operation, Outcome};

use super::{Availability, FaultWindow, FunctionStats, KeyStats, Latency, Outcomes, Stats, lag};
use crate::faults::{Fault, faults};
use crate::order::{KeyOrder, Orders};
use crate::parallel::map_parallel;

/// Significant digits of a latency; the library offers up to five.
const DIGITS: u8 = 3;
/// Most error codes that are told of one `f`.
const CODES_SHOWN: usize = 32;
/// Nobody is waiting: a pause between sends longer than this is not a lack of availability.
const IDLE_NS: u64 = 1_000_000_000;

/// The numbers of a history.
pub(crate) fn measure(orders: &Orders<'_>, history: &History) -> Stats {
    let polls = lag::ok_polls(history);
    let keys = map_parallel(orders.keys.iter().collect(), |order| {
        (key_stats(order), lag::lag(order, &polls))
    });
    let mut by_key = BTreeMap::new();
    let mut worst = None;
    for (order, (stats, lag)) in orders.keys.iter().zip(keys) {
        by_key.insert(order.name().to_owned(), stats);
        if lag.as_ref().map(|lag| lag.max_ns)
            > worst.as_ref().map(|lag: &super::RealtimeLag| lag.max_ns)
        {
            worst = lag;
        }
    }
    let windows = faults(history);
    Stats {
        events: history.events,
        operations: history.operations.len() as u64,
        duration_ns: history.duration_ns,
        by_f: by_function(history),
        availability: availability(history),
        realtime_lag: worst,
        keys: by_key,
        fault_windows: windows.iter().map(|fault| window(history, fault)).collect(),
        warnings: history
            .warnings
            .iter()
            .cloned()
            .chain(windows.iter().filter(|fault| !fault.healed).map(unhealed))
            .collect(),
    }
}

fn unhealed(fault: &Fault) -> String {
    let (index, _) = fault.installed;
    let how = match fault.ended {
        Some((index, _)) => format!("could not be healed (index {index})"),
        None => "was never healed".to_owned(),
    };
    format!("fault {}, {}, installed at index {index}, {how}", fault.id, fault.name)
}

impl Outcomes {
    fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Ok => self.ok += 1,
            Outcome::Fail => self.fail += 1,
            Outcome::Info => self.info += 1,
            Outcome::Open => {}
        }
    }
}

/// Latencies of ok operations by their `f`.
#[derive(Default)]
struct Latencies(BTreeMap<NameId, Histogram<u64>>);

impl Latencies {
    fn add(&mut self, op: &Operation) {
        if op.outcome != Outcome::Ok {
            return;
        }
        let histogram = match self.0.entry(op.function) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => match Histogram::new(DIGITS) {
                Ok(histogram) => entry.insert(histogram),
                Err(_) => return,
            },
        };
        // The histogram grows with what is recorded, so this cannot fail; `saturating_record` would
        // not grow it.
        let _ = histogram.record(op.completed_ns.saturating_sub(op.wanted_ns));
    }

    fn quantiles(&self, function: NameId) -> Option<Latency> {
        let histogram = self.0.get(&function)?;
        let at = |quantile| histogram.value_at_quantile(quantile).min(histogram.max());
        Some(Latency {
            count: histogram.len(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p99_9_ns: at(0.999),
            max_ns: histogram.max(),
        })
    }
}

fn by_function(history: &History) -> BTreeMap<String, FunctionStats> {
    let mut latencies = Latencies::default();
    let mut stats: Vec<FunctionStats> = Vec::new();
    stats.resize_with(history.functions.len(), FunctionStats::default);
    for op in &history.operations {
        let stats = &mut stats[op.function as usize];
        stats.invoked += 1;
        stats.open += u64::from(op.outcome == Outcome::Open);
        stats.outcomes.count(op.outcome);
        latencies.add(op);
    }
    for ((function, code), count) in &history.errors {
        stats[*function as usize].errors.insert(code.clone(), *count);
    }
    (0..)
        .zip(history.functions.iter())
        .zip(stats)
        .filter(|(_, stats)| stats.invoked > 0)
        .map(|((function, name), mut stats)| {
            stats.latency = latencies.quantiles(function);
            keep_most_frequent(&mut stats.errors);
            (name.to_owned(), stats)
        })
        .collect()
}

fn keep_most_frequent(errors: &mut BTreeMap<String, u64>) {
    if errors.len() > CODES_SHOWN {
        let mut all: Vec<(String, u64)> = std::mem::take(errors).into_iter().collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all.truncate(CODES_SHOWN);
        errors.extend(all);
    }
}

fn key_stats(order: &KeyOrder<'_>) -> KeyStats {
    let mut stats = KeyStats {
        last_offset: order.ranks().checked_sub(1).map(|rank| order.offset(rank)),
        ..KeyStats::default()
    };
    for value in order.value_ids() {
        let acked = order.writer_op(value).is_some_and(|op| op.outcome == Outcome::Ok);
        let read = order.is_read(value);
        stats.acked += u64::from(acked);
        stats.read += u64::from(read);
        stats.unread += u64::from(acked && !read);
    }
    stats
}

/// Send operations as they begin and end.
struct Waiting {
    /// How many are open.
    open: u64,
    /// Since when none was ok though someone asked.
    since_ns: Option<u64>,
    last_ns: u64,
    longest: Option<Availability>,
}

impl Waiting {
    fn end_gap(&mut self, end_ns: u64) {
        let Some(start_ns) = self.since_ns.take() else {
            return;
        };
        let longest_gap_ns = end_ns.saturating_sub(start_ns);
        if self.longest.is_none_or(|gap| longest_gap_ns > gap.longest_gap_ns) {
            self.longest = Some(Availability { longest_gap_ns, start_ns, end_ns });
        }
    }

    fn begin(&mut self, time_ns: u64) {
        if self.open == 0 && time_ns.saturating_sub(self.last_ns) > IDLE_NS {
            self.end_gap(self.last_ns);
        }
        self.since_ns = self.since_ns.or(Some(time_ns));
        self.open += 1;
        self.last_ns = time_ns;
    }

    fn end(&mut self, outcome: Outcome, time_ns: u64) {
        self.open = self.open.saturating_sub(1);
        self.last_ns = time_ns;
        if outcome == Outcome::Ok {
            self.end_gap(time_ns);
            self.since_ns = (self.open > 0).then_some(time_ns);
        }
    }
}

fn availability(history: &History) -> Option<Availability> {
    let sends = || history.operations.iter().filter(|op| op.sends > 0);
    let mut begins: Vec<(u32, u64)> = sends().map(|op| (op.invoked, op.invoked_ns)).collect();
    begins.sort_unstable();
    let mut begins = begins.into_iter().peekable();
    let mut waiting = Waiting { open: 0, since_ns: None, last_ns: 0, longest: None };
    // Operations lie in the order of completion; those that never did come last.
    for op in sends().filter(|op| op.outcome != Outcome::Open) {
        while let Some((_, time_ns)) = begins.next_if(|(line, _)| *line < op.completed) {
            waiting.begin(time_ns);
        }
        waiting.end(op.outcome, op.completed_ns);
    }
    for (_, time_ns) in begins {
        waiting.begin(time_ns);
    }
    let end_ns = if waiting.open > 0 { history.duration_ns } else { waiting.last_ns };
    waiting.end_gap(end_ns);
    waiting.longest
}

fn window(history: &History, fault: &Fault) -> FaultWindow {
    let (start_line, start_ns) = fault.installed;
    let (end_line, end_ns) = fault.ended.unwrap_or((u64::MAX, history.duration_ns));
    let ops = &history.operations;
    let first = ops.partition_point(|op| u64::from(op.completed) <= start_line);
    let within = ops[first..].iter().take_while(|op| u64::from(op.completed) < end_line);
    let mut outcomes = Outcomes::default();
    let mut latencies = Latencies::default();
    for op in within {
        outcomes.count(op.outcome);
        latencies.add(op);
    }
    let by_function = latencies.0.keys().filter_map(|function| {
        let name = history.functions.get(*function).to_owned();
        Some((name, latencies.quantiles(*function)?))
    });
    FaultWindow {
        id: fault.id,
        fault: fault.name.clone(),
        target: fault.target.clone(),
        start_ns,
        end_ns,
        healed: fault.healed,
        ops: std::iter::once(start_line).chain(fault.ended.map(|(line, _)| line)).collect(),
        outcomes,
        latency: by_function.collect(),
    }
}
