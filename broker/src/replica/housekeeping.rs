//! What goes on by itself: the ISR's clock (R6), checkpoints, retention.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, interval_at};
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
    every_blocking(times.high_watermark_checkpoint, replicas, |replicas| {
        told("high watermarks are not written down", checkpoint_high_watermarks(replicas));
    });
    every_blocking(times.recovery_point_checkpoint, replicas, |replicas| {
        told("recovery points are not written down", flush_and_checkpoint(replicas));
    });
    every_blocking(times.retention_check, replicas, |replicas| {
        for partition in replicas.all() {
            let silent = replicas.context().config.times.producer_id_expiration;
            let silent_ms = i64::try_from(silent.as_millis()).unwrap_or(i64::MAX);
            match partition.clean(clock::wall_ms().saturating_sub(silent_ms)) {
                Ok(0) => {}
                Ok(bytes) => info!(key = partition.key(), bytes, "retention removed old segments"),
                Err(error) => warn!(key = partition.key(), %error, "retention failed"),
            }
        }
    });
}

fn told(what: &str, outcome: Result<(), StoreError>) {
    if let Err(error) = outcome {
        warn!(%error, "{what}");
    }
}

fn every(period: Duration, replicas: &Arc<Replicas>, work: fn(&Arc<Replicas>)) {
    let period = period.max(Duration::from_millis(1));
    let replicas: Weak<Replicas> = Arc::downgrade(replicas);
    tokio::spawn(async move {
        let mut ticks = interval_at(Instant::now() + period, period);
        loop {
            ticks.tick().await;
            let Some(replicas) = replicas.upgrade() else { return };
            work(&replicas);
        }
    });
}

fn every_blocking(period: Duration, replicas: &Arc<Replicas>, work: fn(&Arc<Replicas>)) {
    let replicas: Weak<Replicas> = Arc::downgrade(replicas);
    tokio::spawn(async move {
        let mut ticks = interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
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

fn flush_and_checkpoint(replicas: &Arc<Replicas>) -> Result<(), StoreError> {
    for partition in replicas.all() {
        let end = partition
            .begin_sync()
            .run()
            .map_err(|error| StoreError::broken(format!("{}: fsync: {error}", partition.key())))?;
        partition.synced(end);
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
