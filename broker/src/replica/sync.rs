//! Group commit: while one fsync runs, the next ones gather (`log.durability=fsync`).

use std::collections::BTreeMap;
use std::sync::Arc;

use replication::types::PartitionId;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::fatal::Fatal;
use crate::replica::partition::Partition;

/// Syncs whatever comes, until `unsynced` ends.
pub async fn run(mut unsynced: mpsc::UnboundedReceiver<Arc<Partition>>, fatal: Fatal) {
    while let Some(first) = unsynced.recv().await {
        let mut gathered = BTreeMap::from([(first.id, first)]);
        while let Ok(next) = unsynced.try_recv() {
            gathered.insert(next.id, next);
        }
        if let Err(reason) = sync_all(gathered).await {
            // What the disk holds now, nobody knows: an fsync that failed once may succeed the
            // next time without having written anything.
            fatal.stop(reason);
            return;
        }
    }
}

/// Brings the logs of `partitions` to the disk and counts them as there.
///
/// # Errors
/// Which log, and what the disk said.
pub(super) async fn sync_all(
    partitions: BTreeMap<PartitionId, Arc<Partition>>,
) -> Result<(), String> {
    let work = move || partitions.values().try_for_each(|partition| partition.sync());
    spawn_blocking(work).await.unwrap_or_else(|error| Err(format!("fsync: {error}")))
}
