//! Links that are bad rather than cut: packets late, lost, twice, out of order, spoilt or few at a time. Where a
//! kernel has no netem, packets take a way through the driver (`NFQUEUE`), with the same meaning; so they do everywhere.

mod impairer;
mod impairment;
mod measure;
mod nfqueue;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

pub use impairer::{Done, Impairer};
pub use impairment::Impairment;
pub use measure::Measured;

use super::cut::{Cut, Endpoint};
use super::passage::{self, Seat};
use crate::backend::{Backend, BackendError};
use crate::node::{CLIENT_PORT, NodeName};

/// Which packets of a sender go to these ends, in words of `iptables`.
pub(super) fn matches(
    from: Endpoint,
    to: &BTreeSet<Endpoint>,
    addresses: &BTreeMap<NodeName, Ipv4Addr>,
    driver: Ipv4Addr,
) -> Vec<Vec<String>> {
    let words = |text: String| text.split(' ').map(str::to_owned).collect();
    let mut all = Vec::new();
    for end in to {
        let address = match end {
            Endpoint::Node(node) => addresses.get(node).copied(),
            Endpoint::Clients => Some(driver),
        };
        let Some(address) = address else { continue };
        // Clients are told from probes by the port that they talk to.
        let port = match (from, end) {
            (Endpoint::Clients, _) => "--dport",
            (_, Endpoint::Clients) => "--sport",
            _ => {
                all.push(words(format!("-d {address}/32")));
                continue;
            }
        };
        for protocol in ["tcp", "udp"] {
            all.push(words(format!("-d {address}/32 -p {protocol} {port} {CLIENT_PORT}")));
        }
    }
    all
}

/// What the link does now; none where an end has no network.
///
/// # Errors
/// A socket.
pub(super) async fn look(
    backend: &dyn Backend,
    driver: Ipv4Addr,
    link: Cut,
    asked: &Impairment,
) -> Result<Option<Measured>, BackendError> {
    let failed = |error: std::io::Error| BackendError::Failed {
        context: format!("cannot measure the link {link}"),
        reason: error.to_string(),
    };
    // A port of its own each time: what is still under way of an earlier look does not come here.
    let seat = |end, peer| match (end, peer) {
        (Endpoint::Clients, _) => Seat::Driver,
        (Endpoint::Node(node), Endpoint::Clients) => Seat::Node(node, CLIENT_PORT),
        (Endpoint::Node(node), Endpoint::Node(_)) => Seat::Node(node, 0),
    };
    let from = passage::open(backend, driver, seat(link.from, link.to)).await?;
    let to = passage::open(backend, driver, seat(link.to, link.from)).await?;
    let (Some(from), Some(to)) = (from, to) else { return Ok(None) };
    measure::measure(&from, &to, asked).await.map(Some).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_by_their_port_and_nodes_by_their_address() {
        let node = NodeName::new;
        let addresses = BTreeMap::from([
            (node(1), Ipv4Addr::new(10, 0, 0, 11)),
            (node(2), Ipv4Addr::new(10, 0, 0, 12)),
        ]);
        let driver = Ipv4Addr::new(10, 0, 0, 1);
        let of = |from, to: &[Endpoint]| {
            let to = to.iter().copied().collect();
            let all = matches(from, &to, &addresses, driver);
            all.iter().map(|words| words.join(" ")).collect::<Vec<_>>()
        };
        let (one, two) = (Endpoint::Node(node(1)), Endpoint::Node(node(2)));
        assert_eq!(
            of(one, &[two, Endpoint::Clients]),
            [
                "-d 10.0.0.12/32",
                "-d 10.0.0.1/32 -p tcp --sport 9092",
                "-d 10.0.0.1/32 -p udp --sport 9092"
            ]
        );
        assert_eq!(
            of(Endpoint::Clients, &[one]),
            ["-d 10.0.0.11/32 -p tcp --dport 9092", "-d 10.0.0.11/32 -p udp --dport 9092"]
        );
    }
}
