//! What goes on by itself: the ISR's clock (R6), checkpoints, retention.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use replication::types::Offset;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tracing::{info, warn};

use crate::replica::clock;
use crate::replica::replicas::Replicas;
use crate::replica::store::StoreError;

/// Starts everything; each part ends with its node.
pub(super) fn start(replicas: &Arc<Replicas>) {
    let times = &replicas.context().config.times;
    // R6: twice in the time after which a silent follower is out.
    every(times.replica_lag_max / 2, replicas, |replicas| {
        for partition in replicas.all() {
            partition.tick();
        }
    });
    every(times.high_watermark_checkpoint, replicas, |replicas| {
        told("high watermarks are not written down", checkpoint_high_watermarks(replicas));
    });
    every(times.recovery_point_checkpoint, replicas, |replicas| {
        told("recovery points are not written down", flush_and_checkpoint(replicas));
    });
    every(times.compaction_check, replicas, compact);
    every(times.retention_check, replicas, |replicas| {
        let silent = replicas.context().config.times.producer_id_expiration;
        let silent_ms = i64::try_from(silent.as_millis()).unwrap_or(i64::MAX);
        for partition in replicas.all() {
            match partition.clean(clock::wall_ms().saturating_sub(silent_ms)) {
                Ok(0) => {}
                Ok(bytes) => info!(key = partition.key(), bytes, "retention removed old segments"),
                Err(error) => warn!(key = partition.key(), %error, "retention failed"),
            }
        }
    });
}

fn compact(replicas: &Arc<Replicas>) {
    let mut has_compacted = false;
    for partition in replicas.all() {
        let before = partition.cleaned_to();
        match partition.compact() {
            Ok(bytes) if bytes > 0 => info!(key = partition.key(), bytes, "compacted its log"),
            Ok(_) => {}
            Err(error) => warn!(key = partition.key(), %error, "compaction failed"),
        }
        has_compacted |= partition.cleaned_to() != before;
    }
    if has_compacted {
        told("what is compacted is not written down", checkpoint_cleaned(replicas));
    }
}

fn told(what: &str, outcome: Result<(), StoreError>) {
    if let Err(error) = outcome {
        warn!(%error, "{what}");
    }
}

/// `work` may wait for the disk.
fn every(period: Duration, replicas: &Arc<Replicas>, work: fn(&Arc<Replicas>)) {
    let replicas: Weak<Replicas> = Arc::downgrade(replicas);
    let period = period.max(Duration::from_millis(1));
    tokio::spawn(async move {
        let mut ticks = interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(replicas) = replicas.upgrade() else { return };
            if let Err(error) = spawn_blocking(move || work(&replicas)).await {
                warn!(%error, "a background task failed");
            }
        }
    });
}

/// Writes all checkpoints.
///
/// # Errors
/// The disk.
pub(super) fn checkpoint(replicas: &Replicas) -> Result<(), StoreError> {
    checkpoint_high_watermarks(replicas)?;
    checkpoint_recovery_points(replicas)
}

fn checkpoint_high_watermarks(replicas: &Replicas) -> Result<(), StoreError> {
    let offsets: BTreeMap<(String, i32), _> = replicas
        .all()
        .iter()
        .map(|partition| {
            let key = (partition.topic.to_string(), partition.id.index);
            (key, partition.progress().high_watermark)
        })
        .collect();
    replicas.context().directory.write_high_watermarks(&offsets).map_err(StoreError::from)
}

fn checkpoint_cleaned(replicas: &Replicas) -> Result<(), StoreError> {
    let offsets: BTreeMap<(String, i32), _> = replicas
        .all()
        .iter()
        .map(|partition| {
            let key = (partition.topic.to_string(), partition.id.index);
            (key, partition.cleaned_to())
        })
        .filter(|(_, offset)| *offset > Offset::ZERO)
        .collect();
    replicas.context().directory.write_cleaned(&offsets).map_err(StoreError::from)
}

fn flush_and_checkpoint(replicas: &Arc<Replicas>) -> Result<(), StoreError> {
    for partition in replicas.all() {
        partition.sync().map_err(StoreError::broken)?;
    }
    checkpoint_recovery_points(replicas)
}

fn checkpoint_recovery_points(replicas: &Replicas) -> Result<(), StoreError> {
    let mut recovery_points = BTreeMap::new();
    let mut log_starts = BTreeMap::new();
    for partition in replicas.all() {
        let key = (partition.topic.to_string(), partition.id.index);
        recovery_points.insert(key.clone(), partition.recovery_point());
        log_starts.insert(key, partition.log_start());
    }
    let directory = &replicas.context().directory;
    directory.write_recovery_points(&recovery_points)?;
    directory.write_log_starts(&log_starts)?;
    Ok(())
}
