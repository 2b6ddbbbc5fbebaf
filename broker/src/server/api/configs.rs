//! DescribeConfigs and IncrementalAlterConfigs.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::messages::incremental_alter_configs_request::AlterConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{
    DescribeConfigsRequest, DescribeConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};
use kafka_protocol::protocol::StrBytes;
use replication::controller::configs::{self, Operation};
use replication::metadata::Resource;
use replication::metadata::settings::{self, Kind, SETTINGS, Setting, Source};
use replication::types::NodeId;

use super::controllers::undecided;
use crate::controller::Decided;
use crate::server::dispatch::Arrived;
use crate::server::services::Services;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

/// The number under which a source goes.
const fn source_number(source: Source) -> i8 {
    match source {
        Source::Topic => 1,
        Source::Broker => 2,
        Source::AllBrokers => 3,
        Source::File => 4,
        Source::Default => 5,
    }
}

/// The number under which a kind goes.
const fn kind_number(kind: Kind) -> i8 {
    match kind {
        Kind::Flag => 1,
        Kind::OneOf(_) => 2,
        Kind::Number { most, .. } if most == i32::MAX as i64 => 3,
        Kind::Number { .. } => 5,
        Kind::Share => 6,
        Kind::SomeOf(_) => 7,
    }
}

/// Answers DescribeConfigs.
pub(in crate::server) async fn describe(
    request: DescribeConfigsRequest,
    _arrived: &Arrived,
    services: &Arc<Services>,
) -> DescribeConfigsResponse {
    let results = request.resources.iter().map(|resource| {
        let answer = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        match describe_one(resource, request.include_documentation, services) {
            Ok(configs) => answer.with_configs(configs),
            Err((error, reason)) => {
                answer.with_error_code(error.code()).with_error_message(Some(text(reason)))
            }
        }
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn describe_one(
    resource: &DescribeConfigsResource,
    with_documentation: bool,
    services: &Services,
) -> Result<Vec<DescribeConfigsResourceResult>, (ResponseError, String)> {
    let wanted = |name: &str| {
        resource
            .configuration_keys
            .as_ref()
            .is_none_or(|keys| keys.iter().any(|key| key.as_str() == name))
    };
    let metadata = services.image();
    let image = &metadata.0;
    let config = &services.config;
    let name = resource.resource_name.as_str();
    let is_topic = match resource.resource_type {
        TOPIC if image.topic_by_name(name).is_some() => true,
        TOPIC => return Err((ResponseError::UnknownTopicOrPartition, format!("no topic {name}"))),
        BROKER if name.is_empty() || name == config.node.to_string() => false,
        BROKER => {
            let reason = format!("broker {name} tells of itself; this is {}", config.node);
            return Err((ResponseError::InvalidRequest, reason));
        }
        other => return Err((ResponseError::InvalidRequest, format!("resource type {other}"))),
    };
    // A broker's own settings are what a topic that sets nothing would get.
    let topic = if is_topic { name } else { "" };
    let of = |setting: &Setting| {
        let (value, source) =
            settings::effective(image, &config.topic_defaults, Some(config.node), topic, setting);
        DescribeConfigsResourceResult::default()
            .with_name(text(if is_topic { setting.name } else { setting.broker_name }))
            .with_value(Some(text(value)))
            .with_config_source(source_number(source))
            .with_config_type(kind_number(setting.kind))
            .with_documentation(with_documentation.then(|| text(setting.doc)))
    };
    let mut found: Vec<DescribeConfigsResourceResult> =
        SETTINGS.iter().map(of).filter(|config| wanted(&config.name)).collect();
    if !is_topic {
        let fixed = config
            .told
            .iter()
            .filter(|(name, _)| !settings::is_broker_level_name(name) && wanted(name));
        found.extend(fixed.map(|(name, value)| {
            DescribeConfigsResourceResult::default()
                .with_name(text(name.clone()))
                .with_value(Some(text(value.clone())))
                .with_read_only(true)
                .with_config_source(source_number(Source::File))
        }));
    }
    Ok(found)
}

/// Answers IncrementalAlterConfigs on the active controller.
pub(in crate::server) async fn alter(
    request: IncrementalAlterConfigsRequest,
    _arrived: &Arrived,
    services: &Arc<Services>,
) -> IncrementalAlterConfigsResponse {
    let mut responses = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        let answer = AlterConfigsResourceResponse::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        let outcome = alter_one(&resource, request.validate_only, services).await;
        responses.push(match outcome {
            Ok(()) => answer,
            Err((error, reason)) => {
                answer.with_error_code(error.code()).with_error_message(Some(text(reason)))
            }
        });
    }
    IncrementalAlterConfigsResponse::default().with_responses(responses)
}

async fn alter_one(
    resource: &AlterConfigsResource,
    validate_only: bool,
    services: &Services,
) -> Result<(), (ResponseError, String)> {
    let name = resource.resource_name.to_string();
    let of = match resource.resource_type {
        TOPIC => Resource::Topic(name),
        BROKER if name.is_empty() => Resource::AllBrokers,
        BROKER => match name.parse() {
            Ok(id) => Resource::Broker(NodeId(id)),
            Err(_) => {
                return Err((ResponseError::InvalidRequest, format!("`{name}` is no broker's id")));
            }
        },
        other => return Err((ResponseError::InvalidRequest, format!("resource type {other}"))),
    };
    let mut operations = Vec::with_capacity(resource.configs.len());
    for config in &resource.configs {
        let value = config.value.as_ref().map_or_else(String::new, ToString::to_string);
        let operation = match config.config_operation {
            0 => Operation::Set(value),
            1 => Operation::Delete,
            2 => Operation::Append(value),
            3 => Operation::Subtract(value),
            other => {
                return Err((ResponseError::InvalidRequest, format!("operation {other}")));
            }
        };
        operations.push((config.name.to_string(), operation));
    }
    let unreached = |error: ResponseError| (error, "the controller does not decide".to_owned());
    let controller =
        services.controller.as_ref().ok_or_else(|| unreached(ResponseError::NotController))?;
    let decided = controller
        .decide(move |deciding| match configs::alter(deciding.world, &of, &operations) {
            Ok(_) if validate_only => Decided::nothing(Ok(())),
            Ok(records) => Decided { records, answer: Ok(()) },
            Err(error) => Decided::nothing(Err(error)),
        })
        .await
        .map_err(|no| unreached(undecided(no)))?;
    decided.0.map_err(|error| (super::controllers::code(error.code()), error.reason))
}
