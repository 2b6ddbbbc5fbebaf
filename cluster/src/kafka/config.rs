//! A node's `server.properties`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::kafka::defaults::FAULT_FRIENDLY;
use crate::node::{BROKER_PORT, CLIENT_PORT, CONTROLLER_PORT, NodeSpec, OBSERVER_PORT, Role};

/// What a user may choose about a cluster's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaOptions {
    /// Settings of every node that win over all others.
    pub overrides: BTreeMap<String, String>,
    /// Keep Kafka's own time-outs.
    pub stock_timeouts: bool,
}

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

/// Every setting that the rig gives to `node` in a cluster of `all` nodes.
pub(super) fn settings(
    node: &NodeSpec,
    all: &[NodeSpec],
    options: &KafkaOptions,
) -> BTreeMap<String, String> {
    let brokers = all.iter().filter(|node| node.role.is_broker()).count();
    let mut map: BTreeMap<String, String> = FAULT_FRIENDLY
        .iter()
        .filter(|default| !(default.is_timeout && options.stock_timeouts))
        .map(|default| (default.key.to_owned(), default.rig.to_owned()))
        .collect();
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

/// Java properties, sorted by key.
pub(super) fn properties(settings: &BTreeMap<String, String>) -> String {
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
    use std::net::Ipv4Addr;

    use super::*;
    use crate::node::NodeName;

    fn nodes(roles: &[Role]) -> Vec<NodeSpec> {
        roles
            .iter()
            .zip(1..)
            .map(|(role, id)| NodeSpec {
                name: NodeName::new(id),
                role: *role,
                address: Ipv4Addr::new(10, 0, 0, 10 + u8::try_from(id).unwrap()),
                dir: format!("/run/n{id}").into(),
            })
            .collect()
    }

    fn options() -> KafkaOptions {
        KafkaOptions { overrides: BTreeMap::new(), stock_timeouts: false }
    }

    #[test]
    fn a_combined_node_listens_for_everyone() {
        let all = nodes(&[Role::Combined; 3]);
        let map = settings(&all[1], &all, &options());
        assert_eq!(map["process.roles"], "broker,controller");
        assert_eq!(
            map["listeners"],
            "CLIENT://10.0.0.12:9092,BROKER://10.0.0.12:9091,OBSERVER://10.0.0.12:9094,CONTROLLER://10.0.0.12:9093"
        );
        assert_eq!(
            map["controller.quorum.voters"],
            "1@10.0.0.11:9093,2@10.0.0.12:9093,3@10.0.0.13:9093"
        );
        assert_eq!(map["log.dirs"], "/run/n2/data");
        assert_eq!(map["min.insync.replicas"], "2");
    }

    #[test]
    fn separate_roles_listen_for_their_own() {
        let all = nodes(&[Role::Broker, Role::Controller]);
        let broker = settings(&all[0], &all, &options());
        let controller = settings(&all[1], &all, &options());
        assert_eq!(broker["controller.quorum.voters"], "2@10.0.0.12:9093");
        assert!(!broker["listeners"].contains("CONTROLLER"));
        assert_eq!(controller["listeners"], "CONTROLLER://10.0.0.12:9093");
        assert!(!controller.contains_key("inter.broker.listener.name"));
        assert_eq!(broker["default.replication.factor"], "1");
        assert_eq!(broker["min.insync.replicas"], "1");
    }

    #[test]
    fn overrides_win_and_stock_timeouts_leave_kafkas_own() {
        let all = nodes(&[Role::Combined; 3]);
        let mut options = options();
        options.stock_timeouts = true;
        options.overrides.insert("min.insync.replicas".into(), "1".into());
        let map = settings(&all[0], &all, &options);
        assert_eq!(map["min.insync.replicas"], "1");
        assert!(!map.contains_key("broker.session.timeout.ms"));
        assert!(map.contains_key("offsets.topic.num.partitions"));
    }

    #[test]
    fn a_value_stays_one_value() {
        let map = BTreeMap::from([("a".to_owned(), "x\\y\nb=c".to_owned())]);
        assert_eq!(properties(&map), "a=x\\\\y\\nb=c\n");
    }

    /// Compares with a file below `tests/golden`; `UPDATE_GOLDEN=1` writes it.
    fn golden(name: &str, settings: &BTreeMap<String, String>) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
        let text = properties(settings);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, golden, "{name} differs; run with UPDATE_GOLDEN=1, and look at the diff");
    }

    #[test]
    fn files_are_written_as_they_were() {
        let combined = nodes(&[Role::Combined; 3]);
        golden("kafka-combined.properties", &settings(&combined[1], &combined, &options()));
        let apart = nodes(&[Role::Broker, Role::Broker, Role::Broker, Role::Controller]);
        golden("kafka-broker.properties", &settings(&apart[0], &apart, &options()));
        golden("kafka-controller.properties", &settings(&apart[3], &apart, &options()));
        let mut stock = options();
        stock.stock_timeouts = true;
        stock.overrides = [("log.segment.bytes".into(), "1048576".into())].into();
        golden("kafka-stock-timeouts.properties", &settings(&combined[0], &combined, &stock));
    }
}
