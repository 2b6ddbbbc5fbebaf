//! Offsets that nobody uses any more are forgotten (KIP-211).

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::group::GroupState;
use super::shard::{Change, Shard};
use super::{Coordinator, Place};
use crate::replica::clock;

/// Records that go into one batch.
pub(super) const MOST_IN_BATCH: usize = 500;

/// What time it is, by both clocks, and how long offsets are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct When {
    pub(super) now: Instant,
    pub(super) now_ms: i64,
    pub(super) retention: Duration,
}

/// What is gone of groups that have no members: of one that once had some, everything, so long
/// after the last one left; of one that only commits, each offset, so long after its commit. A group
/// without offsets goes too. One that is just changing is left alone.
pub(super) fn expired(shard: &Shard, when: When) -> Vec<Change> {
    let mut changes = Vec::new();
    for (name, group) in &shard.groups {
        if group.state != GroupState::Empty || !group.is_abandoned() || shard.is_changing(name) {
            continue;
        }
        let retention_ms = i64::try_from(when.retention.as_millis()).unwrap_or(i64::MAX);
        let left_for_long = group
            .empty_since
            .is_some_and(|since| when.now.saturating_duration_since(since) >= when.retention);
        let offsets = shard.offsets.of(name);
        let all = offsets.map_or(0, BTreeMap::len);
        let places: Vec<Place> = offsets
            .into_iter()
            .flatten()
            .filter(|(_, committed)| {
                if group.empty_since.is_some() {
                    left_for_long
                } else {
                    when.now_ms.saturating_sub(committed.timestamp_ms) >= retention_ms
                }
            })
            .map(|(place, _)| place.clone())
            .collect();
        let is_gone = places.len() == all;
        changes.extend(places.into_iter().map(|place| Change::Offset {
            group: name.clone(),
            place,
            committed: None,
        }));
        if is_gone {
            changes.push(Change::GroupGone(name.clone()));
        }
    }
    changes
}

/// Looks for what is gone, every so often, for as long as the coordinator is there.
pub(super) async fn run(coordinator: Weak<Coordinator>, every: Duration) {
    loop {
        sleep(every).await;
        let Some(this) = coordinator.upgrade() else { return };
        this.expire();
    }
}

impl Coordinator {
    fn expire(&self) {
        let when = When {
            now: Instant::now(),
            now_ms: clock::wall_ms(),
            retention: self.settings.offsets_retention,
        };
        let mut shards = self.lock();
        for (partition, shard) in shards.iter_mut().filter(|(_, shard)| shard.loaded) {
            if self.settle(*partition, shard).is_err() {
                continue;
            }
            let gone = expired(shard, when);
            if gone.is_empty() {
                continue;
            }
            info!(partition, records = gone.len(), "forgets offsets that nobody uses any more");
            // Nobody waits for it: what does not get into the log is tried again the next time.
            if let Err(error) = self.write_all(*partition, shard, &gone) {
                warn!(partition, ?error, "offsets that nobody uses any more cannot be deleted");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::Committed;
    use replication::types::{LeaderEpoch, Offset};

    const RETENTION: Duration = Duration::from_secs(100);

    fn shard(timestamp_ms: i64) -> Shard {
        let mut shard = Shard::new(LeaderEpoch(1));
        let committed =
            Committed { offset: 5, leader_epoch: -1, metadata: String::new(), timestamp_ms };
        let place = ("t".to_owned(), 0);
        let group = "g".to_owned();
        shard.wrote(Offset(1), vec![Change::Offset { group, place, committed: Some(committed) }]);
        shard.settle(Offset(1), Instant::now());
        shard
    }

    fn count(shard: &Shard, now: Instant, now_ms: i64) -> usize {
        expired(shard, When { now, now_ms, retention: RETENTION }).len()
    }

    #[tokio::test(start_paused = true)]
    async fn without_members_ever_an_offset_goes_so_long_after_its_commit() {
        let shard = shard(1_000);
        assert_eq!(count(&shard, Instant::now(), 100_999), 0);
        assert_eq!(count(&shard, Instant::now(), 101_000), 2, "the offset, and then the group");
    }

    #[tokio::test(start_paused = true)]
    async fn with_members_once_all_goes_so_long_after_the_last_one_left() {
        let mut shard = shard(0);
        let left = Instant::now();
        shard.groups.get_mut("g").unwrap().empty_since = Some(left);
        let later = left + RETENTION;
        assert_eq!(count(&shard, later - Duration::from_millis(1), i64::MAX), 0);
        assert_eq!(count(&shard, later, 0), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn with_members_nothing_goes() {
        let mut shard = shard(0);
        shard.groups.get_mut("g").unwrap().state = GroupState::Stable;
        assert_eq!(count(&shard, Instant::now() + RETENTION * 9, i64::MAX), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_that_is_changing_is_left_alone() {
        let mut shard = shard(0);
        shard.wrote(Offset(2), vec![Change::GroupGone("g".to_owned())]);
        assert_eq!(count(&shard, Instant::now(), i64::MAX), 0);
    }
}
