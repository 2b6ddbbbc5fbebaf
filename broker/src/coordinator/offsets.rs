//! How far groups are: committed, fetched, deleted.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
    OffsetFetchRequest, OffsetFetchResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use replication::seeded::Bug;
use tokio::time::Instant;

use super::group::{Group, GroupState};
use super::membership::known_member;
use super::shard::{Change, Shard};
use super::{Caller, Committed, Coordinator, text};
use crate::replica::clock;

/// Versions from here on ask for several groups at once.
const FIRST_WITH_GROUPS: i16 = 8;

impl Coordinator {
    /// OffsetCommit: answered once it is committed; seen by others only then.
    pub async fn offset_commit(
        &self,
        request: OffsetCommitRequest,
        _caller: &Caller,
    ) -> OffsetCommitResponse {
        let begun = self.with_shard(&request.group_id, |partition, shard| {
            may_commit(shard, &request)?;
            if Bug::OffsetCommitLost.is_on() && clock::wall_ms() % 3 == 0 {
                return Ok(None);
            }
            self.write_all(partition, shard, &self.commits(&request))
        });
        let outcome = match begun {
            Err(error) => Err(error),
            Ok(None) => Ok(()),
            Ok(Some(written)) => self.kept(written).await,
        };
        let topics = request.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|partition| {
                let error = match (self.too_large(partition), outcome) {
                    (true, Ok(())) => Some(ResponseError::OffsetMetadataTooLarge),
                    (_, outcome) => outcome.err(),
                };
                OffsetCommitResponsePartition::default()
                    .with_partition_index(partition.partition_index)
                    .with_error_code(error.map_or(0, |error| error.code()))
            });
            OffsetCommitResponseTopic::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions.collect())
        });
        OffsetCommitResponse::default().with_topics(topics.collect())
    }

    fn too_large(&self, partition: &OffsetCommitRequestPartition) -> bool {
        let metadata = partition.committed_metadata.as_ref();
        metadata.is_some_and(|metadata| metadata.len() > self.settings.metadata_max_bytes)
    }

    fn commits(&self, request: &OffsetCommitRequest) -> Vec<Change> {
        let timestamp_ms = clock::wall_ms();
        let group = request.group_id.to_string();
        let mut changes = Vec::new();
        for topic in &request.topics {
            for partition in topic.partitions.iter().filter(|partition| !self.too_large(partition))
            {
                let metadata = partition.committed_metadata.as_ref();
                let committed = Committed {
                    offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    metadata: metadata.map_or_else(String::new, ToString::to_string),
                    timestamp_ms,
                };
                changes.push(Change::Offset {
                    group: group.clone(),
                    place: (topic.name.to_string(), partition.partition_index),
                    committed: Some(committed),
                });
            }
        }
        changes
    }

    /// OffsetFetch.
    pub async fn offset_fetch(
        &self,
        request: OffsetFetchRequest,
        caller: &Caller,
    ) -> OffsetFetchResponse {
        if caller.api_version >= FIRST_WITH_GROUPS {
            let groups = request.groups.iter().map(|group| {
                let topics = group.topics.as_ref().map(|topics| {
                    asked(topics.iter().map(|topic| (&topic.name, &topic.partition_indexes)))
                });
                let answer =
                    OffsetFetchResponseGroup::default().with_group_id(group.group_id.clone());
                match self.fetch(&group.group_id, topics.as_deref()) {
                    Err(error) => answer.with_error_code(error.code()),
                    Ok(topics) => answer.with_topics(topics.into_iter().map(of_group).collect()),
                }
            });
            return OffsetFetchResponse::default().with_groups(groups.collect());
        }
        let topics = request.topics.as_ref().map(|topics| {
            asked(topics.iter().map(|topic| (&topic.name, &topic.partition_indexes)))
        });
        match self.fetch(&request.group_id, topics.as_deref()) {
            Err(error) => {
                // Version 1 has no place for an error but beside each partition.
                let topics = topics.unwrap_or_default().into_iter().map(|(name, indexes)| {
                    let partitions = indexes.into_iter().map(|index| (index, None)).collect();
                    alone((name, partitions), error.code())
                });
                OffsetFetchResponse::default()
                    .with_error_code(error.code())
                    .with_topics(topics.collect())
            }
            Ok(topics) => OffsetFetchResponse::default()
                .with_topics(topics.into_iter().map(|topic| alone(topic, 0)).collect()),
        }
    }

    fn fetch(
        &self,
        group: &str,
        topics: Option<&[(String, Vec<i32>)]>,
    ) -> Result<Vec<Fetched>, ResponseError> {
        self.with_shard(group, |_, shard| {
            let known = shard.offsets.of(group);
            let of = |topic: &str, index: i32| {
                known.and_then(|known| known.get(&(topic.to_owned(), index))).cloned()
            };
            Ok(if let Some(topics) = topics {
                topics
                    .iter()
                    .map(|(topic, indexes)| {
                        let found = indexes.iter().map(|index| (*index, of(topic, *index)));
                        (topic.clone(), found.collect())
                    })
                    .collect()
            } else {
                let mut all: Vec<Fetched> = Vec::new();
                for ((topic, index), committed) in known.into_iter().flatten() {
                    let found = (*index, Some(committed.clone()));
                    match all.last_mut().filter(|(name, _)| name == topic) {
                        Some((_, partitions)) => partitions.push(found),
                        None => all.push((topic.clone(), vec![found])),
                    }
                }
                all
            })
        })
    }

    /// OffsetDelete: offsets of topics that nobody in the group reads any more.
    pub async fn offset_delete(
        &self,
        request: OffsetDeleteRequest,
        _caller: &Caller,
    ) -> OffsetDeleteResponse {
        let begun = self.with_shard(&request.group_id, |partition, shard| {
            let group = shard
                .groups
                .get(request.group_id.as_str())
                .ok_or(ResponseError::GroupIdNotFound)?;
            // What a consumer subscribes to lies in bytes that are its own affair; a group with
            // members keeps what it has.
            if group.state != GroupState::Empty {
                return Err(ResponseError::NonEmptyGroup);
            }
            self.write_all(partition, shard, &deletions(&request))
        });
        let outcome = match begun {
            Err(error) => Err(error),
            Ok(None) => Ok(()),
            Ok(Some(written)) => self.kept(written).await,
        };
        if let Err(error) = outcome {
            OffsetDeleteResponse::default().with_error_code(error.code())
        } else {
            let topics = request.topics.iter().map(|topic| {
                let partitions = topic.partitions.iter().map(|partition| {
                    OffsetDeleteResponsePartition::default()
                        .with_partition_index(partition.partition_index)
                });
                OffsetDeleteResponseTopic::default()
                    .with_name(topic.name.clone())
                    .with_partitions(partitions.collect())
            });
            OffsetDeleteResponse::default().with_topics(topics.collect())
        }
    }
}

fn deletions(request: &OffsetDeleteRequest) -> Vec<Change> {
    let group = request.group_id.to_string();
    let mut changes = Vec::new();
    for topic in &request.topics {
        changes.extend(topic.partitions.iter().map(|partition| Change::Offset {
            group: group.clone(),
            place: (topic.name.to_string(), partition.partition_index),
            committed: None,
        }));
    }
    changes
}

fn asked<'a>(
    topics: impl Iterator<Item = (&'a TopicName, &'a Vec<i32>)>,
) -> Vec<(String, Vec<i32>)> {
    topics.map(|(name, partitions)| (name.to_string(), partitions.clone())).collect()
}

/// A topic, and what is committed of its partitions.
type Fetched = (String, Vec<(i32, Option<Committed>)>);

/// The offset, leader epoch and metadata of a partition, as a fetch tells them; -1 and nothing
/// where nothing is committed.
fn told(committed: Option<Committed>) -> (i64, i32, Option<StrBytes>) {
    committed.map_or((-1, -1, Some(StrBytes::default())), |committed| {
        (committed.offset, committed.leader_epoch, Some(text(committed.metadata)))
    })
}

fn alone((name, partitions): Fetched, error: i16) -> OffsetFetchResponseTopic {
    let partitions = partitions.into_iter().map(|(index, committed)| {
        let (offset, leader_epoch, metadata) = told(committed);
        OffsetFetchResponsePartition::default()
            .with_partition_index(index)
            .with_error_code(error)
            .with_committed_offset(offset)
            .with_committed_leader_epoch(leader_epoch)
            .with_metadata(metadata)
    });
    OffsetFetchResponseTopic::default()
        .with_name(TopicName(text(name)))
        .with_partitions(partitions.collect())
}

fn of_group((name, partitions): Fetched) -> OffsetFetchResponseTopics {
    let partitions = partitions.into_iter().map(|(index, committed)| {
        let (offset, leader_epoch, metadata) = told(committed);
        OffsetFetchResponsePartitions::default()
            .with_partition_index(index)
            .with_committed_offset(offset)
            .with_committed_leader_epoch(leader_epoch)
            .with_metadata(metadata)
    });
    OffsetFetchResponseTopics::default()
        .with_name(TopicName(text(name)))
        .with_partitions(partitions.collect())
}

/// Who may say how far a group is: a member in its generation; or anyone, while it has none.
fn may_commit(shard: &mut Shard, request: &OffsetCommitRequest) -> Result<(), ResponseError> {
    let generation = request.generation_id_or_member_epoch;
    let group: Option<&mut Group> = shard.groups.get_mut(request.group_id.as_str());
    if generation < 0 {
        return match group {
            Some(group) if group.state != GroupState::Empty => Err(ResponseError::UnknownMemberId),
            _ => Ok(()),
        };
    }
    if group.is_none() {
        return Err(ResponseError::IllegalGeneration);
    }
    let group = known_member(
        shard,
        &request.group_id,
        &request.member_id,
        request.group_instance_id.as_deref(),
        Some(generation),
    )?;
    if group.state == GroupState::CompletingRebalance {
        return Err(ResponseError::RebalanceInProgress);
    }
    // A commit is a sign of life.
    if let Some(member) = group.members.get_mut(request.member_id.as_str()) {
        member.expires = Instant::now() + member.session_timeout;
    }
    Ok(())
}
