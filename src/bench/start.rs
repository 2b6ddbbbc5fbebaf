//! How long a cluster takes to be there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::bench::{Beacon, BenchTopic};
use cluster::probe;
use cluster::{Cluster, Status};
use history::Key;
use tokio::time::sleep;

use super::metric::{COLD_START_MS, COLD_START_WITH_FORMAT_MS};
use super::record::Numbers;

/// How often is looked whether the first process is there.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Watches a cluster that is about to be started until partition 0 of `topic` is at full ISR and
/// has taken an acks=all write. To be called when everything is ready to format disks and to start
/// processes.
///
/// # Errors
/// In words: what was not there within `limit`.
pub(super) async fn watch(
    cluster: Arc<Cluster>,
    topic: BenchTopic,
    limit: Duration,
) -> Result<Numbers, String> {
    let began = Instant::now();
    let left = || limit.saturating_sub(began.elapsed());
    let first_process = first_process(&cluster, limit).await?;
    let key = Key::new(&topic.name, 0);
    probe::await_full_isr(cluster.nodes(), &[key], left()).await?;
    // Not idempotent: an idempotent client waits for the id that it needs in steps of half a
    // second, which would be most of the start of a quick system.
    let beacon = Beacon::not_idempotent(topic, 0).await.map_err(|error| error.to_string())?;
    let written =
        beacon.next_ok(Instant::now(), left()).await.map_err(|error| error.to_string())?;
    let ms = |since: Instant| (written - since).as_secs_f64() * 1000.0;
    Ok(Numbers::new([(COLD_START_MS, ms(first_process)), (COLD_START_WITH_FORMAT_MS, ms(began))]))
}

/// When the first node's process was started.
async fn first_process(cluster: &Cluster, limit: Duration) -> Result<Instant, String> {
    let Some(node) = cluster.nodes().first() else {
        return Err("the cluster has no nodes".to_owned());
    };
    let begun = Instant::now();
    loop {
        let before = Instant::now();
        match cluster.backend().status(node.name).await {
            Ok(Status::NotStarted) => {}
            Ok(_) => return Ok(before),
            Err(error) => return Err(error.to_string()),
        }
        if begun.elapsed() > limit {
            return Err(format!("no process was started within {} ms", limit.as_millis()));
        }
        sleep(BETWEEN_LOOKS).await;
    }
}
