//! Topics are created, grown and deleted.

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::{ControllerError, ErrorKind, World, placement};
use crate::metadata::{PartitionState, Record, Resource, settings};
use crate::types::{LeaderEpoch, NodeId, PartitionEpoch, PartitionId, Recovery, TopicId};

/// Partitions that one request may make.
const MOST_PARTITIONS: usize = 10_000;
/// Kafka's limit: the name and a partition's number make a folder's name.
const LONGEST_NAME: usize = 249;

/// Where a new topic's replicas go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Spread by the controller.
    Spread {
        /// How many partitions.
        partitions: i32,
        /// How many replicas each.
        factor: i16,
    },
    /// As the user says, by partition.
    Explicit(BTreeMap<i32, Vec<NodeId>>),
}

/// A topic that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// Its id, drawn by the caller.
    pub id: TopicId,
    /// Where its replicas go.
    pub layout: Layout,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
}

/// Creates a topic.
///
/// # Errors
/// Kafka's: a bad or taken name, a layout that cannot be, a bad setting.
pub fn create(
    world: World<'_>,
    wanted: &NewTopic,
    seed: u64,
) -> Result<Vec<Record>, ControllerError> {
    check_name(&wanted.name)?;
    let refuse = |kind, reason: String| Err(ControllerError::new(kind, reason));
    if world.image.topic_by_name(&wanted.name).is_some() {
        return refuse(ErrorKind::TopicAlreadyExists, format!("topic {} exists", wanted.name));
    }
    if let Some(other) = collides(world, &wanted.name) {
        return refuse(
            ErrorKind::InvalidTopicException,
            format!(
                "{} and {other} would be the same to metrics: `.` and `_` are one",
                wanted.name
            ),
        );
    }
    for (name, value) in &wanted.settings {
        let setting = settings::find(name).ok_or_else(|| {
            ControllerError::new(ErrorKind::InvalidConfig, format!("there is no setting {name}"))
        })?;
        setting
            .check(value)
            .map_err(|reason| ControllerError::new(ErrorKind::InvalidConfig, reason))?;
    }
    let replicas = lay_out(world, &wanted.layout, seed)?;
    let mut records = vec![Record::Topic { name: wanted.name.clone(), id: wanted.id }];
    for (name, value) in &wanted.settings {
        records.push(Record::Setting {
            resource: Resource::Topic(wanted.name.clone()),
            name: name.clone(),
            value: Some(value.clone()),
        });
    }
    for (index, replicas) in (0..).zip(replicas) {
        records.push(new_partition(world, PartitionId { topic: wanted.id, index }, replicas)?);
    }
    Ok(records)
}

/// R30: a partition begins with those of its replicas that are active, and there must be one.
fn new_partition(
    world: World<'_>,
    id: PartitionId,
    replicas: Vec<NodeId>,
) -> Result<Record, ControllerError> {
    let isr: Vec<NodeId> =
        replicas.iter().copied().filter(|id| world.image.is_active(*id)).collect();
    let Some(leader) = isr.first().copied() else {
        return Err(ControllerError::new(
            ErrorKind::InvalidReplicaAssignment,
            format!("partition {}: none of {replicas:?} serves", id.index),
        ));
    };
    let state = PartitionState {
        replicas,
        isr,
        leader: Some(leader),
        leader_epoch: LeaderEpoch(0),
        partition_epoch: PartitionEpoch(0),
        recovery: Recovery::Recovered,
        adding: Vec::new(),
        removing: Vec::new(),
        elr: Vec::new(),
        last_known_elr: Vec::new(),
    };
    Ok(Record::Partition { id, state })
}

fn lay_out(
    world: World<'_>,
    layout: &Layout,
    seed: u64,
) -> Result<Vec<Vec<NodeId>>, ControllerError> {
    match layout {
        Layout::Spread { partitions, factor } => {
            let count = usize::try_from(*partitions).ok().filter(|count| *count > 0);
            let count = count.ok_or_else(|| {
                ControllerError::new(
                    ErrorKind::InvalidPartitions,
                    format!("{partitions} partitions; there must be at least 1"),
                )
            })?;
            check_count(count)?;
            placement::place(world.image, count, usize::try_from(*factor).unwrap_or(0), seed)
        }
        Layout::Explicit(by_partition) => {
            check_count(by_partition.len())?;
            let dense =
                by_partition.keys().copied().eq(0..i32::try_from(by_partition.len()).unwrap_or(0));
            if by_partition.is_empty() || !dense {
                return Err(ControllerError::new(
                    ErrorKind::InvalidReplicaAssignment,
                    "partitions must be numbered from 0 without gaps",
                ));
            }
            let all: Vec<Vec<NodeId>> = by_partition.values().cloned().collect();
            for replicas in &all {
                check_replicas(world, replicas, all[0].len())?;
            }
            Ok(all)
        }
    }
}

fn check_count(count: usize) -> Result<(), ControllerError> {
    if count <= MOST_PARTITIONS {
        return Ok(());
    }
    Err(ControllerError::new(
        ErrorKind::InvalidPartitions,
        format!("{count} partitions; at most {MOST_PARTITIONS} are made at once"),
    ))
}

/// Are these replicas that a partition may have: known brokers, each once, `factor` of them?
///
/// # Errors
/// `INVALID_REPLICA_ASSIGNMENT`.
pub(super) fn check_replicas(
    world: World<'_>,
    replicas: &[NodeId],
    factor: usize,
) -> Result<(), ControllerError> {
    let refuse =
        |reason: String| Err(ControllerError::new(ErrorKind::InvalidReplicaAssignment, reason));
    let distinct: BTreeSet<&NodeId> = replicas.iter().collect();
    if replicas.is_empty() || distinct.len() != replicas.len() {
        return refuse(format!("{replicas:?}: at least one, and each once"));
    }
    if replicas.len() != factor {
        return refuse(format!("{replicas:?}: {factor} replicas are wanted"));
    }
    match replicas.iter().find(|id| world.image.broker(**id).is_none()) {
        Some(unknown) => refuse(format!("broker {unknown} is not registered")),
        None => Ok(()),
    }
}

/// Deletes a topic.
///
/// # Errors
/// `UNKNOWN_TOPIC_ID`.
pub fn delete(world: World<'_>, id: TopicId) -> Result<Record, ControllerError> {
    match world.image.topic(id) {
        Some(_) => Ok(Record::RemoveTopic { id }),
        None => Err(ControllerError::new(ErrorKind::UnknownTopicId, format!("no topic {id}"))),
    }
}

/// Adds partitions up to `count`, where `explicit` says (or spread).
///
/// # Errors
/// Kafka's.
pub fn grow(
    world: World<'_>,
    name: &str,
    count: i32,
    explicit: Option<&[Vec<NodeId>]>,
    seed: u64,
) -> Result<Vec<Record>, ControllerError> {
    let topic = world.image.topic_by_name(name).ok_or_else(|| {
        ControllerError::new(ErrorKind::UnknownTopicOrPartition, format!("no topic {name}"))
    })?;
    let now = topic.partitions.len();
    let wanted = usize::try_from(count).unwrap_or(0);
    if wanted <= now {
        return Err(ControllerError::new(
            ErrorKind::InvalidPartitions,
            format!("{name} has {now} partitions; {count} is not more"),
        ));
    }
    let factor = topic.partitions.values().next().map_or(1, |state| state.replicas.len());
    let more = wanted - now;
    check_count(more)?;
    let replicas = match explicit {
        Some(explicit) => {
            if explicit.len() != more {
                return Err(ControllerError::new(
                    ErrorKind::InvalidReplicaAssignment,
                    format!("{} assignments for {more} new partitions", explicit.len()),
                ));
            }
            for replicas in explicit {
                check_replicas(world, replicas, factor)?;
            }
            explicit.to_vec()
        }
        None => placement::place(world.image, more, factor, seed.wrapping_add(now as u64))?,
    };
    let first = i32::try_from(now).unwrap_or(i32::MAX);
    (first..)
        .zip(replicas)
        .map(|(index, replicas)| {
            new_partition(world, PartitionId { topic: topic.id, index }, replicas)
        })
        .collect()
}

/// Kafka's rules for names.
fn check_name(name: &str) -> Result<(), ControllerError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let reason = if name.is_empty() {
        "a topic needs a name".to_owned()
    } else if name == "." || name == ".." {
        format!("`{name}` is no name")
    } else if name.len() > LONGEST_NAME {
        format!("a name has at most {LONGEST_NAME} characters")
    } else if !name.chars().all(legal) {
        format!("`{name}`: letters, digits, `.`, `_` and `-` make a name")
    } else {
        return Ok(());
    };
    Err(ControllerError::new(ErrorKind::InvalidTopicException, reason))
}

fn collides(world: World<'_>, name: &str) -> Option<String> {
    if !name.contains(['.', '_']) {
        return None;
    }
    let flat = |name: &str| name.replace('.', "_");
    let wanted = flat(name);
    world.image.topics().map(|topic| &topic.name).find(|known| flat(known) == wanted).cloned()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::controller::testing::Cluster;

    fn wanted(name: &str, layout: Layout) -> NewTopic {
        NewTopic {
            name: name.to_owned(),
            id: TopicId(Uuid::from_u128(77)),
            layout,
            settings: BTreeMap::new(),
        }
    }

    fn spread(partitions: i32, factor: i16) -> Layout {
        Layout::Spread { partitions, factor }
    }

    #[test]
    fn a_topic_begins_with_all_in_sync() {
        let mut cluster = Cluster::of(3);
        let records = create(cluster.world(), &wanted("orders", spread(4, 3)), 1).unwrap();
        cluster.apply(&records);
        for index in 0..4 {
            let state = cluster.partition("orders", index);
            assert_eq!(state.isr, state.replicas);
            assert_eq!(state.leader, Some(state.replicas[0]));
        }
    }

    #[test]
    fn r30_not_with_inactive_replicas_only() {
        let mut cluster = Cluster::of(3);
        cluster.fence(2);
        let only = Layout::Explicit(BTreeMap::from([(0, vec![NodeId(2)])]));
        let error = create(cluster.world(), &wanted("t", only), 1).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidReplicaAssignment);
        let some = Layout::Explicit(BTreeMap::from([(0, vec![NodeId(2), NodeId(1)])]));
        cluster.apply(&create(cluster.world(), &wanted("t", some), 1).unwrap());
        let state = cluster.partition("t", 0);
        assert_eq!((state.leader, state.isr.clone()), (Some(NodeId(1)), vec![NodeId(1)]));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let cluster = Cluster::of(3).with_topic("a.b", &[&[1]]);
        let kind = |name: &str, layout: Layout| {
            create(cluster.world(), &wanted(name, layout), 1).unwrap_err().kind
        };
        for name in ["", ".", "..", "a/b", "ü", &"x".repeat(250)] {
            assert_eq!(kind(name, spread(1, 1)), ErrorKind::InvalidTopicException, "{name}");
        }
        assert_eq!(kind("a.b", spread(1, 1)), ErrorKind::TopicAlreadyExists);
        assert_eq!(kind("a_b", spread(1, 1)), ErrorKind::InvalidTopicException);
        assert_eq!(kind("t", spread(0, 1)), ErrorKind::InvalidPartitions);
        assert_eq!(kind("t", spread(1_000_000, 1)), ErrorKind::InvalidPartitions);
        assert_eq!(kind("t", spread(1, 4)), ErrorKind::InvalidReplicationFactor);
        assert_eq!(kind("t", spread(1, -2)), ErrorKind::InvalidReplicationFactor);
        let gap = Layout::Explicit(BTreeMap::from([(1, vec![NodeId(1)])]));
        assert_eq!(kind("t", gap), ErrorKind::InvalidReplicaAssignment);
        let twice = Layout::Explicit(BTreeMap::from([(0, vec![NodeId(1), NodeId(1)])]));
        assert_eq!(kind("t", twice), ErrorKind::InvalidReplicaAssignment);
        let mut bad = wanted("t", spread(1, 1));
        bad.settings.insert("retention.ms".to_owned(), "soon".to_owned());
        let error = create(cluster.world(), &bad, 1).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidConfig);
    }

    #[test]
    fn a_topic_grows_and_goes() {
        let mut cluster = Cluster::of(3).with_topic("t", &[&[1, 2]]);
        assert!(grow(cluster.world(), "t", 1, None, 0).is_err());
        cluster.apply(&grow(cluster.world(), "t", 3, None, 0).unwrap());
        assert_eq!(cluster.partition("t", 2).replicas.len(), 2);
        let id = cluster.id("t", 0).topic;
        let record = delete(cluster.world(), id).unwrap();
        cluster.apply(&[record]);
        assert!(cluster.image().topic_by_name("t").is_none());
        assert!(delete(cluster.world(), id).is_err());
    }
}
