//! `lost-write` and `unseen`: acknowledged values that nobody read.
//!
//! "Seen up to": a value that was certainly written is lost if a pass over its key went on beyond
//! it and did not return it, nor did any other ok poll. A pass went beyond it if it returned
//!
//! - a value that stands behind it in the version order, or
//! - a value whose send was invoked after it had been acknowledged. That finds a tail which was
//!   cut off above the new end of the log.
//!
//! A pass that began behind the value, where the process or its group stood, proves nothing: that
//! happens when a run is cut short and nobody reads its keys from their beginning. What is
//! acknowledged, read by nobody and not shown to be lost is unseen, and makes the verdict unknown.

use history::Outcome;

use crate::findings::Findings;
use crate::order::{KeyOrder, ValueId};
use crate::passes::{Pass, Start};
use crate::verdict::{Example, Validity};

pub(crate) const LOST: &str = "lost-write";
pub(crate) const UNSEEN: &str = "unseen";

/// Which passes went furthest.
#[derive(Clone, Copy)]
struct Furthest<'a> {
    /// In the version order.
    rank: &'a Pass,
    /// In time.
    time: &'a Pass,
}

impl<'a> Furthest<'a> {
    fn with(self, pass: &'a Pass) -> Self {
        Self {
            rank: if pass.bound > self.rank.bound { pass } else { self.rank },
            time: if pass.newest > self.time.newest { pass } else { self.time },
        }
    }
}

/// For each place at which passes began: the furthest of all passes that began there or before.
/// Place 0 is the beginning of the key, whatever may stand there; rank r is place r + 1.
struct Passes<'a>(Vec<(u32, Furthest<'a>)>);

impl<'a> Passes<'a> {
    fn new(order: &'a KeyOrder<'_>) -> Self {
        let begin = |pass: &Pass| match pass.start {
            Start::Beginning(_) | Start::Unsaid => 0,
            Start::Somewhere => pass.first.saturating_add(1),
        };
        let mut sorted: Vec<&Pass> = order.passes().iter().collect();
        sorted.sort_by_key(|pass| begin(pass));
        let mut furthest: Vec<(u32, Furthest<'_>)> = Vec::with_capacity(sorted.len());
        for pass in sorted {
            let alone = Furthest { rank: pass, time: pass };
            let all = furthest.last().map_or(alone, |(_, before)| before.with(pass));
            furthest.push((begin(pass), all));
        }
        Self(furthest)
    }

    /// Of those that began at `rank` or before; of whole ones for what may stand anywhere.
    fn from(&self, rank: Option<u32>) -> Option<Furthest<'a>> {
        let begun = rank.map_or(0, |rank| rank.saturating_add(1));
        let place = self.0.partition_point(|(begin, _)| *begin <= begun);
        self.0[..place].last().map(|(_, furthest)| *furthest)
    }
}

/// What shows that a value is lost.
struct Beyond<'a> {
    pass: &'a Pass,
    /// The value that the pass returned.
    value: ValueId,
    /// It stands behind the lost one; else it was sent after the lost one's acknowledgement.
    behind: bool,
}

pub(super) fn check(order: &KeyOrder<'_>, findings: &mut Findings) {
    let passes = Passes::new(order);
    for value in order.value_ids() {
        if order.is_read(value) || !order.is_committed(value) {
            continue;
        }
        if let Some(beyond) = beyond(order, &passes, value) {
            findings.add(LOST, Validity::False, || lost(order, value, &beyond));
        } else if order.writer_op(value).is_some_and(|op| op.outcome == Outcome::Ok) {
            findings.add(UNSEEN, Validity::Unknown, || unseen(order, value));
        }
    }
}

fn beyond<'a>(order: &KeyOrder<'_>, passes: &Passes<'a>, value: ValueId) -> Option<Beyond<'a>> {
    let span = order.span(value);
    let furthest = passes.from(span.map(|(first, _)| first))?;
    let rank = furthest.rank;
    if span.is_some_and(|(_, last)| last <= rank.bound) {
        return Some(Beyond { pass: rank, value: rank.bound_value, behind: true });
    }
    let op = order.writer_op(value)?;
    let time = furthest.time;
    (op.outcome == Outcome::Ok && op.completed < time.newest).then_some(Beyond {
        pass: time,
        value: time.newest_value,
        behind: false,
    })
}

fn place(order: &KeyOrder<'_>, value: ValueId) -> String {
    let number = order.value(value);
    match order.span(value) {
        Some((first, _)) => format!("{number} at offset {}", order.offset(first)),
        None => number.to_string(),
    }
}

fn lost(order: &KeyOrder<'_>, value: ValueId, beyond: &Beyond<'_>) -> Example {
    let writer = order.writer_op(value);
    let poll = beyond.pass.batch_of(order, beyond.value);
    let poll_line = poll.map(|batch| order.batch_op(batch).completed);
    let later = order.writer_op(beyond.value).map(|op| op.invoked);
    let same_place = order.span(value) == order.span(beyond.value);
    let why = if beyond.behind && same_place {
        "stands in its place".to_owned()
    } else if beyond.behind {
        "stands behind it".to_owned()
    } else {
        let index = later.unwrap_or_default();
        format!("was sent after that (invoked at index {index})")
    };
    let acknowledged = match writer {
        Some(op) if op.outcome == Outcome::Ok => {
            format!("was acknowledged (index {})", op.completed)
        }
        Some(op) => format!(
            "was committed, as another value of its transaction was read (invoked at index {})",
            op.invoked
        ),
        None => "was written".to_owned(),
    };
    let text = format!(
        "{}: {} {acknowledged} and no ok poll returned it, but {}, which {why}, was read \
         (index {}).",
        order.name(),
        place(order, value),
        place(order, beyond.value),
        poll_line.unwrap_or_default(),
    );
    let both = [value, beyond.value];
    let offsets = both.iter().filter_map(|value| order.span(*value));
    let later = later.filter(|_| !beyond.behind);
    Example::new(order.name(), text)
        .offsets(offsets.map(|(first, _)| order.offset(first)))
        .values(both.map(|value| order.value(value)))
        .lines(writer.into_iter().flat_map(|op| [op.invoked, op.completed]))
        .lines(poll_line.into_iter().chain(later))
}

fn unseen(order: &KeyOrder<'_>, value: ValueId) -> Example {
    let writer = order.writer_op(value);
    let text = format!(
        "{}: {} was acknowledged (index {}) and no ok poll returned it; but no read that began \
         at or before it went beyond it.",
        order.name(),
        place(order, value),
        writer.map_or(0, |op| op.completed),
    );
    let offset = order.span(value).map(|(first, _)| order.offset(first));
    Example::new(order.name(), text)
        .offsets(offset)
        .values([order.value(value)])
        .lines(writer.into_iter().flat_map(|op| [op.invoked, op.completed]))
}
