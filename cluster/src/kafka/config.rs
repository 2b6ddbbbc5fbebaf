//! A node's `server.properties`.

use std::collections::BTreeMap;

use crate::kafka::defaults::FAULT_FRIENDLY;
use crate::node::NodeSpec;
use crate::server_properties;
use crate::system::SystemOptions;

/// Every setting that the rig gives to `node` in a cluster of `all` nodes.
pub(super) fn settings(
    node: &NodeSpec,
    all: &[NodeSpec],
    options: &SystemOptions,
) -> BTreeMap<String, String> {
    let defaults = FAULT_FRIENDLY
        .iter()
        .filter(|default| !(default.is_timeout && options.stock_timeouts))
        .map(|default| (default.key.to_owned(), default.rig.to_owned()));
    server_properties::settings(node, all, defaults, options)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::node::{NodeName, Role};
    use crate::server_properties::properties;

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

    fn options() -> SystemOptions {
        SystemOptions { overrides: BTreeMap::new(), stock_timeouts: false }
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
