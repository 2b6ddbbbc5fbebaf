//! The process that keeps a cluster in namespaces alive, and what it shares with docker's `up`.

use std::path::Path;
use std::sync::Arc;

use cluster::docker::Lifetime;
use cluster::namespaces::sandbox;
use cluster::{Cluster, Status};
use tracing::info;

use super::state::{ClusterState, Holder, NodeState};
use crate::cli::ClusterUpArgs;
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupts;
use crate::plan::ClusterPlan;
use crate::run::{BringUp, bring_up, prepare, run_id};

/// Brings a cluster up inside namespaces and keeps it until a signal comes.
///
/// # Errors
/// [`Failure`] when it does not come up.
pub(super) fn hold(args: &ClusterUpArgs) -> Result<Exit, Failure> {
    let plan = ClusterPlan::from_args(&args.cluster)?;
    if !sandbox::is_inside() {
        return super::super::in_sandbox();
    }
    sandbox::settle_inside()?;
    super::super::runtime()?.block_on(async {
        let interrupts = Interrupts::watch()
            .map_err(|error| Failure::internal(format!("signals cannot be watched: {error}")))?;
        let cluster = bring_up_by_hand(args, &plan, &args.dir, Lifetime::Driver).await?;
        let holder = sandbox::outer_pid()
            .and_then(|pid| Some(Holder { pid, start_ticks: sandbox::outer_start_ticks()? }));
        write_state(&cluster, &args.dir, holder).await?;
        let mut stop = interrupts.stop.clone();
        let _ = stop.wait_for(|stopped| *stopped).await;
        info!("taken down by hand");
        ClusterState::remove()?;
        cluster.destroy().await.map_err(Failure::from)
    })?;
    Ok(Exit::Valid)
}

/// Brings a cluster up that the engine keeps.
///
/// # Errors
/// [`Failure`] when it does not come up.
pub(super) fn keep_in_docker(
    args: &ClusterUpArgs,
    plan: &ClusterPlan,
    dir: &Path,
) -> Result<(), Failure> {
    super::super::runtime()?.block_on(async {
        let cluster = bring_up_by_hand(args, plan, dir, Lifetime::Kept).await?;
        write_state(&cluster, dir, None).await
    })
}

async fn bring_up_by_hand(
    args: &ClusterUpArgs,
    plan: &ClusterPlan,
    dir: &Path,
    lifetime: Lifetime,
) -> Result<Arc<Cluster>, Failure> {
    // Its failure would only cost the log lines.
    let _ = Console::begin(&args.output, None);
    let prepared = prepare(plan)?;
    let mut made = None;
    let how = BringUp { plan, seed: args.seed, dir, topics: &[], lifetime };
    let up = bring_up(&how, prepared, |cluster| {
        made = Some(Arc::clone(cluster));
        Ok(())
    })
    .await;
    match up {
        Ok((cluster, _)) => Ok(cluster),
        Err(failure) => {
            if let Some(cluster) = made {
                cluster.destroy().await?;
            }
            Err(failure)
        }
    }
}

async fn write_state(cluster: &Cluster, dir: &Path, holder: Option<Holder>) -> Result<(), Failure> {
    let mut nodes = Vec::new();
    for spec in cluster.nodes() {
        let pid = match cluster.backend().status(spec.name).await? {
            Status::Running { pid } | Status::Paused { pid } => Some(pid),
            Status::NotStarted | Status::Exited { .. } => None,
        };
        nodes.push(NodeState { spec: spec.clone(), pid });
    }
    let system = cluster.system();
    let state = ClusterState {
        backend: cluster.backend().name().to_owned(),
        system: format!("{} {}", system.name(), system.version()),
        run: run_id(dir),
        holder,
        bootstrap: cluster.bootstrap(),
        nodes,
    };
    state.write().map_err(Failure::from)
}
