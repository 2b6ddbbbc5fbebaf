//! `highwater test`.

use std::collections::BTreeMap;
use std::process::Command;

use checkers::Validity;
use cluster::kafka::java_for;
use cluster::namespaces::sandbox;
use tracing::{info, warn};

use crate::cli::{Format, TestArgs};
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupts;
use crate::plan::Plan;
use crate::report::run_report;
use crate::run::{Ended, Prepared, PreparedSystem, prepare, run_test};
use crate::store::{RunDir, TestFile};

/// Runs a test from the command line to its verdict.
///
/// # Errors
/// [`Failure`]: bad flags, no cluster, or a defect of the rig.
pub(crate) fn test(args: &TestArgs) -> Result<Exit, Failure> {
    let plan = Plan::from_args(args)?;
    let in_namespaces = plan.cluster.backend == "namespaces";
    if in_namespaces && !sandbox::is_inside() {
        // What must be fetched is fetched out here; in there is no network.
        prepare(&plan.cluster)?;
        return super::in_sandbox();
    }
    super::settle(in_namespaces)?;
    super::runtime()?.block_on(run(args, plan))
}

async fn run(args: &TestArgs, plan: Plan) -> Result<Exit, Failure> {
    let interrupts = Interrupts::watch()
        .map_err(|error| Failure::internal(format!("signals cannot be watched: {error}")))?;
    let run_dir = RunDir::create(&args.results, &plan.name)?;
    let console = Console::begin(&args.output, Some(run_dir.path()))
        .map_err(|error| Failure::internal(format!("driver.log cannot be written: {error}")))?;
    info!("seed {}; the run is stored in {}", plan.seed, run_dir.path().display());
    let prepared = prepare(&plan.cluster)?;
    let mut test = TestFile::begin(plan, versions(&prepared));
    run_dir.write_test(&test)?;
    let plan = test.plan.clone();
    let ended = run_test(&plan, prepared, &run_dir, &mut test, &console, &interrupts).await?;
    let Ended::Judged(verdict) = ended else {
        warn!("no verdict; `highwater check {}` judges what there is", run_dir.path().display());
        return Ok(Exit::Unknown);
    };
    run_dir.write_verdict(&verdict)?;
    if !plan.keep_data && verdict.valid == Validity::True {
        run_dir.remove_data();
    }
    match args.output.format {
        Format::Json => super::stored::print_json(&*verdict)?,
        Format::Human if args.output.quiet => console.print(&format!("{}", verdict.valid)),
        Format::Human => console.print(&run_report(&run_dir, &test, &verdict)),
    }
    Ok(verdict.valid.into())
}

/// Of everything that took part, as far as it tells.
pub(super) fn versions(prepared: &Prepared) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::from([
        ("highwater".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("librdkafka".to_owned(), client::librdkafka_version()),
    ]);
    let kafka = matches!(prepared.system, PreparedSystem::Kafka(_));
    if kafka {
        versions.insert("kafka".to_owned(), prepared.system.version().to_owned());
    }
    if kafka
        && prepared.image.is_none()
        && let Ok((path, version)) = java_for()
    {
        versions.insert("java".to_owned(), format!("{version} ({})", path.display()));
    }
    if let Some(image) = &prepared.image {
        versions.insert("image".to_owned(), image.reference());
    }
    if let Ok(uname) = Command::new("uname").arg("-srm").output() {
        versions
            .insert("kernel".to_owned(), String::from_utf8_lossy(&uname.stdout).trim().to_owned());
    }
    versions
}
