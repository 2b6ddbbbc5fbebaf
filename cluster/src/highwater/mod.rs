//! The in-repo broker as a system: this very program, run as `highwater broker`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::kafka::FAULT_FRIENDLY;
use crate::node::{Launch, NodeSpec};
use crate::server_properties::{self, config_file};
use crate::system::{System, SystemError, SystemOptions};

/// Where the program lies in its image.
pub const PROGRAM_IN_IMAGE: &str = "/usr/local/bin/highwater";
/// HTTP, on the address of the node.
pub const ADMIN_PORT: u16 = 9644;

/// What the rig tells Kafka and this broker does not have: what belongs to the JVM, to
/// transactions or to share groups, and one time-out of a quorum that pulls.
const OF_KAFKA_ALONE: [&str; 10] = [
    "controller.quorum.fetch.timeout.ms",
    "log.cleaner.dedupe.buffer.size",
    "num.network.threads",
    "share.coordinator.state.topic.min.isr",
    "share.coordinator.state.topic.num.partitions",
    "share.coordinator.state.topic.replication.factor",
    "transaction.state.log.min.isr",
    "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor",
    "listener.security.protocol.map",
];

/// Where nodes find the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// On the host, under this absolute path.
    OnHost(PathBuf),
    /// In the image that nodes are made from.
    InImage,
}

/// The in-repo broker, with the cluster's choices.
#[derive(Clone, Debug)]
pub struct Highwater {
    program: Program,
    version: String,
    options: SystemOptions,
    cluster_id: String,
}

impl Highwater {
    /// The broker in `program`, of `version`; the cluster's id derives from `seed`.
    pub fn new(
        program: Program,
        version: impl Into<String>,
        options: SystemOptions,
        seed: u64,
    ) -> Self {
        let cluster_id = format!("highwater-{seed}");
        Self { program, version: version.into(), options, cluster_id }
    }
}

impl System for Highwater {
    fn name(&self) -> &'static str {
        "highwater"
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn settings(&self, node: &NodeSpec, all: &[NodeSpec]) -> BTreeMap<String, String> {
        let own = [
            ("cluster.id", self.cluster_id.clone()),
            ("admin.listener", format!("{}:{ADMIN_PORT}", node.address)),
        ];
        let defaults = FAULT_FRIENDLY
            .iter()
            .filter(|default| !(default.is_timeout && self.options.stock_timeouts))
            .filter(|default| !OF_KAFKA_ALONE.contains(&default.key))
            .map(|default| (default.key.to_owned(), default.rig.to_owned()))
            .chain(own.map(|(key, value)| (key.to_owned(), value)));
        server_properties::settings(node, all, defaults, &self.options)
    }

    fn write_config(&self, node: &NodeSpec, all: &[NodeSpec]) -> Result<(), SystemError> {
        server_properties::write(node, &self.settings(node, all))
    }

    fn prepare(&self, _node: &NodeSpec, _all: &[NodeSpec]) -> Vec<Launch> {
        Vec::new()
    }

    fn launch(&self, node: &NodeSpec, _all: &[NodeSpec]) -> Launch {
        let config = config_file(node).display().to_string();
        let run = |program: String| {
            Launch::new([program, "broker".to_owned(), "--config".to_owned(), config])
        };
        match &self.program {
            Program::OnHost(path) => run(path.display().to_string()).reading(path),
            Program::InImage => run(PROGRAM_IN_IMAGE.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::node::{NodeName, Role};

    #[test]
    fn a_node_runs_this_program_with_its_own_file() {
        let node = NodeSpec {
            name: NodeName::new(1),
            role: Role::Combined,
            address: Ipv4Addr::new(10, 0, 0, 11),
            dir: "/run/n1".into(),
        };
        let options = SystemOptions { overrides: BTreeMap::new(), stock_timeouts: false };
        let system = Highwater::new(Program::OnHost("/x/highwater".into()), "0.1.0", options, 7);
        let all = [node.clone()];
        let settings = system.settings(&node, &all);
        assert_eq!(settings["node.id"], "1");
        assert_eq!(settings["admin.listener"], "10.0.0.11:9644");
        assert_eq!(settings["min.insync.replicas"], "1");
        assert!(!settings.contains_key("num.network.threads"));
        assert_eq!(
            system.launch(&node, &all).argv,
            ["/x/highwater", "broker", "--config", "/run/n1/config/server.properties"]
        );
    }
}
