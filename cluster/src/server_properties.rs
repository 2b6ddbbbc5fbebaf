//! A node's `server.properties`, as every system here reads it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::node::{BROKER_PORT, CLIENT_PORT, CONTROLLER_PORT, NodeSpec, OBSERVER_PORT, Role};
use crate::system::{SystemError, SystemOptions};

/// Settings that may not exceed the number of brokers.
const AT_MOST_BROKERS: [&str; 5] = [
    "default.replication.factor",
    "min.insync.replicas",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
];
/// Settings that may not exceed the number of brokers, and exist for internal topics only.
const AT_MOST_BROKERS_INTERNAL: [&str; 2] =
    ["transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr"];

/// `defaults`, `node`'s identity and what the user overrides, the latter winning.
pub(crate) fn settings(
    node: &NodeSpec,
    all: &[NodeSpec],
    defaults: impl Iterator<Item = (String, String)>,
    options: &SystemOptions,
) -> BTreeMap<String, String> {
    let brokers = all.iter().filter(|node| node.role.is_broker()).count();
    let mut map: BTreeMap<String, String> = defaults.collect();
    for key in AT_MOST_BROKERS.into_iter().chain(AT_MOST_BROKERS_INTERNAL) {
        if let Some(value) = map.get_mut(key)
            && value.parse::<usize>().is_ok_and(|number| number > brokers)
        {
            *value = brokers.to_string();
        }
    }
    map.extend(identity(node, all).map(|(key, value)| (key.to_owned(), value)));
    map.extend(options.overrides.clone());
    map
}

/// Who `node` is and whom it talks to, in a cluster of `all` nodes.
fn identity(node: &NodeSpec, all: &[NodeSpec]) -> impl Iterator<Item = (&'static str, String)> {
    let address = node.address;
    let at = |name: &str, port: u16| format!("{name}://{address}:{port}");
    let broker_listeners =
        [at("CLIENT", CLIENT_PORT), at("BROKER", BROKER_PORT), at("OBSERVER", OBSERVER_PORT)];
    let controller_listener = at("CONTROLLER", CONTROLLER_PORT);
    let mut listeners: Vec<String> = Vec::new();
    if node.role.is_broker() {
        listeners.extend(broker_listeners);
    }
    if node.role.is_controller() {
        listeners.push(controller_listener);
    }
    let voters: Vec<String> = all
        .iter()
        .filter(|node| node.role.is_controller())
        .map(|node| format!("{}@{}:{CONTROLLER_PORT}", node.name.id(), node.address))
        .collect();
    let roles = match node.role {
        Role::Broker => "broker",
        Role::Controller => "controller",
        Role::Combined => "broker,controller",
    };
    let protocols =
        ["CLIENT", "BROKER", "CONTROLLER", "OBSERVER"].map(|l| format!("{l}:PLAINTEXT"));
    let mut pairs = vec![
        ("process.roles", roles.to_owned()),
        ("node.id", node.name.id().to_string()),
        ("controller.quorum.voters", voters.join(",")),
        ("controller.listener.names", "CONTROLLER".to_owned()),
        ("listener.security.protocol.map", protocols.join(",")),
        ("listeners", listeners.join(",")),
        // What is advertised is what is listened on.
        ("advertised.listeners", listeners.join(",")),
        ("log.dirs", node.data_dir().display().to_string()),
    ];
    if node.role.is_broker() {
        pairs.push(("inter.broker.listener.name", "BROKER".to_owned()));
    }
    pairs.into_iter()
}

/// Writes `settings` as `node`'s `server.properties` below its folder, and makes the folders
/// that it names.
pub(crate) fn write(
    node: &NodeSpec,
    settings: &BTreeMap<String, String>,
) -> Result<(), SystemError> {
    for dir in [node.config_dir(), node.data_dir(), node.logs_dir(), node.dir.join("tmp")] {
        fs::create_dir_all(&dir).map_err(|reason| SystemError::Write {
            node: node.name,
            path: dir.clone(),
            reason,
        })?;
    }
    let path = config_file(node);
    fs::write(&path, properties(settings)).map_err(|reason| SystemError::Write {
        node: node.name,
        path,
        reason,
    })
}

/// Where `node`'s configuration lies.
pub(crate) fn config_file(node: &NodeSpec) -> PathBuf {
    node.config_dir().join("server.properties")
}

/// Java properties, sorted by key.
pub(crate) fn properties(settings: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (key, value) in settings {
        let _ = writeln!(text, "{key}={}", escape(value));
    }
    text
}

/// A backslash begins an escape in a properties file, and a line ends a value.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stays_one_value() {
        let map = BTreeMap::from([("a".to_owned(), "x\\y\nb=c".to_owned())]);
        assert_eq!(properties(&map), "a=x\\\\y\\nb=c\n");
    }
}
