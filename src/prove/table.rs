//! What came out of a proof.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;

use super::attempt::Course;
use super::catalog::Case;
use super::trial::Settings;

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Proof {
    /// What the user wanted.
    pub(crate) settings: Settings,
    /// One for each bug.
    pub(crate) lines: Vec<Line>,
}

/// What came of one bug.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Line {
    /// The bug.
    pub(crate) bug: String,
    /// The rule that it breaks.
    pub(crate) rule: String,
    /// The mistake, in a few words.
    pub(crate) mistake: String,
    /// Why nobody outside can see it, where that is so.
    pub(crate) unobservable: Option<String>,
    /// Every run with the bug.
    pub(crate) tries: Vec<Try>,
    /// How it was caught.
    pub(crate) caught: Option<Catch>,
    /// The run without the bug that followed.
    pub(crate) control: Option<Control>,
}

/// A run with the bug.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Try {
    /// What was run.
    pub(crate) course: Course,
    /// With this seed.
    pub(crate) seed: u64,
    /// For how long.
    pub(crate) took_ms: u64,
    /// What was found, in words.
    pub(crate) found: String,
    /// Where it is stored.
    pub(crate) run: PathBuf,
}

/// How a bug was caught.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Catch {
    /// By these anomalies, the clients' first.
    pub(crate) anomalies: Vec<String>,
    /// Only the observer saw it.
    pub(crate) gray_box: bool,
    /// How long that took, all tries together.
    pub(crate) after_ms: u64,
    /// Seed of the run that caught it.
    pub(crate) seed: u64,
}

/// The run without the bug.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Control {
    /// It came out as expected.
    pub(crate) clean: bool,
    /// What was found, in words.
    pub(crate) found: String,
    /// Where it is stored.
    pub(crate) run: PathBuf,
}

impl Line {
    /// Before the first run.
    pub(super) fn begin(case: &Case) -> Self {
        Self {
            bug: case.bug.to_owned(),
            rule: case.rule.to_owned(),
            mistake: case.mistake.to_owned(),
            unobservable: case.unobservable.map(str::to_owned),
            tries: Vec::new(),
            caught: None,
            control: None,
        }
    }

    /// Caught, with a clean control; or nobody could.
    pub(crate) fn is_proven(&self) -> bool {
        let clean = self.control.as_ref().is_some_and(|control| control.clean);
        self.unobservable.is_some() || (self.caught.is_some() && clean)
    }
}

impl Proof {
    /// Nothing is left to be desired.
    pub(crate) fn is_complete(&self) -> bool {
        self.lines.iter().all(Line::is_proven)
    }

    /// Half of the bugs were caught at least as fast, milliseconds.
    fn median_ms(&self) -> Option<u64> {
        let mut times: Vec<u64> =
            self.lines.iter().filter_map(|line| Some(line.caught.as_ref()?.after_ms)).collect();
        times.sort_unstable();
        times.get(times.len().checked_sub(1)? / 2).copied()
    }

    fn summary(&self) -> String {
        let count = |is: fn(&Line) -> bool| self.lines.iter().filter(|line| is(line)).count();
        let caught = count(|line| line.caught.is_some());
        let dirty = count(|line| line.control.as_ref().is_some_and(|control| !control.clean));
        let hidden = count(|line| line.unobservable.is_some());
        let median = self.median_ms().map_or_else(String::new, |ms| {
            format!(", half of them within {:.1} s", ms as f64 / 1000.0)
        });
        format!(
            "{caught} of {} bugs caught{median}; {hidden} cannot be seen from outside; {dirty} controls not \
             clean",
            self.lines.len()
        )
    }
}

/// The cells of a line: bug, rule, caught by, seen by, after, tries, course, seed, control.
fn cells(line: &Line) -> [String; 9] {
    let last = line.tries.last();
    let tries = line.tries.len().to_string();
    let course = last.map_or_else(String::new, |last| last.course.words().to_owned());
    let control = match &line.control {
        Some(control) if control.clean => "clean".to_owned(),
        Some(control) => format!("NOT CLEAN: {}", control.found),
        None => "-".to_owned(),
    };
    let [by, sight, after, seed] = match &line.caught {
        Some(catch) => [
            catch.anomalies.join(", "),
            if catch.gray_box { "gray-box" } else { "black-box" }.to_owned(),
            format!("{:.1} s", catch.after_ms as f64 / 1000.0),
            catch.seed.to_string(),
        ],
        None if line.unobservable.is_some() => {
            ["cannot be seen".to_owned(), "-".to_owned(), "-".to_owned(), "-".to_owned()]
        }
        None => ["NOT CAUGHT".to_owned(), "-".to_owned(), "-".to_owned(), "-".to_owned()],
    };
    [line.bug.clone(), line.rule.clone(), by, sight, after, tries, course, seed, control]
}

const HEADS: [&str; 9] =
    ["bug", "rule", "caught by", "seen by", "after", "tries", "by", "seed", "control"];

/// For the screen.
pub(crate) fn text(proof: &Proof) -> String {
    let rows: Vec<[String; 9]> =
        std::iter::once(HEADS.map(str::to_owned)).chain(proof.lines.iter().map(cells)).collect();
    let mut widths = [0; 9];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in &rows {
        let padded: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "{}", padded.join("  ").trim_end());
    }
    for line in &proof.lines {
        if let Some(why) = &line.unobservable {
            let _ = writeln!(text, "{} cannot be seen from outside: {why}", line.bug);
        }
    }
    let _ = writeln!(text, "\n{}", proof.summary());
    text
}

/// For the book.
pub(crate) fn markdown(proof: &Proof) -> String {
    let settings = &proof.settings;
    let mut page = format!(
        "# Proof\n\nWritten by `highwater prove` (in a build with `--features seeded-bugs`). Each bug was switched on in the \
         in-repo broker, and what should expose it was run until an anomaly was reported; then the same plan \
         without the bug, the control, which must come out as expected. Seed {}, budget {} s a bug, {} at a \
         time{}.\n\n{}.\n\n",
        settings.seed,
        settings.budget_ms / 1000,
        settings.jobs,
        if settings.black_box_only { ", what only the observer sees does not count" } else { "" },
        proof.summary()
    );
    let _ = writeln!(page, "| {} | mistake |", HEADS.join(" | "));
    let _ = writeln!(page, "|{}", "---|".repeat(HEADS.len() + 1));
    for line in &proof.lines {
        let _ = writeln!(page, "| {} | {} |", cells(line).join(" | "), line.mistake);
    }
    let hidden = proof.lines.iter().filter_map(|line| Some((line, line.unobservable.as_ref()?)));
    for (line, why) in hidden {
        let _ = writeln!(page, "\n`{}` cannot be seen from outside: {why}", line.bug);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(after_ms: Option<u64>, clean: bool) -> Line {
        Line {
            bug: "r1-x".into(),
            rule: "R1".into(),
            mistake: "m".into(),
            unobservable: None,
            tries: Vec::new(),
            caught: after_ms.map(|after_ms| Catch {
                anomalies: vec!["lost-write".into()],
                gray_box: false,
                after_ms,
                seed: 7,
            }),
            control: Some(Control { clean, found: "x".into(), run: PathBuf::new() }),
        }
    }

    fn proof(lines: Vec<Line>) -> Proof {
        let settings = Settings {
            seed: 7,
            budget_ms: 120_000,
            jobs: 1,
            black_box_only: false,
            results: PathBuf::new(),
        };
        Proof { settings, lines }
    }

    #[test]
    fn it_is_complete_when_all_are_caught_and_all_controls_are_clean() {
        assert!(proof(vec![line(Some(1), true)]).is_complete());
        assert!(!proof(vec![line(Some(1), true), line(None, true)]).is_complete());
        assert!(!proof(vec![line(Some(1), false)]).is_complete());
        let hidden = Line { unobservable: Some("so".into()), caught: None, ..line(None, false) };
        assert!(proof(vec![hidden]).is_complete());
    }

    #[test]
    fn what_went_wrong_stands_out() {
        let told = text(&proof(vec![line(Some(9_000), false), line(None, true)]));
        assert!(told.contains("NOT CLEAN: x") && told.contains("NOT CAUGHT"), "{told}");
        assert!(told.contains("1 of 2 bugs caught, half of them within 9.0 s"), "{told}");
        let page = markdown(&proof(vec![line(Some(9_000), true)]));
        assert!(page.contains("| r1-x | R1 | lost-write | black-box | 9.0 s |"), "{page}");
    }
}
