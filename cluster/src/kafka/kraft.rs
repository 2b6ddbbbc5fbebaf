//! How a Kafka node's disk is prepared and how it is started.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::kafka::config::settings;
use crate::kafka::distribution::Distribution;
use crate::node::{Launch, NodeSpec};
use crate::server_properties::{self, config_file};
use crate::system::{System, SystemError, SystemOptions};

/// Heap of a broker: three share a small machine, and none has much to hold.
pub(super) const HEAP: [&str; 2] = ["-Xms256m", "-Xmx512m"];
/// What makes JVMs cheap that live for a minute or two: one garbage collector thread, the quick
/// compiler only, and no shared-memory file named after a pid (in pid namespaces of their own all
/// nodes are number 1).
pub(super) const JVM: [&str; 3] =
    ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"];
/// What a node's log says and where, the same for all.
pub(super) const LOG_CONFIG: &str = include_str!("../../../docker/kafka/log4j2.properties");

/// The in-repo broker's name for KIP-966, by which it can be switched off in both systems.
const ELR: &str = "eligible.leader.replicas.enable";

/// Apache Kafka of one distribution, with the cluster's choices.
#[derive(Clone, Debug)]
pub struct Kafka {
    distribution: Distribution,
    options: SystemOptions,
    cluster_id: String,
}

impl Kafka {
    /// Kafka from `distribution`; the cluster's id derives from `seed`.
    pub fn new(distribution: Distribution, options: SystemOptions, seed: u64) -> Self {
        Self { distribution, options, cluster_id: cluster_id(seed) }
    }

    fn log_config_file(node: &NodeSpec) -> PathBuf {
        node.config_dir().join("log4j2.properties")
    }

    fn java(&self, node: &NodeSpec, flags: &[&str], class: &str, arguments: &[&str]) -> Launch {
        let mut argv = vec![self.distribution.java.clone()];
        argv.extend(flags.iter().map(|flag| (*flag).to_owned()));
        argv.extend(self.distribution.jvm_flags.iter().cloned());
        argv.push(format!("-Djava.io.tmpdir={}", node.dir.join("tmp").display()));
        argv.push(format!("-Dlog4j2.configurationFile={}", Self::log_config_file(node).display()));
        argv.push("-cp".to_owned());
        argv.push(self.distribution.classpath.clone());
        argv.push(class.to_owned());
        argv.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let mut launch = Launch::new(argv);
        launch.read_only.clone_from(&self.distribution.needs);
        launch
    }
}

impl System for Kafka {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn version(&self) -> &str {
        &self.distribution.version
    }

    fn settings(&self, node: &NodeSpec, all: &[NodeSpec]) -> BTreeMap<String, String> {
        let mut settings = settings(node, all, &self.options);
        settings.remove(ELR);
        settings
    }

    fn write_config(&self, node: &NodeSpec, all: &[NodeSpec]) -> Result<(), SystemError> {
        server_properties::write(node, &self.settings(node, all))?;
        let path = Self::log_config_file(node);
        fs::write(&path, LOG_CONFIG).map_err(|reason| SystemError::Write {
            node: node.name,
            path,
            reason,
        })
    }

    fn prepare(&self, node: &NodeSpec, _all: &[NodeSpec]) -> Vec<Launch> {
        let config = config_file(node).display().to_string();
        let mut arguments = vec!["format", "-t", &self.cluster_id, "-c", &config];
        // A feature of the cluster, given to it when it is made; no setting of a node's.
        if self.options.overrides.get(ELR).is_some_and(|on| on == "false") {
            arguments.extend(["--feature", "eligible.leader.replicas.version=0"]);
        }
        let flags = [JVM.as_slice(), &["-Xmx128m"]].concat();
        vec![self.java(node, &flags, "kafka.tools.StorageTool", &arguments)]
    }

    fn launch(&self, node: &NodeSpec, _all: &[NodeSpec]) -> Launch {
        let config = config_file(node).display().to_string();
        let flags = [JVM.as_slice(), &HEAP].concat();
        self.java(node, &flags, "kafka.Kafka", &[&config])
    }
}

/// A cluster id is 16 bytes in URL-safe base64; the same seed gives the same one.
fn cluster_id(seed: u64) -> String {
    use sha2::{Digest, Sha256};
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let hash = Sha256::digest(format!("highwater cluster {seed}"));
    let bits = |index: usize| {
        // 22 digits of 6 bits cover 128 bits; the last digit has 4 bits of padding.
        (0..6).fold(0_u8, |digit, bit| {
            let at = index * 6 + bit;
            let set = at < 128 && hash[at / 8] & (0x80 >> (at % 8)) != 0;
            digit << 1 | u8::from(set)
        })
    };
    let id: String = (0..22).map(|index| char::from(ALPHABET[usize::from(bits(index))])).collect();
    // Kafka's tools read an id that begins with a dash as a flag.
    if id.starts_with('-') { cluster_id(seed.wrapping_add(1 << 63).wrapping_add(1)) } else { id }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_id_is_sixteen_bytes_and_follows_the_seed() {
        for seed in 0..200 {
            let id = cluster_id(seed);
            assert_eq!(id.len(), 22);
            assert!(!id.starts_with('-'), "{id}");
            assert!("AQgw".contains(id.chars().last().unwrap()), "{id} has no clean padding");
            assert_eq!(id, cluster_id(seed));
        }
        assert_ne!(cluster_id(1), cluster_id(2));
    }
}
