//! What stands in the metadata log. Facts that were decided, never requests.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::metadata::PartitionState;
use crate::types::{BrokerEpoch, NodeId, PartitionId, Recovery, TopicId};

/// A named address of a broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// `CLIENT`, `BROKER`, …
    pub name: String,
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// What a broker says of itself when it registers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerRegistration {
    /// Who.
    pub id: NodeId,
    /// One life of its process.
    pub incarnation: Uuid,
    /// Where it listens.
    pub listeners: Vec<Listener>,
    /// Its log folders.
    #[serde(default)]
    pub log_dirs: Vec<Uuid>,
    /// Its rack, if it has one.
    #[serde(default)]
    pub rack: Option<String>,
}

/// What has settings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// Every broker.
    AllBrokers,
    /// One broker.
    Broker(NodeId),
    /// A topic, by name.
    Topic(String),
}

/// What changes of a partition. The partition epoch rises with each; the leader epoch rises
/// whenever a leader (or that there is none) is named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionChange {
    /// Another ISR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isr: Option<Vec<NodeId>>,
    /// A leader, perhaps the same again; `Some(None)`: none.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "named_leader")]
    pub leader: Option<Option<NodeId>>,
    /// Other replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Vec<NodeId>>,
    /// Replicas that a reassignment adds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adding: Option<Vec<NodeId>>,
    /// Replicas that it removes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removing: Option<Vec<NodeId>>,
    /// Another recovery state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// Other eligible leaders outside the ISR (KIP-966).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elr: Option<Vec<NodeId>>,
    /// Other last known eligible leaders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_known_elr: Option<Vec<NodeId>>,
}

/// "No leader" is -1, so that it is told apart from "nothing said of the leader".
mod named_leader {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::types::NodeId;

    #[expect(
        clippy::ref_option,
        clippy::option_option,
        clippy::trivially_copy_pass_by_ref,
        reason = "serde's signature, and two questions"
    )]
    pub(super) fn serialize<S: Serializer>(
        leader: &Option<Option<NodeId>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        leader.as_ref().map(|leader| leader.map_or(-1, |id| id.0)).serialize(serializer)
    }

    #[expect(clippy::option_option, reason = "whether it is named, and whether there is one")]
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Option<NodeId>>, D::Error> {
        let named: Option<i32> = Option::deserialize(deserializer)?;
        Ok(named.map(|id| (id >= 0).then_some(NodeId(id))))
    }
}

/// One fact of the metadata log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// A broker began a life; its epoch is the index of the entry. It is fenced.
    RegisterBroker(BrokerRegistration),
    /// A broker is fenced or not, on its way out or not.
    ChangeBroker {
        /// Who.
        id: NodeId,
        /// In which life.
        epoch: BrokerEpoch,
        /// Fenced, if that changes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fenced: Option<bool>,
        /// On its way out, if that changes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        in_controlled_shutdown: Option<bool>,
    },
    /// A broker is no part of the cluster any more.
    UnregisterBroker {
        /// Who.
        id: NodeId,
        /// In which life.
        epoch: BrokerEpoch,
    },
    /// A topic; its partitions follow.
    Topic {
        /// Its name.
        name: String,
        /// Its id.
        id: TopicId,
    },
    /// A topic with all its partitions and settings is gone.
    RemoveTopic {
        /// Its id.
        id: TopicId,
    },
    /// A new partition.
    Partition {
        /// Which.
        id: PartitionId,
        /// All of it.
        state: PartitionState,
    },
    /// A partition changes.
    ChangePartition {
        /// Which.
        id: PartitionId,
        /// What.
        change: PartitionChange,
    },
    /// A setting, or that it is not set any more.
    Setting {
        /// Of what.
        resource: Resource,
        /// Its name.
        name: String,
        /// Its value.
        #[serde(default)]
        value: Option<String>,
    },
    /// Producer ids below `next` are given away.
    ProducerIds {
        /// To whom.
        broker: NodeId,
        /// In which life.
        broker_epoch: BrokerEpoch,
        /// The first that is not.
        next: i64,
    },
    /// A feature of the cluster is at a level; 0 is off.
    Feature {
        /// Its name.
        name: String,
        /// Its level.
        level: i16,
    },
}

impl Record {
    /// Does it begin a broker's life, so that the index of its entry becomes an epoch?
    pub const fn is_registration(&self) -> bool {
        matches!(self, Self::RegisterBroker(_))
    }
}
