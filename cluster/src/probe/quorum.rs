//! What the controllers say of the metadata log: who leads it, and how far each node has it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use futures_util::future::join_all;
use kafka_protocol::messages::describe_quorum_request::{PartitionData, TopicData};
use kafka_protocol::messages::describe_quorum_response::{
    PartitionData as PartitionAnswer, ReplicaState,
};
use kafka_protocol::messages::{DescribeQuorumRequest, DescribeQuorumResponse};
use serde::Serialize;

use super::connection::ask;
use super::view::{ANSWER_DEADLINE, name_of, topic_name};
use crate::node::{CONTROLLER_PORT, NodeName, NodeSpec};

const VERSIONS: RangeInclusive<i16> = 0..=2;
const METADATA_TOPIC: &str = "__cluster_metadata";

/// The metadata quorum as its leader sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QuorumView {
    /// The active controller.
    pub leader: Option<NodeName>,
    /// Its epoch.
    pub epoch: i32,
    /// Up to where the metadata log is committed.
    pub high_watermark: i64,
    /// Log end offset of every voter; -1 where the leader does not know.
    pub voters: BTreeMap<NodeName, i64>,
    /// The same of every broker that follows without a vote.
    pub observers: BTreeMap<NodeName, i64>,
}

/// Asks every controller at once. Only a leader tells, and of two that hold themselves for the
/// leader the newer epoch counts. `None`: there is no leader, or none that answers.
pub async fn quorum_view(nodes: &[NodeSpec]) -> Option<QuorumView> {
    let partition = PartitionData::default().with_partition_index(0);
    let topic = TopicData::default()
        .with_topic_name(topic_name(METADATA_TOPIC))
        .with_partitions(vec![partition]);
    let request = &DescribeQuorumRequest::default().with_topics(vec![topic]);
    let controllers = nodes.iter().filter(|node| node.role.is_controller());
    let answers = join_all(
        controllers
            .map(|node| ask(node.address, CONTROLLER_PORT, VERSIONS, request, ANSWER_DEADLINE)),
    )
    .await;
    newest(answers.into_iter().flatten())
}

fn newest(answers: impl Iterator<Item = DescribeQuorumResponse>) -> Option<QuorumView> {
    answers
        .filter(|answer| answer.error_code == 0)
        .flat_map(|answer| answer.topics)
        .flat_map(|topic| topic.partitions)
        .filter(|partition| partition.error_code == 0)
        .map(|partition| read(&partition))
        .max_by_key(|view| view.epoch)
}

fn read(partition: &PartitionAnswer) -> QuorumView {
    let ends = |replicas: &[ReplicaState]| {
        replicas
            .iter()
            .filter_map(|replica| Some((name_of(replica.replica_id)?, replica.log_end_offset)))
            .collect()
    };
    QuorumView {
        leader: name_of(partition.leader_id),
        epoch: partition.leader_epoch,
        high_watermark: partition.high_watermark,
        voters: ends(&partition.current_voters),
        observers: ends(&partition.observers),
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::BrokerId;
    use kafka_protocol::messages::describe_quorum_response::TopicData as TopicAnswer;

    use super::*;

    fn answer(leader: i32, epoch: i32, error_code: i16) -> DescribeQuorumResponse {
        let voter =
            |id| ReplicaState::default().with_replica_id(BrokerId(id)).with_log_end_offset(40);
        let partition = PartitionAnswer::default()
            .with_error_code(error_code)
            .with_leader_id(BrokerId(leader))
            .with_leader_epoch(epoch)
            .with_high_watermark(39)
            .with_current_voters(vec![voter(1), voter(2)]);
        let topic = TopicAnswer::default().with_partitions(vec![partition]);
        DescribeQuorumResponse::default().with_topics(vec![topic])
    }

    #[test]
    fn the_newest_leader_counts_and_others_are_not_heard() {
        let not_leader = 6;
        let answers = [answer(1, 3, 0), answer(2, 4, 0), answer(3, 9, not_leader)];
        let view = newest(answers.into_iter()).unwrap();
        assert_eq!((view.leader, view.epoch, view.high_watermark), (Some(NodeName::new(2)), 4, 39));
        assert_eq!(view.voters, [(NodeName::new(1), 40), (NodeName::new(2), 40)].into());
        assert_eq!(newest([answer(3, 9, not_leader)].into_iter()), None);
    }
}
