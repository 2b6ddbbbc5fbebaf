//! Topics that a broker asks for by itself: the one of groups, and those that clients name.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::error::ParseResponseErrorCode;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::{CreateTopicsRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

use crate::server::services::{OFFSETS_TOPIC, Services};

const VERSION: i16 = 7;
const LIMIT: Duration = Duration::from_secs(5);

/// Asks the controller for a topic; one that is there already is as good.
///
/// # Errors
/// What the controller said.
pub(super) async fn create(
    services: &Arc<Services>,
    name: &str,
    partitions: i32,
    replication_factor: i16,
    settings: &[(&str, &str)],
) -> Result<(), String> {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let configs = settings.iter().map(|(name, value)| {
        CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
    });
    let topic = CreatableTopic::default()
        .with_name(TopicName(text(name)))
        .with_num_partitions(partitions)
        .with_replication_factor(replication_factor)
        .with_configs(configs.collect());
    let request = CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(i32::try_from(LIMIT.as_millis()).unwrap_or(i32::MAX));
    let response = services
        .controllers
        .ask(VERSION, &request, LIMIT)
        .await
        .map_err(|error| error.to_string())?;
    let result = response.topics.first().ok_or("an answer without the topic")?;
    match result.error_code.err() {
        None | Some(ResponseError::TopicAlreadyExists) => Ok(()),
        Some(error) => Err(match &result.error_message {
            Some(message) => format!("{error:?}: {message}"),
            None => format!("{error:?}"),
        }),
    }
}

/// Asks for the topic of groups.
///
/// # Errors
/// What the controller said.
pub(super) async fn create_offsets_topic(services: &Arc<Services>) -> Result<(), String> {
    let settings = [
        ("cleanup.policy", "compact"),
        ("segment.bytes", "104857600"),
        ("compression.type", "producer"),
    ];
    let brokers = services.image().0.brokers().filter(|broker| !broker.fenced).count();
    let wanted = services.config.offsets_topic_replication_factor;
    let possible = i16::try_from(brokers).unwrap_or(i16::MAX);
    if possible < wanted {
        return Err(format!(
            "offsets.topic.replication.factor is {wanted}, and {possible} brokers serve"
        ));
    }
    create(services, OFFSETS_TOPIC, services.config.offsets_topic_partitions, wanted, &settings)
        .await
}
