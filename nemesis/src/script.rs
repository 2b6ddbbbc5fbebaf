//! A schedule written by hand.
//!
//! One step a line (or between semicolons); `#` begins a comment:
//!
//! ```text
//! 5s   kill followers:orders-0 as f
//! 15s  kill leader:orders-0 as l
//! 20s  partition isolate-one n2 as p
//! 25s  heal f
//! 30s  heal l
//! 40s  heal p
//! ```
//!
//! What is not healed by hand is healed at the end of the run.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::catalog::FaultKind;
use crate::partition::PartitionKind;
use crate::schedule::{Inject, Step, StepAction};
use crate::target::Target;

/// Why a script cannot be read.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("step {step}, `{text}`: {reason}")]
pub struct ScriptError {
    /// Which step, from 1.
    pub step: usize,
    /// The step as written.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Reads a script.
///
/// # Errors
/// [`ScriptError`] with the step and what was expected there.
pub fn parse_script(text: &str) -> Result<Vec<Step>, ScriptError> {
    let mut labels = BTreeMap::new();
    let mut steps: Vec<Step> = Vec::new();
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let written = lines.flat_map(|line| line.split(';')).map(str::trim).filter(|s| !s.is_empty());
    for (index, line) in written.enumerate() {
        let fail = |reason| ScriptError { step: index + 1, text: line.to_owned(), reason };
        let step = parse_step(line, index as u64 + 1, &mut labels).map_err(fail)?;
        if steps.last().is_some_and(|last| last.at_ms > step.at_ms) {
            return Err(fail("it lies before the step above it; steps go in order of time".into()));
        }
        steps.push(step);
    }
    Ok(steps)
}

fn parse_step(line: &str, number: u64, labels: &mut BTreeMap<String, u64>) -> Result<Step, String> {
    let mut words = line.split_whitespace();
    let time = words.next().unwrap_or_default();
    let at_ms = parse_duration_ms(time.trim_end_matches(':'))?;
    let verb = words.next().ok_or("a fault or `heal` must follow the time")?;
    let rest: Vec<&str> = words.collect();
    if verb == "heal" {
        let [label] = rest[..] else {
            return Err("`heal` takes the one name of a fault".into());
        };
        let id = labels.remove(label).ok_or_else(|| {
            format!("no fault above is named `{label}` (or it is healed already)")
        })?;
        return Ok(Step { at_ms, id, action: StepAction::Heal });
    }
    let fault: FaultKind = verb.parse()?;
    let (what, label) = match rest[..] {
        [ref what @ .., "as", label] => (what, Some(label)),
        ref what => (what, None),
    };
    let (partition, what) = match (fault, what) {
        (FaultKind::Partition, [shape, rest @ ..]) => (Some(shape.parse::<PartitionKind>()?), rest),
        (FaultKind::Partition, []) => return Err("`partition` must be followed by a shape".into()),
        (_, what) => (None, what),
    };
    let target = match what {
        [] if partition.is_some() => None,
        [] => return Err(format!("`{fault}` must be followed by a target")),
        [target] => Some(target.parse::<Target>()?),
        [_, extra, ..] => return Err(format!("`{extra}` was not expected here")),
    };
    if let Some(label) = label
        && labels.insert(label.to_owned(), number).is_some()
    {
        return Err(format!("`{label}` names a fault above that is not healed yet"));
    }
    let inject = Inject { fault, target, partition, choice: number };
    Ok(Step { at_ms, id: number, action: StepAction::Inject(inject) })
}

/// `500ms`, `5s`, `2m`, `1h`, in milliseconds.
fn parse_duration_ms(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(format!("`{text}` is not a time; write 500ms, 5s, 2m or 1h")),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| format!("`{text}` is not a time; write 500ms, 5s, 2m or 1h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_with_their_names() {
        let steps = parse_script(
            "5s kill followers:t-0 as f  # comment\n 15s: pause leader as l; 20s heal f\n\n25s partition halves",
        )
        .unwrap();
        let seen: Vec<_> = steps
            .iter()
            .map(|step| (step.at_ms, step.id, matches!(step.action, StepAction::Heal)))
            .collect();
        assert_eq!(
            seen,
            [(5_000, 1, false), (15_000, 2, false), (20_000, 1, true), (25_000, 4, false)]
        );
        let StepAction::Inject(last) = &steps[3].action else { panic!("not an injection") };
        assert_eq!(last.partition, Some(PartitionKind::Halves));
    }

    #[test]
    fn each_mistake_is_named_with_its_step() {
        let reason = |text: &str| parse_script(text).unwrap_err().to_string();
        assert!(reason("5 kill one").contains("is not a time"));
        assert!(reason("5s explode one").contains("there is no fault `explode`"));
        assert!(reason("5s kill").contains("must be followed by a target"));
        assert!(reason("5s kill nobody").contains("there is no target"));
        assert!(reason("5s kill one; 4s kill one").contains("step 2"));
        assert!(reason("5s heal x").contains("no fault above is named `x`"));
        assert!(reason("5s kill one as a; 6s kill one as a").contains("not healed yet"));
        assert!(reason("5s partition").contains("followed by a shape"));
        assert!(reason("5s kill one two").contains("`two` was not expected"));
    }
}
