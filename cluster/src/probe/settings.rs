//! What a node says of its own settings, those included that nobody set.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use kafka_protocol::protocol::StrBytes;
use serde::Serialize;

use super::connection::{ProbeError, ask};
use crate::node::{CONTROLLER_PORT, NodeSpec, OBSERVER_PORT};

const VERSIONS: RangeInclusive<i16> = 1..=4;
const BROKER_RESOURCE: i8 = 4;
const SOURCE_DEFAULT: i8 = 5;

/// One setting in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// None where it is not set and has no default, and where it is a secret.
    pub value: Option<String>,
    /// What it would be if nobody had set it.
    pub default: Option<String>,
    /// Nobody has set it.
    pub is_default: bool,
}

/// Every setting of `node`, by name. A controller is asked at its own port.
///
/// # Errors
/// [`ProbeError`] naming the address.
pub async fn effective_settings(
    node: &NodeSpec,
    deadline: Duration,
) -> Result<BTreeMap<String, Setting>, ProbeError> {
    let port = if node.role.is_broker() { OBSERVER_PORT } else { CONTROLLER_PORT };
    let resource = DescribeConfigsResource::default()
        .with_resource_type(BROKER_RESOURCE)
        .with_resource_name(StrBytes::from_string(node.name.id().to_string()))
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default()
        .with_resources(vec![resource])
        .with_include_synonyms(true);
    let answer = ask(node.address, port, VERSIONS, &request, deadline).await?;
    read(&answer).map_err(|reason| ProbeError::Refused {
        address: format!("{}:{port}", node.address),
        reason,
    })
}

fn read(answer: &DescribeConfigsResponse) -> Result<BTreeMap<String, Setting>, String> {
    let mut settings = BTreeMap::new();
    for result in &answer.results {
        if let Some(error) = ResponseError::try_from_code(result.error_code) {
            let more = result.error_message.as_ref().map_or("", |text| text.as_str());
            return Err(format!("it does not tell its settings: {error}: {more}"));
        }
        for config in &result.configs {
            settings.insert(config.name.to_string(), setting(config));
        }
    }
    Ok(settings)
}

fn setting(config: &DescribeConfigsResourceResult) -> Setting {
    let is_default = config.config_source == SOURCE_DEFAULT;
    let text = |value: &Option<StrBytes>| value.as_ref().map(ToString::to_string);
    // The list goes from what is in force down to what would be without it. The default stands
    // under the setting's own name; synonyms of another name, and another unit, come before it.
    let own = config
        .synonyms
        .iter()
        .find(|synonym| synonym.source == SOURCE_DEFAULT && synonym.name == config.name);
    let value = text(&config.value);
    let default = if is_default { value.clone() } else { own.and_then(|own| text(&own.value)) };
    Setting { value, default, is_default }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::describe_configs_response::{
        DescribeConfigsResult, DescribeConfigsSynonym,
    };

    use super::*;

    fn text(text: &str) -> StrBytes {
        StrBytes::from_string(text.to_owned())
    }

    #[test]
    fn a_setting_comes_with_its_default() {
        let synonym = |value: &str, source| {
            DescribeConfigsSynonym::default()
                .with_name(text("a.ms"))
                .with_value(Some(text(value)))
                .with_source(source)
        };
        let set = DescribeConfigsResourceResult::default()
            .with_name(text("a.ms"))
            .with_value(Some(text("4000")))
            .with_config_source(4)
            .with_synonyms(vec![synonym("4000", 4), synonym("9000", SOURCE_DEFAULT)]);
        let unset = DescribeConfigsResourceResult::default()
            .with_name(text("b"))
            .with_value(Some(text("true")))
            .with_config_source(SOURCE_DEFAULT);
        let result = DescribeConfigsResult::default().with_configs(vec![set, unset]);
        let settings =
            read(&DescribeConfigsResponse::default().with_results(vec![result])).unwrap();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            settings["a.ms"],
            Setting { value: some("4000"), default: some("9000"), is_default: false }
        );
        assert_eq!(
            settings["b"],
            Setting { value: some("true"), default: some("true"), is_default: true }
        );
    }

    #[test]
    fn an_error_is_one() {
        let result = DescribeConfigsResult::default()
            .with_error_code(42)
            .with_error_message(Some(text("unexpected broker id")));
        let error = read(&DescribeConfigsResponse::default().with_results(vec![result]));
        assert!(error.unwrap_err().contains("unexpected broker id"));
    }
}
