//! `highwater bench`.

use cluster::namespaces::sandbox;
use tracing::info;

use crate::bench::{BenchDir, BenchPlan, report, run};
use crate::cli::{BackendChoice, BenchArgs, Format};
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupts;
use crate::run::{Prepared, prepare};

/// Measures systems against each other.
///
/// # Errors
/// [`Failure`]: bad flags, a system that cannot be had here, or a defect of the rig.
pub(super) fn bench(args: &BenchArgs) -> Result<Exit, Failure> {
    let plan = BenchPlan::from_args(args)?;
    let in_namespaces = args.backend == BackendChoice::Namespaces;
    if in_namespaces && !sandbox::is_inside() {
        // What must be fetched is fetched out here; in there is no network.
        prepare_all(&plan)?;
        return super::in_sandbox();
    }
    super::settle(in_namespaces)?;
    super::runtime()?.block_on(measure(args, plan))
}

fn prepare_all(plan: &BenchPlan) -> Result<Vec<Prepared>, Failure> {
    plan.systems.iter().map(|system| prepare(&system.cluster)).collect()
}

async fn measure(args: &BenchArgs, plan: BenchPlan) -> Result<Exit, Failure> {
    let interrupts = Interrupts::watch()
        .map_err(|error| Failure::internal(format!("signals cannot be watched: {error}")))?;
    let dir = BenchDir::create(&args.results, args.out.as_deref())?;
    let console = Console::begin(&args.output, Some(dir.path()))
        .map_err(|error| Failure::internal(format!("driver.log cannot be written: {error}")))?;
    info!("seed {}; the bench is stored in {}", plan.seed, dir.path().display());
    let prepared = prepare_all(&plan)?;
    let file = run(&plan, &prepared, &dir, &interrupts).await?;
    match args.output.format {
        Format::Json => super::stored::print_json(&file)?,
        Format::Human => {
            let files = format!("\nfiles  {}", dir.path().display());
            console.print(&format!("{}{files}", report(&file)));
        }
    }
    Ok(if file.is_complete() { Exit::Valid } else { Exit::Unknown })
}
