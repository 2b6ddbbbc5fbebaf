//! Settings change while the cluster runs (KIP-339).

use crate::controller::{ControllerError, ErrorKind, World};
use crate::metadata::settings::{self, Kind, Setting};
use crate::metadata::{Record, Resource};

/// What is done to a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It becomes this.
    Set(String),
    /// It is not set any more.
    Delete,
    /// A list gets more.
    Append(String),
    /// A list gets less.
    Subtract(String),
}

/// Changes settings of one resource: all of them, or none.
///
/// # Errors
/// Kafka's: no such resource, no such setting, a value that it may not have.
pub fn alter(
    world: World<'_>,
    resource: &Resource,
    operations: &[(String, Operation)],
) -> Result<Vec<Record>, ControllerError> {
    match resource {
        Resource::Topic(name) if world.image.topic_by_name(name).is_none() => {
            return Err(ControllerError::new(
                ErrorKind::UnknownTopicOrPartition,
                format!("no topic {name}"),
            ));
        }
        Resource::Broker(id) if world.image.broker(*id).is_none() => {
            return Err(ControllerError::new(
                ErrorKind::BrokerIdNotRegistered,
                format!("broker {id} is not registered"),
            ));
        }
        _ => {}
    }
    // Taking away what is not set changes nothing, whether there is such a setting or not: tools
    // clear what may be left behind.
    let is_in_vain = |(name, operation): &&(String, Operation)| {
        *operation == Operation::Delete && world.image.setting(resource, name).is_none()
    };
    operations
        .iter()
        .filter(|operation| !is_in_vain(operation))
        .map(|(name, operation)| {
            let setting = setting_of(resource, name)?;
            let value = value_after(world, resource, name, setting, operation)?;
            Ok(Record::Setting { resource: resource.clone(), name: name.clone(), value })
        })
        .collect()
}

fn setting_of(resource: &Resource, name: &str) -> Result<&'static Setting, ControllerError> {
    let found = match resource {
        Resource::Topic(_) => settings::find(name),
        Resource::Broker(_) | Resource::AllBrokers => settings::find_by_broker_name(name),
    };
    found.ok_or_else(|| {
        ControllerError::new(
            ErrorKind::InvalidConfig,
            format!("{name} is not a setting that can be changed here"),
        )
    })
}

fn value_after(
    world: World<'_>,
    resource: &Resource,
    name: &str,
    setting: &Setting,
    operation: &Operation,
) -> Result<Option<String>, ControllerError> {
    let invalid = |reason: String| ControllerError::new(ErrorKind::InvalidConfig, reason);
    let is_list = matches!(setting.kind, Kind::SomeOf(_));
    let now = || {
        let value = world.image.setting(resource, name).unwrap_or(setting.default);
        value.split(',').map(|part| part.trim().to_owned()).collect::<Vec<String>>()
    };
    let value = match operation {
        Operation::Delete => return Ok(None),
        Operation::Set(value) => value.clone(),
        Operation::Append(_) | Operation::Subtract(_) if !is_list => {
            return Err(ControllerError::new(
                ErrorKind::InvalidConfig,
                format!("{name} is not a list"),
            ));
        }
        Operation::Append(more) => {
            let mut parts = now();
            for part in more.split(',').map(str::trim) {
                if !parts.iter().any(|known| known == part) {
                    parts.push(part.to_owned());
                }
            }
            parts.join(",")
        }
        Operation::Subtract(less) => {
            let mut parts = now();
            parts.retain(|part| !less.split(',').any(|gone| gone.trim() == part));
            parts.join(",")
        }
    };
    setting.check(&value).map_err(invalid)?;
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::testing::Cluster;
    use crate::types::NodeId;

    fn topic() -> Resource {
        Resource::Topic("t".to_owned())
    }

    fn one(
        cluster: &Cluster,
        resource: &Resource,
        name: &str,
        operation: Operation,
    ) -> Result<Vec<Record>, ControllerError> {
        alter(cluster.world(), resource, &[(name.to_owned(), operation)])
    }

    #[test]
    fn values_are_set_extended_and_taken_back() {
        let mut cluster = Cluster::of(1).with_topic("t", &[&[1]]);
        let now = |cluster: &Cluster| {
            cluster.image().setting(&topic(), "cleanup.policy").map(str::to_owned)
        };
        let append = Operation::Append("compact".to_owned());
        cluster.apply(&one(&cluster, &topic(), "cleanup.policy", append).unwrap());
        assert_eq!(now(&cluster).as_deref(), Some("delete,compact"));
        let subtract = Operation::Subtract("delete".to_owned());
        cluster.apply(&one(&cluster, &topic(), "cleanup.policy", subtract).unwrap());
        assert_eq!(now(&cluster).as_deref(), Some("compact"));
        cluster.apply(&one(&cluster, &topic(), "cleanup.policy", Operation::Delete).unwrap());
        assert_eq!(now(&cluster), None);
    }

    /// kafka-reassign-partitions clears throttles that this broker does not have.
    #[test]
    fn what_is_not_set_can_be_taken_away() {
        let cluster = Cluster::of(1).with_topic("t", &[&[1]]);
        for name in ["retention.ms", "leader.replication.throttled.replicas"] {
            assert_eq!(one(&cluster, &topic(), name, Operation::Delete).unwrap(), []);
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let cluster = Cluster::of(1).with_topic("t", &[&[1]]);
        let set = |value: &str| Operation::Set(value.to_owned());
        let kind = |resource: &Resource, name: &str, operation: Operation| {
            one(&cluster, resource, name, operation).unwrap_err().kind
        };
        assert_eq!(kind(&topic(), "no.such", set("1")), ErrorKind::InvalidConfig);
        assert_eq!(kind(&topic(), "retention.ms", set("-2")), ErrorKind::InvalidConfig);
        let append = Operation::Append("1".to_owned());
        assert_eq!(kind(&topic(), "retention.ms", append), ErrorKind::InvalidConfig);
        let other = Resource::Topic("x".to_owned());
        assert_eq!(kind(&other, "retention.ms", set("1")), ErrorKind::UnknownTopicOrPartition);
        let broker = Resource::Broker(NodeId(9));
        assert_eq!(kind(&broker, "log.retention.ms", set("1")), ErrorKind::BrokerIdNotRegistered);
        assert!(one(&cluster, &Resource::AllBrokers, "log.retention.ms", set("1")).is_ok());
    }
}
