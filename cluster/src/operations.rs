//! What operators do to partitions while a cluster works: moved to other brokers, led by the first of
//! their replicas again. Any broker takes it and passes it on to the controller.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use history::Key;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::{AlterPartitionReassignmentsRequest, BrokerId, ElectLeadersRequest};
use tokio::time::sleep;

use crate::node::{NodeName, NodeSpec, OBSERVER_PORT};
use crate::probe::{ask, topic_name};

const REASSIGN_VERSIONS: RangeInclusive<i16> = 0..=0;
const ELECT_VERSIONS: RangeInclusive<i16> = 1..=2;
const ATTEMPT_LIMIT: Duration = Duration::from_secs(5);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(200);
const PREFERRED: i8 = 0;
/// What a broker is told to wait for the controller at most.
const TIMEOUT_MS: i32 = 4_000;

/// What is done to a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// From now on these hold it, the first of them preferred to lead.
    Reassign(Vec<NodeName>),
    /// Its first replica leads, if it is in the ISR.
    ElectPreferred,
}

impl Operation {
    /// Asks for it, at one broker after the other, until one says that it is done or under way.
    ///
    /// # Errors
    /// In words: what was refused for good, or what was said last when `limit` was over.
    pub async fn ask(&self, nodes: &[NodeSpec], key: &Key, limit: Duration) -> Result<(), String> {
        let begun = Instant::now();
        let brokers: Vec<&NodeSpec> = nodes.iter().filter(|node| node.role.is_broker()).collect();
        let mut said = String::from("there is no broker");
        for node in brokers.iter().cycle() {
            match self.ask_one(node, key).await {
                Ok(None) => return Ok(()),
                Ok(Some(error)) if error.is_retriable() => said = format!("{}: {error}", node.name),
                Ok(Some(error)) => return Err(format!("{}: {error}", node.name)),
                Err(error) => said = error,
            }
            if begun.elapsed() > limit {
                break;
            }
            sleep(BETWEEN_ATTEMPTS).await;
        }
        Err(format!("not done within {} ms: {said}", limit.as_millis()))
    }

    /// Nothing, if it was taken; or what the controller says.
    async fn ask_one(&self, node: &NodeSpec, key: &Key) -> Result<Option<ResponseError>, String> {
        let (topic, partition) = key.split().ok_or_else(|| format!("{key} is no partition"))?;
        let (address, port) = (node.address, OBSERVER_PORT);
        let codes: Vec<i16> = match self {
            Self::Reassign(replicas) => {
                let request = reassignment(topic, partition, replicas);
                let answer = ask(address, port, REASSIGN_VERSIONS, &request, ATTEMPT_LIMIT).await;
                let answer = answer.map_err(|error| error.to_string())?;
                let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
                std::iter::once(answer.error_code)
                    .chain(partitions.map(|partition| partition.error_code))
                    .collect()
            }
            Self::ElectPreferred => {
                let partitions = TopicPartitions::default()
                    .with_topic(topic_name(topic))
                    .with_partitions(vec![partition]);
                let request = ElectLeadersRequest::default()
                    .with_election_type(PREFERRED)
                    .with_topic_partitions(Some(vec![partitions]))
                    .with_timeout_ms(TIMEOUT_MS);
                let answer = ask(address, port, ELECT_VERSIONS, &request, ATTEMPT_LIMIT).await;
                let answer = answer.map_err(|error| error.to_string())?;
                let results = answer.replica_election_results.iter();
                std::iter::once(answer.error_code)
                    .chain(results.flat_map(|topic| &topic.partition_result).map(|p| p.error_code))
                    .collect()
            }
        };
        let error = codes.into_iter().find_map(ResponseError::try_from_code);
        // It leads already.
        Ok(error.filter(|error| *error != ResponseError::ElectionNotNeeded))
    }
}

fn reassignment(
    topic: &str,
    partition: i32,
    replicas: &[NodeName],
) -> AlterPartitionReassignmentsRequest {
    let ids = replicas.iter().map(|node| BrokerId(i32::try_from(node.id()).unwrap_or(i32::MAX)));
    let moved = ReassignablePartition::default()
        .with_partition_index(partition)
        .with_replicas(Some(ids.collect()));
    let topic =
        ReassignableTopic::default().with_name(topic_name(topic)).with_partitions(vec![moved]);
    AlterPartitionReassignmentsRequest::default()
        .with_timeout_ms(TIMEOUT_MS)
        .with_topics(vec![topic])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_asked_for_in_their_order() {
        let request = reassignment("t", 3, &[NodeName::new(2), NodeName::new(1)]);
        let moved = &request.topics[0].partitions[0];
        assert_eq!(moved.partition_index, 3);
        assert_eq!(moved.replicas, Some(vec![BrokerId(2), BrokerId(1)]));
    }
}
