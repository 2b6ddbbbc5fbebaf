//! `highwater scenario`.

use std::fmt::Write as _;

use cluster::namespaces::sandbox;
use serde::Serialize;
use tracing::info;

use crate::cli::{BackendChoice, Format, ScenarioArgs, ScenarioCommand};
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupts;
use crate::plan::Plan;
use crate::report::run_report;
use crate::run::{Ended, prepare, run_test};
use crate::scenario::{Expectation, Outcome, Scenario, compare, find, ours};
use crate::store::{RunDir, TestFile};

/// Lists or plays scenarios.
///
/// # Errors
/// [`Failure`]: there is no such scenario, no cluster, or a defect of the rig.
pub(super) fn dispatch(command: &ScenarioCommand) -> Result<Exit, Failure> {
    match command {
        ScenarioCommand::List { format } => list(*format),
        ScenarioCommand::Run(args) => start(args),
    }
}

fn list(format: Format) -> Result<Exit, Failure> {
    let scenarios: Vec<Scenario> = ours()?.iter().flat_map(Scenario::variants).collect();
    if format == Format::Json {
        #[derive(Serialize)]
        struct Listed<'a> {
            name: &'a str,
            #[serde(flatten)]
            scenario: &'a Scenario,
        }
        let listed: Vec<_> =
            scenarios.iter().map(|scenario| Listed { name: &scenario.name, scenario }).collect();
        super::stored::print_json(&listed)?;
        return Ok(Exit::Valid);
    }
    let mut text = String::new();
    for scenario in &scenarios {
        let from: Vec<&str> =
            scenario.rules.iter().chain(&scenario.source).map(String::as_str).collect();
        let _ = writeln!(text, "{}\n    {} ({})", scenario.name, scenario.title, from.join(", "));
        for system in ["highwater", "kafka"] {
            let _ = writeln!(text, "    {system:<10} {}", words(&scenario.expected(system)));
        }
    }
    super::print(&text);
    Ok(Exit::Valid)
}

fn words(expected: &Expectation) -> String {
    match expected {
        Expectation::Valid => "valid".to_owned(),
        Expectation::Anomalies(names) => names.join(", "),
        Expectation::Unsupported(why) => format!("unsupported: {why}"),
    }
}

fn start(args: &ScenarioArgs) -> Result<Exit, Failure> {
    let scenarios = find(&args.names)?;
    let plans = scenarios
        .iter()
        .map(|scenario| Plan::of_scenario(scenario, args))
        .collect::<Result<Vec<_>, _>>()?;
    let in_namespaces = args.backend == BackendChoice::Namespaces;
    if in_namespaces && !sandbox::is_inside() {
        // What must be fetched is fetched out here; in there is no network.
        if let Some(plan) = plans.first() {
            prepare(&plan.cluster)?;
        }
        return super::in_sandbox();
    }
    super::settle(in_namespaces)?;
    super::runtime()?.block_on(play_all(args, plans))
}

/// What came of one scenario.
#[derive(Serialize)]
struct Line {
    scenario: String,
    system: String,
    expected: Expectation,
    outcome: Outcome,
    /// Where the run is stored; nowhere if it cannot run.
    run: Option<std::path::PathBuf>,
}

async fn play_all(args: &ScenarioArgs, plans: Vec<Plan>) -> Result<Exit, Failure> {
    let interrupts = Interrupts::watch()
        .map_err(|error| Failure::internal(format!("signals cannot be watched: {error}")))?;
    let console = Console::begin(&args.output, None)
        .map_err(|error| Failure::internal(format!("nothing can be logged: {error}")))?;
    let alone = plans.len() == 1;
    let mut lines = Vec::new();
    for plan in plans {
        if *interrupts.stop.borrow() {
            break;
        }
        let (line, report) = play(args, plan, &console, &interrupts).await?;
        if args.output.format == Format::Human {
            // Of many, only those that came out otherwise are told at length.
            if (alone || line.outcome != Outcome::AsExpected) && !args.output.quiet {
                console.print(&report);
            }
            console.print(&told(&line));
        }
        lines.push(line);
    }
    if args.output.format == Format::Json {
        super::stored::print_json(&lines)?;
    }
    let is = |wanted: fn(&Outcome) -> bool| lines.iter().any(|line| wanted(&line.outcome));
    Ok(if is(|outcome| matches!(outcome, Outcome::Otherwise(_))) {
        Exit::Invalid
    } else if is(|outcome| matches!(outcome, Outcome::Unknown(_))) || lines.is_empty() {
        Exit::Unknown
    } else {
        Exit::Valid
    })
}

fn told(line: &Line) -> String {
    let Line { scenario, system, expected, outcome, .. } = line;
    match outcome {
        Outcome::AsExpected => format!("{scenario} on {system}: as expected ({})", words(expected)),
        Outcome::Otherwise(what) => format!("{scenario} on {system}: NOT as expected: {what}"),
        Outcome::Unknown(why) => format!("{scenario} on {system}: unknown: {why}"),
        Outcome::Unsupported(why) => format!("{scenario} on {system}: unsupported: {why}"),
    }
}

async fn play(
    args: &ScenarioArgs,
    plan: Plan,
    console: &Console,
    interrupts: &Interrupts,
) -> Result<(Line, String), Failure> {
    let Some(scenario) = plan.scenario.clone() else {
        return Err(Failure::internal("a scenario's plan without a scenario"));
    };
    let line = |outcome, run: Option<&RunDir>| Line {
        scenario: scenario.name.clone(),
        system: plan.cluster.system.clone(),
        expected: scenario.expected.clone(),
        outcome,
        run: run.map(|run| run.path().to_owned()),
    };
    if let Expectation::Unsupported(why) = &scenario.expected {
        return Ok((line(Outcome::Unsupported(why.clone()), None), String::new()));
    }
    let run_dir = RunDir::create(&args.results, &plan.name)?;
    console
        .log_into(run_dir.path())
        .map_err(|error| Failure::internal(format!("driver.log cannot be written: {error}")))?;
    info!("{}: seed {}; stored in {}", scenario.name, plan.seed, run_dir.path().display());
    let prepared = prepare(&plan.cluster)?;
    let mut test = TestFile::begin(plan.clone(), super::test::versions(&prepared));
    run_dir.write_test(&test)?;
    let ended = run_test(&plan, prepared, &run_dir, &mut test, console, interrupts).await?;
    let Ended::Judged(verdict) = ended else {
        let outcome = Outcome::Unknown("interrupted".to_owned());
        return Ok((line(outcome, Some(&run_dir)), String::new()));
    };
    run_dir.write_verdict(&verdict)?;
    let outcome = compare(&scenario.expected, &verdict);
    if !plan.keep_data && outcome == Outcome::AsExpected {
        run_dir.remove_data();
    }
    Ok((line(outcome, Some(&run_dir)), run_report(&run_dir, &test, &verdict)))
}
