//! What is cut, as data, and the firewall rules that do it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::node::{CLIENT_PORT, NodeName};

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Endpoint {
    /// A node of the cluster.
    Node(NodeName),
    /// Every client of the workload; told apart from others by the port they connect to.
    Clients,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => node.fmt(f),
            Self::Clients => f.write_str("clients"),
        }
    }
}

/// Packets that go one way and shall not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cut {
    /// Who sends.
    pub from: Endpoint,
    /// Who no longer hears it.
    pub to: Endpoint,
}

impl Cut {
    /// Between two nodes, one way.
    pub const fn nodes(from: NodeName, to: NodeName) -> Self {
        Self { from: Endpoint::Node(from), to: Endpoint::Node(to) }
    }

    /// Both ways between two ends.
    pub const fn both(a: Endpoint, b: Endpoint) -> [Self; 2] {
        [Self { from: a, to: b }, Self { from: b, to: a }]
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}->{}", self.from, self.to)
    }
}

/// Our chains; nothing else in the firewall is ever touched.
pub(crate) const CHAINS: [(&str, &str); 2] =
    [("INPUT", "HIGHWATER-IN"), ("OUTPUT", "HIGHWATER-OUT")];

/// The whole content of our chains at `node`, for `iptables-restore --noflush`, which replaces
/// both in one step: at no moment is a cut that shall stay lifted.
///
/// No rule looks at connection state, so connections that stand already are cut too.
pub(crate) fn rules_at(
    node: NodeName,
    cuts: &BTreeSet<Cut>,
    addresses: &BTreeMap<NodeName, Ipv4Addr>,
) -> String {
    let mut text = String::from("*filter\n");
    for (_, chain) in CHAINS {
        let _ = writeln!(text, ":{chain} - [0:0]");
    }
    let here = Endpoint::Node(node);
    for cut in cuts {
        match (cut.from, cut.to) {
            (Endpoint::Node(peer), to) if to == here => {
                if let Some(address) = addresses.get(&peer) {
                    let _ = writeln!(text, "-A HIGHWATER-IN -s {address}/32 -j DROP");
                }
            }
            (Endpoint::Clients, to) if to == here => {
                for protocol in ["tcp", "udp"] {
                    let _ = writeln!(
                        text,
                        "-A HIGHWATER-IN -p {protocol} --dport {CLIENT_PORT} -j DROP"
                    );
                }
            }
            (from, Endpoint::Clients) if from == here => {
                for protocol in ["tcp", "udp"] {
                    let _ = writeln!(
                        text,
                        "-A HIGHWATER-OUT -p {protocol} --sport {CLIENT_PORT} -j DROP"
                    );
                }
            }
            _ => {}
        }
    }
    text.push_str("COMMIT\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> BTreeMap<NodeName, Ipv4Addr> {
        (1..=3)
            .map(|id| (NodeName::new(id), Ipv4Addr::new(10, 0, 0, 10 + u8::try_from(id).unwrap())))
            .collect()
    }

    #[test]
    fn no_cuts_empty_both_chains() {
        let text = rules_at(NodeName::new(1), &BTreeSet::new(), &addresses());
        assert_eq!(text, "*filter\n:HIGHWATER-IN - [0:0]\n:HIGHWATER-OUT - [0:0]\nCOMMIT\n");
    }

    #[test]
    fn a_one_way_cut_is_a_rule_at_the_receiver_only() {
        let cuts = BTreeSet::from([Cut::nodes(NodeName::new(2), NodeName::new(1))]);
        let at_receiver = rules_at(NodeName::new(1), &cuts, &addresses());
        let at_sender = rules_at(NodeName::new(2), &cuts, &addresses());
        assert!(at_receiver.contains("-A HIGHWATER-IN -s 10.0.0.12/32 -j DROP\n"));
        assert!(!at_sender.contains("DROP"));
    }

    #[test]
    fn clients_are_cut_by_their_port_both_ways() {
        let cuts = Cut::both(Endpoint::Clients, Endpoint::Node(NodeName::new(3)));
        let text = rules_at(NodeName::new(3), &BTreeSet::from(cuts), &addresses());
        assert!(text.contains("-A HIGHWATER-IN -p tcp --dport 9092 -j DROP\n"));
        assert!(text.contains("-A HIGHWATER-OUT -p tcp --sport 9092 -j DROP\n"));
        let elsewhere = rules_at(NodeName::new(1), &BTreeSet::from(cuts), &addresses());
        assert!(!elsewhere.contains("DROP"));
    }
}
