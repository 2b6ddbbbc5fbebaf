//! Partitions of the topic of groups are taken over and given up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use replication::types::{LeaderEpoch, Offset};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::group::{Group, GroupState, NewMember};
use super::records::{Key, StoredGroup, read_group, read_key, read_offset};
use super::shard::{Offsets, Shard};
use super::{Coordinator, StoredRecord};

/// Between two attempts to read.
const BACK_OFF: Duration = Duration::from_millis(100);

impl Coordinator {
    /// This node leads `partition` in `epoch` from now on: its groups are read in the background.
    pub fn elected(self: &Arc<Self>, partition: i32, epoch: LeaderEpoch) {
        let shard = Shard::new(epoch);
        if let Some(mut old) = self.lock().insert(partition, shard) {
            old.dismiss();
        }
        tokio::spawn(Arc::clone(self).load(partition, epoch));
    }

    /// This node does not lead `partition` any more: everything of it goes.
    pub fn resigned(&self, partition: i32) {
        if let Some(mut shard) = self.lock().remove(&partition) {
            info!(partition, groups = shard.groups.len(), "gives its groups up");
            shard.dismiss();
        }
    }

    async fn load(self: Arc<Self>, partition: i32, epoch: LeaderEpoch) {
        let begun = Instant::now();
        let mut from = Offset::ZERO;
        let mut read = Read::default();
        loop {
            let is_current = self.lock().get(&partition).is_some_and(|shard| shard.epoch == epoch);
            if !is_current {
                return;
            }
            // What the last leader had acknowledged may lie above what is committed here as far as
            // this node knows; what it had not, may still be cut. Both are settled once all that was
            // read is committed.
            let read_on = match self.store.read(partition, epoch, from).await {
                Ok((_, next)) if next == from => {
                    let counts = self.store.await_committed(partition, epoch, from).await;
                    match self.store.committed(partition, epoch) {
                        // Too few replicas in sync are no reason not to say what is committed.
                        Ok(committed) if committed >= from => break,
                        _ => counts,
                    }
                }
                Ok((records, next)) => {
                    for record in records {
                        read.take(record);
                    }
                    from = next;
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = read_on {
                warn!(partition, error = ?error.0, "groups cannot be read yet");
                sleep(BACK_OFF).await;
            }
        }
        let now = Instant::now();
        let mut shards = self.lock();
        let Some(shard) = shards.get_mut(&partition).filter(|shard| shard.epoch == epoch) else {
            return;
        };
        shard.offsets = read.offsets;
        shard.groups =
            read.groups.into_iter().map(|(name, stored)| (name, restored(stored, now))).collect();
        for group in shard.offsets.groups() {
            shard.groups.entry(group.clone()).or_default();
        }
        shard.loaded = true;
        info!(
            partition,
            leader_epoch = epoch.0,
            groups = shard.groups.len(),
            took_ms = begun.elapsed().as_millis(),
            "has read its groups"
        );
        drop(shards);
        self.changed.notify_one();
    }
}

/// What was read so far; later records replace earlier ones.
#[derive(Debug, Default)]
struct Read {
    groups: BTreeMap<String, StoredGroup>,
    offsets: Offsets,
}

impl Read {
    fn take(&mut self, record: StoredRecord) {
        match record.key.and_then(read_key) {
            Some(Key::Offset { group, topic, partition }) => match record.value.map(read_offset) {
                Some(None) => warn!(offset = %record.offset, "a commit cannot be read"),
                committed => {
                    self.offsets.take(group, (topic, partition), committed.flatten());
                }
            },
            Some(Key::Group(group)) => match record.value.map(read_group) {
                Some(Some(stored)) => drop(self.groups.insert(group, stored)),
                Some(None) => warn!(offset = %record.offset, "a group cannot be read"),
                None => drop(self.groups.remove(&group)),
            },
            Some(Key::Unknown(_)) | None => {}
        }
    }
}

/// A group as it was; its members have a session's time to be heard of.
fn restored(stored: StoredGroup, now: Instant) -> Group {
    let mut group = Group::default();
    group.protocol_type = stored.protocol_type;
    group.generation = stored.generation;
    group.protocol.clone_from(&stored.protocol);
    group.leader = stored.leader;
    let millis = |ms: i32| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    let mut assignments = Vec::new();
    for member in stored.members {
        let protocol = stored.protocol.clone().unwrap_or_default();
        let new = NewMember {
            id: member.id.clone(),
            instance_id: member.instance_id,
            client_id: member.client_id,
            client_host: member.client_host,
            session_timeout: millis(member.session_timeout_ms),
            rebalance_timeout: millis(member.rebalance_timeout_ms),
            protocols: vec![(protocol, member.subscription)],
        };
        group.restore(new, now);
        assignments.push((member.id, member.assignment));
    }
    if assignments.is_empty() {
        group.empty_since = Some(now);
    } else {
        group.assigned(&assignments, now);
        group.state = GroupState::Stable;
    }
    group
}
