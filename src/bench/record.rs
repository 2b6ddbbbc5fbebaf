//! What is written down: the raw numbers of every turn, and what they depend on.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::machine::Machine;
use super::metric::Measure;
use super::plan::BenchPlan;
use super::summary::Row;

/// The whole bench: what `bench.json` says.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BenchFile {
    /// What was going to be measured.
    pub(crate) plan: BenchPlan,
    /// UTC, RFC 3339.
    pub(crate) started_at: String,
    /// The same; of the newest turn while the bench goes on.
    pub(crate) ended_at: String,
    /// Was it cut short? Then turns are missing.
    pub(crate) interrupted: bool,
    /// What all systems ran on.
    pub(crate) machine: Machine,
    /// Of the driver and its client library.
    pub(crate) versions: BTreeMap<String, String>,
    /// By load driver: what librdkafka was told.
    pub(crate) client_settings: BTreeMap<String, BTreeMap<String, String>>,
    /// By system: what its first cluster was told.
    pub(crate) systems: BTreeMap<String, SystemFacts>,
    /// Every turn, in order.
    pub(crate) turns: Vec<TurnRecord>,
    /// What the turns come to.
    pub(crate) summary: Vec<Row>,
}

/// What a system's numbers depend on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SystemFacts {
    /// As the cluster says.
    pub(crate) version: String,
    /// Every setting that the rig gave, by node.
    pub(crate) settings: Value,
    /// How the first node's process was called, with all its flags.
    pub(crate) command_line: Vec<String>,
}

/// One system in one round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TurnRecord {
    /// From 1.
    pub(crate) round: u32,
    /// Its label in the plan.
    pub(crate) system: String,
    /// UTC, RFC 3339.
    pub(crate) began_at: String,
    /// Load of the machine, average of the last minute, before the turn.
    pub(crate) load_1min_before: f64,
    /// The same after it.
    pub(crate) load_1min_after: f64,
    /// What was measured, in order, failures included.
    pub(crate) measurements: Vec<Measurement>,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Measurement {
    /// Of what.
    pub(crate) measure: Measure,
    /// Of which kind: a record size, a rate, a moment.
    pub(crate) case: String,
    /// What came of it.
    #[serde(flatten)]
    pub(crate) taken: Taken,
}

/// What came of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "result", rename_all = "lowercase")]
pub(crate) enum Taken {
    /// Numbers.
    Measured(Numbers),
    /// None, and why.
    Failed {
        /// In words.
        reason: String,
    },
}

/// The numbers of one measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Numbers {
    /// By name, with the unit in the name.
    pub(crate) values: BTreeMap<&'static str, f64>,
    /// What else was seen.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(crate) details: Value,
}

impl Numbers {
    /// Numbers without further details.
    pub(crate) fn new(values: impl IntoIterator<Item = (&'static str, f64)>) -> Self {
        Self { values: values.into_iter().collect(), details: Value::Null }
    }

    /// With details.
    #[must_use]
    pub(crate) fn with(mut self, details: Value) -> Self {
        self.details = details;
        self
    }
}

impl From<Result<Numbers, String>> for Taken {
    fn from(result: Result<Numbers, String>) -> Self {
        match result {
            Ok(numbers) => Self::Measured(numbers),
            Err(reason) => Self::Failed { reason },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failure_is_written_with_its_reason_beside_what_was_measured() {
        let measured = Measurement {
            measure: Measure::Produce,
            case: "1KiB".into(),
            taken: Ok(Numbers::new([("throughput_mb_per_s", 2.5)])).into(),
        };
        let failed = Measurement { taken: Err("it died".to_owned()).into(), ..measured.clone() };
        assert_eq!(
            json!([measured, failed]),
            json!([
                {
                    "measure": "produce", "case": "1KiB", "result": "measured",
                    "values": { "throughput_mb_per_s": 2.5 },
                },
                { "measure": "produce", "case": "1KiB", "result": "failed", "reason": "it died" },
            ])
        );
    }
}
