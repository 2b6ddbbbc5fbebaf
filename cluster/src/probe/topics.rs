//! Making the topics of a run.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::CreateTopicsRequest;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::protocol::StrBytes;
use tokio::time::sleep;

use super::connection::ask;
use super::view::topic_name;
use crate::node::{NodeSpec, OBSERVER_PORT};

const VERSIONS: RangeInclusive<i16> = 5..=7;
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(10);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(200);

/// A topic to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSpec {
    /// Its name.
    pub name: String,
    /// Number of partitions.
    pub partitions: i32,
    /// Replicas of each.
    pub replication_factor: i16,
    /// Settings of the topic.
    pub config: BTreeMap<String, String>,
}

/// Makes `topics`, whichever broker takes the request; one that exists already is fine.
///
/// # Errors
/// In words: what was refused for good, or what the brokers said last when `deadline` passed.
pub async fn create_topics(
    nodes: &[NodeSpec],
    topics: &[TopicSpec],
    deadline: Duration,
) -> Result<(), String> {
    let begun = Instant::now();
    let request = request(topics);
    let brokers: Vec<&NodeSpec> = nodes.iter().filter(|node| node.role.is_broker()).collect();
    let mut said = String::from("there is no broker");
    for node in brokers.iter().cycle() {
        match ask(node.address, OBSERVER_PORT, VERSIONS, &request, ATTEMPT_DEADLINE).await {
            Ok(response) => {
                let mut wait = false;
                for topic in &response.topics {
                    let name = topic.name.0.as_str();
                    let message = topic.error_message.as_ref().map_or("", |text| text.as_str());
                    match ResponseError::try_from_code(topic.error_code) {
                        None | Some(ResponseError::TopicAlreadyExists) => {}
                        // Brokers register one after the other.
                        Some(error)
                            if error.is_retriable()
                                || error == ResponseError::InvalidReplicationFactor =>
                        {
                            wait = true;
                            said = format!("topic {name}: {error}: {message}");
                        }
                        Some(error) => {
                            return Err(format!("topic {name} is refused: {error}: {message}"));
                        }
                    }
                }
                if !wait {
                    return Ok(());
                }
            }
            Err(error) => said = error.to_string(),
        }
        if begun.elapsed() > deadline {
            break;
        }
        sleep(BETWEEN_ATTEMPTS).await;
    }
    Err(format!(
        "gave up after {} ms waiting for the topics to be made; last: {said}",
        begun.elapsed().as_millis()
    ))
}

fn request(topics: &[TopicSpec]) -> CreateTopicsRequest {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let topics = topics
        .iter()
        .map(|topic| {
            let configs = topic.config.iter().map(|(key, value)| {
                CreatableTopicConfig::default().with_name(text(key)).with_value(Some(text(value)))
            });
            CreatableTopic::default()
                .with_name(topic_name(&topic.name))
                .with_num_partitions(topic.partitions)
                .with_replication_factor(topic.replication_factor)
                .with_configs(configs.collect())
        })
        .collect();
    CreateTopicsRequest::default().with_topics(topics).with_timeout_ms(8_000)
}
