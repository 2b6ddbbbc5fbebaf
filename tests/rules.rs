//! `docs/rules.md` names, for every rule, the function that holds it and the tests that fail
//! without it. What it names must exist.
#![allow(clippy::expect_used, reason = "a test may fail loudly")]

use std::fs;
use std::path::Path;

/// One row: the rule, where it is held, where it is tested.
struct Row {
    rule: String,
    held: Vec<Place>,
    tested: Vec<Place>,
}

/// `path/of/file.rs:function`.
struct Place {
    file: String,
    function: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn places(cell: &str) -> Vec<Place> {
    cell.split('`')
        .filter_map(|code| {
            let (file, function) = code.split_once(".rs:")?;
            Some(Place { file: format!("{file}.rs"), function: function.to_owned() })
        })
        .collect()
}

fn rows() -> Vec<Row> {
    let text = fs::read_to_string(root().join("docs/rules.md")).expect("docs/rules.md");
    text.lines()
        .filter(|line| line.starts_with("| R"))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            assert_eq!(cells.len(), 4, "a row has four cells: {line}");
            Row { rule: cells[0].to_owned(), held: places(cells[2]), tested: places(cells[3]) }
        })
        .collect()
}

/// Does the file declare the function? What follows a `::` is what counts.
fn declares(place: &Place) -> Result<String, String> {
    let path = root().join(&place.file);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let name = place.function.rsplit("::").next().unwrap_or_default();
    let declared = text.lines().any(|line| {
        line.split("fn ").nth(1).is_some_and(|rest| {
            rest.strip_prefix(name).is_some_and(|rest| rest.starts_with(['(', '<']))
        })
    });
    if declared { Ok(text) } else { Err(format!("{} has no function {name}", place.file)) }
}

#[test]
fn every_rule_has_a_row_with_code_and_tests() {
    let rows = rows();
    let rules: Vec<&str> = rows.iter().map(|row| row.rule.as_str()).collect();
    let expected: Vec<String> = (1..=36).map(|number| format!("R{number}")).collect();
    assert_eq!(rules, expected, "one row a rule, in order");
    for row in &rows {
        assert!(!row.held.is_empty(), "{}: no code", row.rule);
        assert!(!row.tested.is_empty(), "{}: no test", row.rule);
    }
}

#[test]
fn what_a_row_names_exists() {
    let mut problems = Vec::new();
    for row in rows() {
        for place in &row.held {
            match declares(place) {
                Err(problem) => problems.push(format!("{}: {problem}", row.rule)),
                Ok(text) if !text.contains(&row.rule) => {
                    problems.push(format!("{}: {} does not cite it", row.rule, place.file));
                }
                Ok(_) => {}
            }
        }
        for place in &row.tested {
            match declares(place) {
                Err(problem) => problems.push(format!("{}: {problem}", row.rule)),
                Ok(text) if !is_test(&text, &place.function) => {
                    problems.push(format!("{}: {} is no test", row.rule, place.function));
                }
                Ok(_) => {}
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Is the function one that `cargo test` runs: under `#[test]`, or inside `proptest!`?
fn is_test(text: &str, function: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.iter().enumerate().any(|(number, line)| {
        line.contains(&format!("fn {function}("))
            && lines[..number]
                .iter()
                .rev()
                .take_while(|above| !above.is_empty() && !above.ends_with('}'))
                .any(|above| above.starts_with("#[test]") || above.starts_with("#[tokio::test"))
    })
}
