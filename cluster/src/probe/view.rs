//! What the brokers say of leaders, ISRs and the controller: each answers from a cache of its own,
//! so all are asked, and the newest leader epoch wins.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use futures_util::future::join_all;
use history::Key;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{BrokerId, MetadataRequest, MetadataResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use serde::Serialize;

use super::connection::{ProbeError, ask};
use super::quorum::quorum_view;
use crate::node::{NodeName, NodeSpec, OBSERVER_PORT};

/// A broker that does not answer by then counts as silent. Those who answer do so in milliseconds.
pub(super) const ANSWER_DEADLINE: Duration = Duration::from_millis(1500);
/// Leader epochs since version 7; 9 is the lowest flexible one.
pub(super) const METADATA_VERSIONS: RangeInclusive<i16> = 9..=12;

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
    /// Those on brokers that are down or have lost their disk.
    pub offline: BTreeSet<NodeName>,
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
    let (answers, quorum) = tokio::join!(asked, quorum_view(nodes));
    let answers: BTreeMap<_, _> = answers.into_iter().collect();
    let keys = newest(&answers);
    let controller = quorum.and_then(|quorum| quorum.leader);
    View { controller, keys, answers }
}

/// By key, the answer with the newest leader epoch.
fn newest(
    answers: &BTreeMap<NodeName, Result<BrokerAnswer, ProbeError>>,
) -> BTreeMap<Key, PartitionView> {
    let mut newest: BTreeMap<Key, PartitionView> = BTreeMap::new();
    for (broker, answer) in answers {
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
    newest
}

async fn ask_broker(node: &NodeSpec, keys: &[Key]) -> Result<BrokerAnswer, ProbeError> {
    let request = metadata_request(keys);
    let response =
        ask(node.address, OBSERVER_PORT, METADATA_VERSIONS, &request, ANSWER_DEADLINE).await?;
    Ok(read_metadata(&response))
}

pub(super) fn metadata_request(keys: &[Key]) -> MetadataRequest {
    let topics: BTreeSet<&str> =
        keys.iter().filter_map(|key| key.split().map(|(topic, _)| topic)).collect();
    let topics = topics
        .into_iter()
        .map(|topic| MetadataRequestTopic::default().with_name(Some(topic_name(topic))))
        .collect();
    MetadataRequest::default().with_topics(Some(topics)).with_allow_auto_topic_creation(false)
}

pub(super) fn read_metadata(response: &MetadataResponse) -> BrokerAnswer {
    let set = |ids: &[BrokerId]| ids.iter().copied().filter_map(name_of).collect();
    let mut keys = BTreeMap::new();
    for topic in &response.topics {
        let Some(name) = &topic.name else { continue };
        for partition in &topic.partitions {
            let view = PartitionView {
                leader: name_of(partition.leader_id),
                leader_epoch: partition.leader_epoch,
                isr: set(&partition.isr_nodes),
                replicas: set(&partition.replica_nodes),
                offline: set(&partition.offline_replicas),
            };
            keys.insert(Key::new(name.0.as_str(), partition.partition_index), view);
        }
    }
    let brokers = response.brokers.iter().filter_map(|broker| name_of(broker.node_id)).collect();
    BrokerAnswer { brokers, keys }
}

/// The node of an id; none for -1, by which Kafka says that there is none.
pub(super) fn name_of(id: BrokerId) -> Option<NodeName> {
    u32::try_from(id.0).ok().filter(|id| *id > 0).map(NodeName::new)
}

pub(crate) fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(leader: u32, leader_epoch: i32, isr: &[u32]) -> BrokerAnswer {
        let view = PartitionView {
            leader: Some(NodeName::new(leader)),
            leader_epoch,
            isr: isr.iter().copied().map(NodeName::new).collect(),
            ..PartitionView::default()
        };
        BrokerAnswer { brokers: BTreeSet::new(), keys: [(Key::from("t-0"), view)].into() }
    }

    fn merged(answers: [Result<BrokerAnswer, ProbeError>; 3]) -> PartitionView {
        let answers = (1..).map(NodeName::new).zip(answers).collect();
        newest(&answers)[&Key::from("t-0")].clone()
    }

    #[test]
    fn the_newest_leader_epoch_wins() {
        let silent = Err(ProbeError::Deadline { address: "n3".into(), waited_ms: 1 });
        let view = merged([Ok(says(1, 4, &[1, 2, 3])), Ok(says(2, 5, &[2, 3])), silent]);
        assert_eq!((view.leader, view.leader_epoch), (Some(NodeName::new(2)), 5));
    }

    #[test]
    fn at_one_epoch_the_leader_is_believed() {
        let view = merged([says(2, 5, &[1, 2]), says(2, 5, &[2]), says(2, 5, &[1, 2, 3])].map(Ok));
        assert_eq!(view.isr, [NodeName::new(2)].into());
        let view = merged([says(1, 5, &[1]), says(1, 5, &[1, 2]), says(1, 5, &[1, 2, 3])].map(Ok));
        assert_eq!(view.isr, [NodeName::new(1)].into());
    }

    #[test]
    fn no_id_is_no_node() {
        assert_eq!(name_of(BrokerId(-1)), None);
        assert_eq!(name_of(BrokerId(2)), Some(NodeName::new(2)));
    }
}
