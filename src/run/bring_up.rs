//! From a plan to a cluster that is ready.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io};

use cluster::docker::{
    Docker, Engine, ImageChoice, Lifetime, Sweep, ensure_image, remove_leftovers,
};
use cluster::highwater::{Highwater, Program};
use cluster::kafka::{Distribution, DistributionError, Kafka};
use cluster::namespaces::Namespaces;
use cluster::probe::{self, TopicSpec};
use cluster::{Backend, BackendError, Cluster, System, SystemOptions};
use history::Key;
use tracing::info;

use crate::exit::Failure;
use crate::plan::ClusterPlan;

/// What a cluster needs that must be had before namespaces are entered: inside, there is no
/// network to fetch anything from.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// What is under test.
    pub(crate) system: PreparedSystem,
    /// The image, for containers.
    pub(crate) image: Option<ImageChoice>,
}

/// A system, as the nodes see it.
#[derive(Clone, Debug)]
pub(crate) enum PreparedSystem {
    /// Kafka and a Java.
    Kafka(Distribution),
    /// This very program.
    Highwater(PathBuf),
}

impl PreparedSystem {
    /// Its version, as far as that is known.
    pub(crate) fn version(&self) -> &str {
        match self {
            Self::Kafka(distribution) => &distribution.version,
            Self::Highwater(_) => env!("CARGO_PKG_VERSION"),
        }
    }
}

/// Checks the machine and gets hold of the system; blocks. Called again inside the sandbox, where
/// everything is found in the cache.
///
/// # Errors
/// Unavailable, with what to install.
pub(crate) fn prepare(plan: &ClusterPlan) -> Result<Prepared, Failure> {
    let in_namespaces = plan.backend == "namespaces";
    if in_namespaces {
        crate::preflight::namespaces()?;
    }
    if plan.system == "highwater" {
        let program = std::env::current_exe().map_err(|error| {
            Failure::internal(format!("this program cannot find itself: {error}"))
        })?;
        let image = (!in_namespaces).then(|| ImageChoice::Highwater(program.clone()));
        return Ok(Prepared { system: PreparedSystem::Highwater(program), image });
    }
    let mut told = |text: &str| info!("{text}");
    let unavailable = |error: DistributionError| Failure::unavailable(error.to_string());
    if in_namespaces {
        let distribution =
            Distribution::resolve(&plan.version, plan.kafka_home.as_deref(), &mut told)
                .map_err(unavailable)?;
        return Ok(Prepared { system: PreparedSystem::Kafka(distribution), image: None });
    }
    let image = match &plan.kafka_image {
        Some(image) => ImageChoice::Named(image.clone()),
        None => ImageChoice::Kafka(plan.version.clone()),
    };
    let system = PreparedSystem::Kafka(Distribution::in_image(&plan.version));
    Ok(Prepared { system, image: Some(image) })
}

/// The system with the plan's choices; the in-repo broker's program is put beside the nodes, so
/// that what restarts is what started, whatever is built meanwhile.
fn system_of(
    prepared: Prepared,
    plan: &ClusterPlan,
    dir: &Path,
    seed: u64,
) -> Result<Box<dyn System>, Failure> {
    let options = SystemOptions {
        overrides: plan.system_config.clone(),
        stock_timeouts: plan.stock_timeouts,
    };
    Ok(match prepared.system {
        PreparedSystem::Kafka(distribution) => Box::new(Kafka::new(distribution, options, seed)),
        PreparedSystem::Highwater(program) => {
            let program = match prepared.image {
                Some(_) => Program::InImage,
                None => Program::OnHost(put_beside(&program, dir)?),
            };
            Box::new(Highwater::new(program, &plan.version, options, seed))
        }
    })
}

fn put_beside(program: &Path, dir: &Path) -> Result<PathBuf, Failure> {
    let folder = dir.join("program");
    let place = folder.join("highwater");
    fs::create_dir_all(&folder)
        .and_then(|()| match fs::hard_link(program, &place) {
            // Another file system, or not ours to link.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                fs::copy(program, &place).map(drop)
            }
            _ => Ok(()),
        })
        .map_err(|error| Failure::unavailable(format!("{}: {error}", place.display())))?;
    Ok(place)
}

/// What [`bring_up`] needs to know.
pub(crate) struct BringUp<'a> {
    /// The cluster.
    pub(crate) plan: &'a ClusterPlan,
    /// Seed of its id.
    pub(crate) seed: u64,
    /// Where the nodes' folders lie, absolute.
    pub(crate) dir: &'a Path,
    /// Topics to make.
    pub(crate) topics: &'a [TopicSpec],
    /// How long containers are meant to live.
    pub(crate) lifetime: Lifetime,
}

/// Brings a cluster up, with topics at full ISR; how long that took.
///
/// The cluster is handed to `made` as soon as it exists, so that it can be taken down whatever
/// happens next.
///
/// # Errors
/// Unavailable: what was awaited, and the end of the log of the node that is to blame.
pub(crate) async fn bring_up(
    how: &BringUp<'_>,
    prepared: Prepared,
    made: impl FnOnce(&Arc<Cluster>) -> Result<(), Failure>,
) -> Result<(Arc<Cluster>, Duration), Failure> {
    let BringUp { plan, seed, dir, topics, lifetime } = *how;
    let backend: Arc<dyn Backend> = match &prepared.image {
        None => Arc::new(Namespaces::new()),
        Some(choice) => Arc::new(containers(choice, dir, lifetime).await?),
    };
    let system = system_of(prepared, plan, dir, seed)?;
    let keys = keys_of(topics);
    let begun = Instant::now();
    let mut cluster = Cluster::create(system, backend, &plan.roles(), dir, keys.clone())
        .await
        .map_err(|error| Failure::unavailable(error.to_string()))?;
    if plan.own_disks {
        cluster.give_disks(dir)?;
    }
    if plan.relays {
        cluster.give_relays().await?;
    }
    let cluster = Arc::new(cluster);
    made(&cluster)?;
    info!(
        "starting {} nodes of {} {} ({})",
        cluster.nodes().len(),
        cluster.system().name(),
        cluster.system().version(),
        cluster.backend().name()
    );
    cluster.start_all().await.map_err(|error| Failure::unavailable(error.to_string()))?;
    let limit = Duration::from_millis(plan.ready_limit_ms);
    tokio::select! {
        biased;
        ready = await_ready(&cluster, &keys, topics, limit, begun) => ready?,
        // What died will not become ready; no need to wait for the limit.
        died = cluster.first_exit() => return Err(Failure::unavailable(died)),
    }
    let took = begun.elapsed();
    info!("ready after {:.1} s", took.as_secs_f64());
    Ok((cluster, took))
}

async fn containers(
    choice: &ImageChoice,
    dir: &Path,
    lifetime: Lifetime,
) -> Result<Docker, BackendError> {
    let engine = Engine::connect().await?;
    let removed = remove_leftovers(&engine, Sweep::OwnerGone).await?;
    if !removed.is_empty() {
        let names = [removed.containers, removed.networks].concat();
        info!("removed what a killed run left behind: {}", names.join(", "));
    }
    let image = ensure_image(&engine, choice, &|text: &str| info!("{text}")).await?;
    Docker::new(engine, &run_id(dir), &image.reference, lifetime)
}

async fn await_ready(
    cluster: &Cluster,
    keys: &[Key],
    topics: &[TopicSpec],
    limit: Duration,
    begun: Instant,
) -> Result<(), Failure> {
    let left = || limit.saturating_sub(begun.elapsed());
    let nodes = cluster.nodes();
    probe::await_brokers(nodes, left()).await.map_err(Failure::unavailable)?;
    if !topics.is_empty() {
        probe::create_topics(nodes, topics, left()).await.map_err(Failure::unavailable)?;
        probe::await_full_isr(nodes, keys, left()).await.map_err(Failure::unavailable)?;
    }
    let links = cluster.network().reset().await?;
    if let Some(broken) = links.iter().find(|link| link.holds() != Some(true)) {
        return Err(Failure::unavailable(format!(
            "packets do not pass on the link {} of a cluster without faults",
            broken.link
        )));
    }
    Ok(())
}

fn keys_of(topics: &[TopicSpec]) -> Vec<Key> {
    topics
        .iter()
        .flat_map(|topic| (0..topic.partitions).map(|partition| Key::new(&topic.name, partition)))
        .collect()
}

/// Names containers and networks after the run's folder.
pub(crate) fn run_id(dir: &Path) -> String {
    let text = dir.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    text.chars().filter(char::is_ascii_alphanumeric).collect()
}
