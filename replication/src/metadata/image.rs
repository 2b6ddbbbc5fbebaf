//! What the metadata log adds up to.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use crate::metadata::record::{BrokerRegistration, Listener, PartitionChange, Record, Resource};
use crate::types::{
    BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch, PartitionId, Recovery, TopicId,
};

/// A registered broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broker {
    /// Who.
    pub id: NodeId,
    /// In which life: the index of its registration.
    pub epoch: BrokerEpoch,
    /// The same, as its process names it.
    pub incarnation: Uuid,
    /// Where it listens.
    pub listeners: Vec<Listener>,
    /// Its rack.
    #[serde(default)]
    pub rack: Option<String>,
    /// Not to serve.
    pub fenced: bool,
    /// On its way out (R28).
    pub in_controlled_shutdown: bool,
    /// The entry of the log that says so; who has read past it, knows (R28).
    #[serde(default)]
    pub shutdown_index: Option<i64>,
}

impl Broker {
    /// May it lead and be in an ISR (R36)?
    pub const fn is_active(&self) -> bool {
        !self.fenced && !self.in_controlled_shutdown
    }

    /// Where it listens under this name.
    pub fn listener(&self, name: &str) -> Option<&Listener> {
        self.listeners.iter().find(|listener| listener.name == name)
    }
}

/// A partition as committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionState {
    /// Who holds it, the preferred leader first.
    pub replicas: Vec<NodeId>,
    /// Who is in sync.
    pub isr: Vec<NodeId>,
    /// Who leads.
    pub leader: Option<NodeId>,
    /// Rises with each leader.
    pub leader_epoch: LeaderEpoch,
    /// Rises with each change.
    pub partition_epoch: PartitionEpoch,
    /// How trustworthy the leader's log is.
    #[serde(default)]
    pub recovery: Recovery,
    /// Replicas that a reassignment adds.
    #[serde(default)]
    pub adding: Vec<NodeId>,
    /// Replicas that it removes.
    #[serde(default)]
    pub removing: Vec<NodeId>,
    /// Out of the ISR, and still sure to hold all that is committed (KIP-966).
    #[serde(default)]
    pub elr: Vec<NodeId>,
    /// The last of those that were.
    #[serde(default)]
    pub last_known_elr: Vec<NodeId>,
}

impl PartitionState {
    /// The state after `change`.
    #[must_use]
    pub fn with(&self, change: &PartitionChange) -> Self {
        let or = |new: &Option<Vec<NodeId>>, old: &Vec<NodeId>| {
            new.clone().unwrap_or_else(|| old.clone())
        };
        Self {
            replicas: or(&change.replicas, &self.replicas),
            isr: or(&change.isr, &self.isr),
            leader: change.leader.unwrap_or(self.leader),
            leader_epoch: match change.leader {
                Some(_) => self.leader_epoch.next(),
                None => self.leader_epoch,
            },
            partition_epoch: self.partition_epoch.next(),
            recovery: change.recovery.unwrap_or(self.recovery),
            adding: or(&change.adding, &self.adding),
            removing: or(&change.removing, &self.removing),
            elr: or(&change.elr, &self.elr),
            last_known_elr: or(&change.last_known_elr, &self.last_known_elr),
        }
    }

    /// Is a reassignment under way?
    pub fn is_reassigning(&self) -> bool {
        !self.adding.is_empty() || !self.removing.is_empty()
    }
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topic {
    /// Its id.
    pub id: TopicId,
    /// Its name.
    pub name: String,
    /// Its partitions.
    pub partitions: BTreeMap<i32, PartitionState>,
}

/// Why a record does not fit. The image stays as it was.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// It speaks of a broker, or a life of one, that is not registered.
    #[error("broker {0} is not registered in that life")]
    UnknownBroker(NodeId),
    /// It speaks of a topic that is not there.
    #[error("there is no topic {0}")]
    UnknownTopic(TopicId),
    /// It speaks of a partition that is not there.
    #[error("there is no partition {0}")]
    UnknownPartition(PartitionId),
    /// It makes what is there already.
    #[error("topic {0} is there already")]
    TopicExists(String),
}

/// What the metadata log adds up to. Cheap to clone: topics are shared until they change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    brokers: BTreeMap<NodeId, Broker>,
    #[serde(with = "shared_topics")]
    topics: BTreeMap<TopicId, Arc<Topic>>,
    names: BTreeMap<String, TopicId>,
    #[serde(with = "settings_as_list")]
    settings: BTreeMap<Resource, BTreeMap<String, String>>,
    next_producer_id: i64,
    features: BTreeMap<String, i16>,
}

/// Topics as a list: ids are in them.
mod shared_topics {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Topic, TopicId};

    pub(super) fn serialize<S: Serializer>(
        topics: &BTreeMap<TopicId, Arc<Topic>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(topics.values().map(Arc::as_ref))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<TopicId, Arc<Topic>>, D::Error> {
        let topics: Vec<Topic> = Vec::deserialize(deserializer)?;
        Ok(topics.into_iter().map(|topic| (topic.id, Arc::new(topic))).collect())
    }
}

/// Settings as a list of pairs: JSON has no other keys than strings.
mod settings_as_list {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::Resource;

    type Settings = BTreeMap<Resource, BTreeMap<String, String>>;

    pub(super) fn serialize<S: Serializer>(
        settings: &Settings,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(settings.iter())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Settings, D::Error> {
        let pairs: Vec<(Resource, BTreeMap<String, String>)> = Vec::deserialize(deserializer)?;
        Ok(pairs.into_iter().collect())
    }
}

impl Image {
    /// Applies one record of the entry at `index`.
    ///
    /// # Errors
    /// [`Refused`]; the image stays as it was.
    pub fn apply(&mut self, index: i64, record: &Record) -> Result<(), Refused> {
        match record {
            Record::RegisterBroker(registration) => self.register(index, registration),
            Record::ChangeBroker { id, epoch, fenced, in_controlled_shutdown } => {
                let broker = self.broker_in(*id, *epoch)?;
                broker.fenced = fenced.unwrap_or(broker.fenced);
                if let Some(leaving) = in_controlled_shutdown {
                    broker.in_controlled_shutdown = *leaving;
                    broker.shutdown_index = leaving.then_some(index);
                }
            }
            Record::UnregisterBroker { id, epoch } => {
                self.broker_in(*id, *epoch)?;
                self.brokers.remove(id);
            }
            Record::Topic { name, id } => {
                if self.names.contains_key(name) || self.topics.contains_key(id) {
                    return Err(Refused::TopicExists(name.clone()));
                }
                self.names.insert(name.clone(), *id);
                let topic = Topic { id: *id, name: name.clone(), partitions: BTreeMap::new() };
                self.topics.insert(*id, Arc::new(topic));
            }
            Record::RemoveTopic { id } => {
                let topic = self.topics.remove(id).ok_or(Refused::UnknownTopic(*id))?;
                self.names.remove(&topic.name);
                self.settings.remove(&Resource::Topic(topic.name.clone()));
            }
            Record::Partition { id, state } => {
                self.topic_mut(id.topic)?.partitions.insert(id.index, state.clone());
            }
            Record::ChangePartition { id, change } => {
                let state = self
                    .topic_mut(id.topic)?
                    .partitions
                    .get_mut(&id.index)
                    .ok_or(Refused::UnknownPartition(*id))?;
                *state = state.with(change);
            }
            Record::Setting { resource, name, value } => self.set(resource, name, value.as_ref()),
            Record::ProducerIds { next, .. } => {
                self.next_producer_id = self.next_producer_id.max(*next);
            }
            Record::Feature { name, level } => {
                self.features.insert(name.clone(), *level);
            }
        }
        Ok(())
    }

    fn register(&mut self, index: i64, registration: &BrokerRegistration) {
        let broker = Broker {
            id: registration.id,
            epoch: BrokerEpoch(index),
            incarnation: registration.incarnation,
            listeners: registration.listeners.clone(),
            rack: registration.rack.clone(),
            fenced: true,
            in_controlled_shutdown: false,
            shutdown_index: None,
        };
        self.brokers.insert(broker.id, broker);
    }

    fn set(&mut self, resource: &Resource, name: &str, value: Option<&String>) {
        let settings = self.settings.entry(resource.clone()).or_default();
        match value {
            Some(value) => drop(settings.insert(name.to_owned(), value.clone())),
            None => drop(settings.remove(name)),
        }
        if settings.is_empty() {
            self.settings.remove(resource);
        }
    }

    fn broker_in(&mut self, id: NodeId, epoch: BrokerEpoch) -> Result<&mut Broker, Refused> {
        self.brokers
            .get_mut(&id)
            .filter(|broker| broker.epoch == epoch)
            .ok_or(Refused::UnknownBroker(id))
    }

    fn topic_mut(&mut self, id: TopicId) -> Result<&mut Topic, Refused> {
        self.topics.get_mut(&id).map(Arc::make_mut).ok_or(Refused::UnknownTopic(id))
    }

    /// All brokers, by id.
    pub fn brokers(&self) -> impl Iterator<Item = &Broker> {
        self.brokers.values()
    }

    /// One broker.
    pub fn broker(&self, id: NodeId) -> Option<&Broker> {
        self.brokers.get(&id)
    }

    /// Is it registered, unfenced and not on its way out?
    pub fn is_active(&self, id: NodeId) -> bool {
        self.broker(id).is_some_and(Broker::is_active)
    }

    /// All topics, by id.
    pub fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.topics.values().map(Arc::as_ref)
    }

    /// A topic by its id.
    pub fn topic(&self, id: TopicId) -> Option<&Topic> {
        self.topics.get(&id).map(Arc::as_ref)
    }

    /// A topic by its name.
    pub fn topic_by_name(&self, name: &str) -> Option<&Topic> {
        self.names.get(name).and_then(|id| self.topic(*id))
    }

    /// A partition.
    pub fn partition(&self, id: PartitionId) -> Option<&PartitionState> {
        self.topic(id.topic)?.partitions.get(&id.index)
    }

    /// All partitions.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionId, &PartitionState)> {
        self.topics().flat_map(|topic| {
            topic
                .partitions
                .iter()
                .map(|(index, state)| (PartitionId { topic: topic.id, index: *index }, state))
        })
    }

    /// Does `broker` lead any partition?
    pub fn leads_any(&self, broker: NodeId) -> bool {
        self.partitions().any(|(_, state)| state.leader == Some(broker))
    }

    /// What is set for a resource itself.
    pub fn settings_of(&self, resource: &Resource) -> BTreeMap<String, String> {
        self.settings.get(resource).cloned().unwrap_or_default()
    }

    /// Are the settings of a resource itself the same in `other`?
    pub fn same_settings(&self, other: &Self, resource: &Resource) -> bool {
        self.settings.get(resource) == other.settings.get(resource)
    }

    /// One setting of a resource itself.
    pub fn setting(&self, resource: &Resource, name: &str) -> Option<&str> {
        self.settings.get(resource)?.get(name).map(String::as_str)
    }

    /// Are the settings of brokers, each one's and all, the same in `other`?
    pub fn same_broker_settings(&self, other: &Self) -> bool {
        let mine = self.settings.iter();
        let is_of_topic = |resource: &Resource| matches!(resource, Resource::Topic(_));
        mine.filter(|(resource, _)| !is_of_topic(resource))
            .eq(other.settings.iter().filter(|(resource, _)| !is_of_topic(resource)))
    }

    /// The first producer id that is not given away.
    pub const fn next_producer_id(&self) -> i64 {
        self.next_producer_id
    }

    /// The level of a feature; `None`: the cluster does not say.
    pub fn feature(&self, name: &str) -> Option<i16> {
        self.features.get(name).copied()
    }
}
