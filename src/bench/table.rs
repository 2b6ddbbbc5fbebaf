//! A bench as a person reads it.

use std::fmt::Write as _;

use super::record::BenchFile;
use super::summary::{Cell, Row, failures};

/// Marks ratios of which one cannot be sure.
const OVERLAP: &str = "~";

/// The whole report.
pub(crate) fn report(file: &BenchFile) -> String {
    let plan = &file.plan;
    let systems: Vec<String> = plan
        .systems
        .iter()
        .map(|system| {
            let version = file.systems.get(&system.label).map_or("", |facts| &facts.version);
            format!("{} {version}", system.cluster.system).trim().to_owned()
        })
        .collect();
    let backend = plan.systems.first().map_or("", |system| &system.cluster.backend);
    let machine = &file.machine;
    let mut text = format!(
        "{} on {backend}, 3 brokers, rf {}, {} partitions, acks=all, idempotent; {} rounds, seed {}\n\
         {} cores ({}), {} MiB, {}; driver built for {}\n",
        systems.join(" and "),
        plan.replication_factor,
        plan.partitions,
        plan.rounds,
        plan.seed,
        machine.cores,
        machine.cpu_model,
        machine.memory_mib,
        machine.kernel,
        machine.driver_build,
    );
    text.push_str(&table(&file.summary));
    let failed = failures(&file.turns);
    if !failed.is_empty() {
        text.push_str("\nfailed\n");
    }
    for line in failed {
        let _ = writeln!(text, "  {}", line.replace('\n', "\n    "));
    }
    if file.interrupted {
        text.push_str("\ninterrupted: there are fewer rounds than were asked for\n");
    }
    text
}

/// Median, and least to greatest; then the ratio of the first system to each other one.
fn table(rows: &[Row]) -> String {
    let Some(first) = rows.first() else {
        return "\nnothing was measured\n".to_owned();
    };
    let mut lines: Vec<Vec<String>> = vec![header(first)];
    let mut shown: Option<(&str, &str)> = None;
    for row in rows {
        let heading = (row.measure.name(), row.case.as_str());
        if shown != Some(heading) {
            lines.push(vec![format!("{} {}", heading.0, heading.1)]);
            shown = Some(heading);
        }
        lines.push(cells(row));
    }
    let columns = lines.iter().map(Vec::len).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            // A heading stands alone in its line and may be as wide as it likes.
            let wide =
                lines.iter().filter(|line| line.len() > 1).filter_map(|line| line.get(column));
            wide.map(|cell| cell.chars().count()).max().unwrap_or_default()
        })
        .collect();
    let mut text = String::from("\n");
    for line in &lines {
        let mut out = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(out, "{cell:<width$}   ");
        }
        let _ = writeln!(text, "{}", out.trim_end());
    }
    text.push_str("\nmedian (least..greatest) of the rounds");
    if rows.iter().flat_map(|row| &row.ratios).any(|ratio| ratio.spreads_overlap) {
        let _ = write!(text, "; {OVERLAP}: the spreads overlap, more rounds may say otherwise");
    }
    text.push('\n');
    text
}

fn header(row: &Row) -> Vec<String> {
    let systems = row.systems.iter().map(|cell| cell.system.clone());
    let ratios = row.systems.split_first().into_iter().flat_map(|(one, others)| {
        others.iter().map(|other| format!("{}/{}", one.system, other.system))
    });
    std::iter::once(String::new()).chain(systems).chain(ratios).collect()
}

fn cells(row: &Row) -> Vec<String> {
    let mut cells = vec![format!("  {}", row.label)];
    cells.extend(row.systems.iter().map(cell));
    for other in row.systems.iter().skip(1) {
        let ratio = row.ratios.iter().find(|ratio| ratio.to == other.system);
        cells.push(ratio.map_or_else(
            || "-".to_owned(),
            |ratio| {
                let mark = if ratio.spreads_overlap { OVERLAP } else { "" };
                format!("{} {}{mark}", number(ratio.ratio), ratio.direction.word())
            },
        ));
    }
    cells
}

fn cell(cell: &Cell) -> String {
    let failed = match cell.failed_rounds {
        0 => String::new(),
        rounds => format!(", {rounds} failed"),
    };
    match &cell.spread {
        None if cell.failed_rounds > 0 => "failed".to_owned(),
        None => "-".to_owned(),
        Some(spread) if spread.values == 1 => format!("{}{failed}", number(spread.median)),
        Some(spread) => format!(
            "{} ({}..{}){failed}",
            number(spread.median),
            number(spread.min),
            number(spread.max)
        ),
    }
}

/// With three digits or more.
fn number(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::summary::summarise;
    use crate::bench::summary::tests::{systems, turn};

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(
            [0.123, 9.996, 12.34, 123.4, 12345.6].map(number),
            ["0.12", "10.00", "12.3", "123", "12346"]
        );
    }

    #[test]
    fn a_table_lines_up_and_says_which_way_a_ratio_is_better() {
        let turns = [
            turn(1, "a", "1KiB", Some(40.0)),
            turn(1, "b", "1KiB", Some(20.0)),
            turn(2, "a", "1KiB", Some(60.0)),
            turn(2, "b", "1KiB", Some(50.0)),
        ];
        let text = table(&summarise(&systems(), &turns));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1..4],
            [
                "                          a                      b                      a/b",
                "produce 1KiB",
                "  throughput, MB/s        50.0 (40.0..60.0)      35.0 (20.0..50.0)      1.43 better~",
            ]
        );
        assert!(text.contains("0.60 better~"), "less latency is better: {text}");
        assert!(text.contains("~: the spreads overlap"), "{text}");
    }

    #[test]
    fn failures_stay_in_the_table() {
        let turns = [
            turn(1, "a", "1KiB", Some(40.0)),
            turn(1, "b", "1KiB", None),
            turn(2, "a", "1KiB", None),
        ];
        let text = table(&summarise(&systems(), &turns));
        assert!(text.contains("40.0, 1 failed    failed   -"), "{text}");
        assert!(table(&[]).contains("nothing was measured"));
    }
}
