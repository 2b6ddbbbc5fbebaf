//! What the turns come to: a row for each number, a spread for each system, and ratios.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::metric::{METRICS, Measure, Metric};
use super::record::{Measurement, Taken, TurnRecord};
use super::stats::{Direction, Ratio, Spread, ratio, spread};

/// One number of all systems.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    /// Of what.
    pub(crate) measure: Measure,
    /// Of which kind.
    pub(crate) case: String,
    /// Its name, with the unit in it.
    pub(crate) metric: &'static str,
    /// As a person reads it.
    #[serde(skip)]
    pub(crate) label: &'static str,
    /// Which way is better.
    pub(crate) better: super::metric::Better,
    /// By system, in the order of the plan.
    pub(crate) systems: Vec<Cell>,
    /// The first system by each of the others.
    pub(crate) ratios: Vec<NamedRatio>,
}

/// What the rounds of one system came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Cell {
    /// Its label.
    pub(crate) system: String,
    /// Over the rounds in which it was measured; `null` where it never was.
    pub(crate) spread: Option<Spread>,
    /// Rounds in which it was tried and failed.
    pub(crate) failed_rounds: usize,
}

/// A ratio, and of whom by whom.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct NamedRatio {
    /// Above the line.
    pub(crate) of: String,
    /// Below it.
    pub(crate) to: String,
    /// One by the other.
    pub(crate) ratio: f64,
    /// What that means for the one above the line.
    pub(crate) direction: Direction,
    /// Do their spreads overlap?
    pub(crate) spreads_overlap: bool,
}

/// Every row, in the order of [`METRICS`], cases in the order in which they were taken. `systems`
/// are the labels of the plan.
pub(crate) fn summarise(systems: &[String], turns: &[TurnRecord]) -> Vec<Row> {
    Measure::ALL
        .into_iter()
        .flat_map(|measure| {
            cases(measure, turns).into_iter().flat_map(move |case| {
                METRICS
                    .iter()
                    .filter(move |metric| metric.measure == measure)
                    .map(move |metric| row(systems, turns, &case, metric))
            })
        })
        .collect()
}

/// The cases of `measure` that some turn has, each once.
fn cases(measure: Measure, turns: &[TurnRecord]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    turns
        .iter()
        .flat_map(|turn| &turn.measurements)
        .filter(|measurement| measurement.measure == measure)
        .filter(|measurement| seen.insert(measurement.case.clone()))
        .map(|measurement| measurement.case.clone())
        .collect()
}

fn row(systems: &[String], turns: &[TurnRecord], case: &str, metric: &Metric) -> Row {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut failed: BTreeMap<&str, usize> = BTreeMap::new();
    for turn in turns {
        let of_case =
            |taken: &&Measurement| taken.measure == metric.measure && taken.case.as_str() == case;
        for measurement in turn.measurements.iter().filter(of_case) {
            match &measurement.taken {
                Taken::Measured(numbers) => {
                    values.entry(&turn.system).or_default().extend(numbers.values.get(metric.name));
                }
                Taken::Failed { .. } => *failed.entry(&turn.system).or_default() += 1,
            }
        }
    }
    let cells: Vec<Cell> = systems
        .iter()
        .map(|system| Cell {
            system: system.clone(),
            spread: values.get(system.as_str()).and_then(|values| spread(values)),
            failed_rounds: failed.get(system.as_str()).copied().unwrap_or_default(),
        })
        .collect();
    let ratios = ratios(&cells, metric);
    Row {
        measure: metric.measure,
        case: case.to_owned(),
        metric: metric.name,
        label: metric.label,
        better: metric.better,
        systems: cells,
        ratios,
    }
}

fn ratios(cells: &[Cell], metric: &Metric) -> Vec<NamedRatio> {
    let Some((first, others)) = cells.split_first() else {
        return Vec::new();
    };
    others
        .iter()
        .filter_map(|other| {
            let Ratio { value, direction, spreads_overlap } =
                ratio(first.spread.as_ref()?, other.spread.as_ref()?, metric.better)?;
            Some(NamedRatio {
                of: first.system.clone(),
                to: other.system.clone(),
                ratio: value,
                direction,
                spreads_overlap,
            })
        })
        .collect()
}

/// What failed, a line each.
pub(crate) fn failures(turns: &[TurnRecord]) -> Vec<String> {
    turns
        .iter()
        .flat_map(|turn| turn.measurements.iter().map(move |measurement| (turn, measurement)))
        .filter_map(|(turn, measurement)| match &measurement.taken {
            Taken::Measured(_) => None,
            Taken::Failed { reason } => Some(format!(
                "round {}, {}, {} {}: {reason}",
                turn.round,
                turn.system,
                measurement.measure.name(),
                measurement.case
            )),
        })
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::metric::{ACK_P50_MS, ACK_P99_MS, ACK_P999_MS, MB_PER_S, RECORDS_PER_S};
    use crate::bench::record::Numbers;

    /// A turn in which `case` was produced at so many MB/s, or failed.
    pub(in crate::bench) fn turn(
        round: u32,
        system: &str,
        case: &str,
        mb_per_s: Option<f64>,
    ) -> TurnRecord {
        let taken = mb_per_s.ok_or_else(|| "it died".to_owned()).map(|mb_per_s| {
            Numbers::new([
                (MB_PER_S, mb_per_s),
                (RECORDS_PER_S, mb_per_s * 1000.0),
                (ACK_P50_MS, 100.0 / mb_per_s),
                (ACK_P99_MS, 200.0 / mb_per_s),
                (ACK_P999_MS, 300.0 / mb_per_s),
            ])
        });
        TurnRecord {
            round,
            system: system.to_owned(),
            began_at: String::new(),
            load_1min_before: 0.0,
            load_1min_after: 0.0,
            measurements: vec![Measurement {
                measure: Measure::Produce,
                case: case.to_owned(),
                taken: taken.into(),
            }],
        }
    }

    pub(in crate::bench) fn systems() -> Vec<String> {
        ["a", "b"].map(str::to_owned).into()
    }

    #[test]
    fn a_row_has_the_median_of_each_system_and_the_ratio_of_the_first_to_the_other() {
        let turns = [
            turn(1, "a", "1KiB", Some(40.0)),
            turn(1, "b", "1KiB", Some(20.0)),
            turn(2, "a", "1KiB", Some(60.0)),
            turn(2, "b", "1KiB", Some(22.0)),
            turn(3, "a", "1KiB", Some(44.0)),
            turn(3, "b", "1KiB", Some(18.0)),
        ];
        let rows = summarise(&systems(), &turns);
        assert_eq!(rows.len(), 5);
        let [a, b] = rows[0].systems.as_slice() else { panic!("two systems") };
        assert_eq!(a.spread, Some(Spread { median: 44.0, min: 40.0, max: 60.0, values: 3 }));
        assert_eq!(b.spread, Some(Spread { median: 20.0, min: 18.0, max: 22.0, values: 3 }));
        let of = |row: usize| {
            let ratio = &rows[row].ratios[0];
            (ratio.ratio, ratio.direction, ratio.spreads_overlap)
        };
        assert_eq!(of(0), (2.2, Direction::Better, false));
        assert_eq!(rows[2].metric, "ack_p50_ms");
        assert_eq!(of(2).1, Direction::Better, "less is better for latencies");
    }

    #[test]
    fn a_failed_round_is_counted_and_a_system_that_never_was_measured_keeps_its_row() {
        let turns = [
            turn(1, "a", "1KiB", Some(40.0)),
            turn(1, "b", "1KiB", None),
            turn(2, "a", "1KiB", None),
            turn(2, "b", "1KiB", None),
        ];
        let rows = summarise(&systems(), &turns);
        let [a, b] = rows[0].systems.as_slice() else { panic!("two systems") };
        assert_eq!((a.spread.unwrap().values, a.failed_rounds), (1, 1));
        assert_eq!((b.spread, b.failed_rounds), (None, 2));
        assert_eq!(rows[0].ratios, []);
        assert_eq!(
            failures(&turns),
            [
                "round 1, b, produce 1KiB: it died",
                "round 2, a, produce 1KiB: it died",
                "round 2, b, produce 1KiB: it died",
            ]
        );
    }

    #[test]
    fn cases_keep_the_order_in_which_they_were_taken() {
        let turns = [turn(1, "a", "10KiB", Some(1.0)), turn(1, "a", "100B", Some(1.0))];
        let rows = summarise(&systems(), &turns);
        let cases: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
        assert_eq!((cases[0], cases[5]), ("10KiB", "100B"));
        assert_eq!(summarise(&systems(), &[]), []);
    }
}
