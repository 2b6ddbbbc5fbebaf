//! All runs of one bug, one after the other, and all bugs, some side by side.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::info;

use super::attempt::{Course, Ended, Found, Place, attempt, is_gray_box};
use super::catalog::Case;
use super::table::{Catch, Control, Line, Proof, Try};
use crate::exit::Failure;

/// Longest time for a control: it has no budget, but must end.
const CONTROL_LIMIT: Duration = Duration::from_secs(180);

/// What the user wants of a proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Settings {
    /// Of all random choices.
    pub(crate) seed: u64,
    /// Longest time until a bug is caught.
    pub(crate) budget_ms: u64,
    /// How many bugs at the same time.
    pub(crate) jobs: usize,
    /// Anomalies that only the observer sees do not count.
    pub(crate) black_box_only: bool,
    /// Where runs are stored.
    pub(crate) results: PathBuf,
}

/// Puts every bug of `cases` to the proof; the lines come in their order. Each is told to `told` as
/// soon as it is there.
///
/// # Errors
/// The rig itself failed.
pub(crate) async fn prove(
    cases: &[Case],
    settings: &Settings,
    mut told: impl FnMut(&Line),
) -> Result<Proof, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::internal(format!("this program cannot find itself: {error}")))?;
    let place = Arc::new(Place {
        program,
        results: settings.results.clone(),
        black_box_only: settings.black_box_only,
    });
    let turns = Arc::new(Semaphore::new(settings.jobs.max(1)));
    let mut running = JoinSet::new();
    for (number, case) in cases.iter().copied().enumerate() {
        let (place, turns, settings) = (Arc::clone(&place), Arc::clone(&turns), settings.clone());
        running.spawn(async move {
            let _turn = turns.acquire_owned().await;
            (number, trial(&place, &case, &settings).await)
        });
    }
    let mut lines = Vec::new();
    while let Some(joined) = running.join_next().await {
        let (number, line) = joined.map_err(|error| Failure::internal(error.to_string()))?;
        let line = line?;
        told(&line);
        lines.push((number, line));
    }
    lines.sort_by_key(|(number, _)| *number);
    let lines = lines.into_iter().map(|(_, line)| line).collect();
    Ok(Proof { settings: settings.clone(), lines })
}

async fn trial(place: &Place, case: &Case, settings: &Settings) -> Result<Line, Failure> {
    let mut line = Line::begin(case);
    if case.unobservable.is_some() {
        return Ok(line);
    }
    let begun = Instant::now();
    let budget = Duration::from_millis(settings.budget_ms);
    let written = case.scenarios.iter().map(|name| Course::Scenario((*name).to_owned()));
    let courses = written.chain(std::iter::repeat(Course::Random(case.random.to_owned())));
    for (seed, course) in (settings.seed..).zip(courses) {
        let left = budget.saturating_sub(begun.elapsed());
        if left.is_zero() {
            break;
        }
        let Ended { found, took, run } =
            attempt(place, case, Some(case.bug), &course, seed, left).await?;
        info!("{}: {} with seed {seed}: {found:?}", case.bug, course.words());
        line.tries.push(Try {
            course: course.clone(),
            seed,
            took_ms: millis(took),
            found: found.words(),
            run,
        });
        if let Found::Anomalies(anomalies) = found {
            let gray_box = anomalies.iter().all(|name| is_gray_box(name));
            line.caught =
                Some(Catch { anomalies, gray_box, after_ms: millis(begun.elapsed()), seed });
            line.control = Some(control(place, case, &course, seed).await?);
            break;
        }
    }
    Ok(line)
}

/// The same without the bug.
async fn control(
    place: &Place,
    case: &Case,
    course: &Course,
    seed: u64,
) -> Result<Control, Failure> {
    let Ended { found, run, .. } = attempt(place, case, None, course, seed, CONTROL_LIMIT).await?;
    info!("{}: control, {} with seed {seed}: {found:?}", case.bug, course.words());
    Ok(Control { clean: found == Found::Clean, found: found.words(), run })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
