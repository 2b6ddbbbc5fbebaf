//! `highwater prove`.

use std::fs;

use tracing::info;

use crate::cli::{Format, ProveArgs};
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::plan::{fresh_seed, millis};
use crate::prove::{CATALOG, Case, Settings, markdown, prove as put_to_the_proof, text};
use crate::store::{RunDir, write_json};

/// Switches each seeded bug on and looks whether it is caught.
///
/// # Errors
/// [`Failure`]: this build has no bugs, there is no such bug, or a defect of the rig.
pub(super) fn prove(args: &ProveArgs) -> Result<Exit, Failure> {
    let cases = chosen(&args.bugs)?;
    if !cfg!(feature = "seeded-bugs") {
        return Err(Failure::usage(
            "this build has no seeded bugs, as no release has; build one with \
             `cargo build --release --features seeded-bugs`",
        ));
    }
    crate::preflight::namespaces()?;
    let dir = RunDir::create(&args.results, "proof")?;
    let console = Console::begin(&args.output, Some(dir.path()))
        .map_err(|error| Failure::internal(format!("driver.log cannot be written: {error}")))?;
    let settings = Settings {
        seed: args.seed.unwrap_or_else(fresh_seed),
        budget_ms: millis("--budget", args.budget)?,
        jobs: args.jobs,
        black_box_only: args.black_box_only,
        results: dir.path().to_owned(),
    };
    info!("seed {}; the proof is stored in {}", settings.seed, dir.path().display());
    let told = |line: &crate::prove::Line| {
        let how = line.caught.as_ref().map(|catch| catch.anomalies.join(", "));
        info!("{}: {}", line.bug, how.unwrap_or_else(|| "not caught".to_owned()));
    };
    let proof = super::runtime()?.block_on(put_to_the_proof(&cases, &settings, told))?;
    write_json(&dir.path().join("proof.json"), &proof)?;
    let page = markdown(&proof);
    for place in [Some(&dir.path().join("proof.md")), args.page.as_ref()].into_iter().flatten() {
        fs::write(place, &page)
            .map_err(|error| Failure::internal(format!("{}: {error}", place.display())))?;
    }
    match args.output.format {
        Format::Json => super::stored::print_json(&proof)?,
        Format::Human => console.print(&text(&proof)),
    }
    Ok(if proof.is_complete() { Exit::Valid } else { Exit::Invalid })
}

fn chosen(names: &[String]) -> Result<Vec<Case>, Failure> {
    if names.is_empty() {
        return Ok(CATALOG.to_vec());
    }
    let find = |name: &String| {
        CATALOG.iter().find(|case| case.bug == name).copied().ok_or_else(|| {
            let all: Vec<&str> = CATALOG.iter().map(|case| case.bug).collect();
            Failure::usage(format!(
                "--bugs {name}: there is no such bug; there are {}",
                all.join(", ")
            ))
        })
    };
    names.iter().map(find).collect()
}
