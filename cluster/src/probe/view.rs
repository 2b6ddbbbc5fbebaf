//! What the brokers say of leaders, ISRs and the controller: each answers from a cache of its own,
//! so all are asked, and the newest leader epoch wins.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use history::Key;
use kafka_protocol::messages::describe_quorum_request::{PartitionData, TopicData};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    BrokerId, DescribeQuorumRequest, MetadataRequest, MetadataResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use serde::Serialize;

use super::connection::{ProbeError, ask};
use crate::node::{CONTROLLER_PORT, NodeName, NodeSpec, OBSERVER_PORT};

/// A broker that does not answer by then counts as silent. Those who answer do so in milliseconds.
const ANSWER_DEADLINE: Duration = Duration::from_millis(1500);
/// Leader epochs since version 7; the lowest flexible version.
const METADATA_VERSION: i16 = 9;
const QUORUM_VERSION: i16 = 0;
const METADATA_TOPIC: &str = "__cluster_metadata";

/// A partition as one broker, or the newest of them, sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PartitionView {
    /// None: no leader.
    pub leader: Option<NodeName>,
    /// -1 where unknown.
    pub leader_epoch: i32,
    /// In-sync replicas.
    pub isr: BTreeSet<NodeName>,
    /// All replicas.
    pub replicas: BTreeSet<NodeName>,
}

/// What one broker answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerAnswer {
    /// Brokers that it holds for registered and alive.
    pub brokers: BTreeSet<NodeName>,
    /// The keys that it knows, of those asked for.
    pub keys: BTreeMap<Key, PartitionView>,
}

/// The cluster as far as it could be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The active controller, if a majority of controllers has one.
    pub controller: Option<NodeName>,
    /// By key: what the broker with the newest leader epoch says.
    pub keys: BTreeMap<Key, PartitionView>,
    /// By broker: what it said, or why it did not.
    pub answers: BTreeMap<NodeName, Result<BrokerAnswer, ProbeError>>,
}

/// Asks every node at once. Never fails: who is silent is told as silent.
pub async fn cluster_view(nodes: &[NodeSpec], keys: &[Key]) -> View {
    let brokers = nodes.iter().filter(|node| node.role.is_broker());
    let asked = join_all(brokers.map(|node| async { (node.name, ask_broker(node, keys).await) }));
    let (answers, controller) = tokio::join!(asked, active_controller(nodes));
    let answers: BTreeMap<_, _> = answers.into_iter().collect();
    let mut newest: BTreeMap<Key, PartitionView> = BTreeMap::new();
    for (broker, answer) in &answers {
        let Ok(answer) = answer else { continue };
        for (key, view) in &answer.keys {
            let known = newest.get(key);
            // At one leader epoch the leader knows best: the ISR is its own proposal.
            let better = known.is_none_or(|known| {
                (view.leader_epoch, view.leader == Some(*broker)) > (known.leader_epoch, false)
            });
            if better {
                newest.insert(key.clone(), view.clone());
            }
        }
    }
    View {
        controller,
        keys: newest,
        answers,
    }
}

async fn ask_broker(node: &NodeSpec, keys: &[Key]) -> Result<BrokerAnswer, ProbeError> {
    let topics: BTreeSet<&str> = keys
        .iter()
        .filter_map(|key| key.split().map(|(topic, _)| topic))
        .collect();
    let topics = topics
        .into_iter()
        .map(|topic| MetadataRequestTopic::default().with_name(Some(topic_name(topic))))
        .collect();
    let request = MetadataRequest::default()
        .with_topics(Some(topics))
        .with_allow_auto_topic_creation(false);
    let response = ask(
        node.address,
        OBSERVER_PORT,
        METADATA_VERSION,
        &request,
        ANSWER_DEADLINE,
    )
    .await?;
    Ok(read_metadata(&response))
}

fn read_metadata(response: &MetadataResponse) -> BrokerAnswer {
    let name_of = |id: &BrokerId| u32::try_from(id.0).ok().map(NodeName::new);
    let set = |ids: &[BrokerId]| ids.iter().filter_map(name_of).collect();
    let mut keys = BTreeMap::new();
    for topic in &response.topics {
        let Some(name) = &topic.name else { continue };
        for partition in &topic.partitions {
            let view = PartitionView {
                leader: name_of(&partition.leader_id),
                leader_epoch: partition.leader_epoch,
                isr: set(&partition.isr_nodes),
                replicas: set(&partition.replica_nodes),
            };
            keys.insert(Key::new(name.0.as_str(), partition.partition_index), view);
        }
    }
    let brokers = response
        .brokers
        .iter()
        .filter_map(|broker| name_of(&broker.node_id))
        .collect();
    BrokerAnswer { brokers, keys }
}

/// The leader of the metadata log, as the controllers themselves say; the newest epoch wins.
async fn active_controller(nodes: &[NodeSpec]) -> Option<NodeName> {
    let partition = PartitionData::default().with_partition_index(0);
    let topic = TopicData::default()
        .with_topic_name(topic_name(METADATA_TOPIC))
        .with_partitions(vec![partition]);
    let request = &DescribeQuorumRequest::default().with_topics(vec![topic]);
    let controllers = nodes.iter().filter(|node| node.role.is_controller());
    let answers = join_all(controllers.map(|node| {
        ask(
            node.address,
            CONTROLLER_PORT,
            QUORUM_VERSION,
            request,
            ANSWER_DEADLINE,
        )
    }))
    .await;
    answers
        .into_iter()
        .flatten()
        .flat_map(|answer| answer.topics)
        .flat_map(|topic| topic.partitions)
        .filter(|partition| partition.error_code == 0)
        .max_by_key(|partition| partition.leader_epoch)
        .and_then(|partition| u32::try_from(partition.leader_id.0).ok())
        .map(NodeName::new)
}

pub(super) fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}
