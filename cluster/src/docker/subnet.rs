//! The network of a run: a bridge on a private subnet that nobody else uses.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;

use serde::Deserialize;
use serde_json::{Value, json};

use super::engine::Engine;
use super::engine_error::EngineError;
use crate::backend::BackendError;
use crate::node::NodeName;

/// Bits of the network part: 254 addresses.
const PREFIX_BITS: u8 = 24;
/// Node 1 lives at `.11`; the driver's end of the bridge is `.1`.
const FIRST_NODE: u32 = 10;

/// A block of IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    network: u32,
    prefix_bits: u8,
}

impl Block {
    pub(super) fn new(address: Ipv4Addr, prefix_bits: u8) -> Self {
        let prefix_bits = prefix_bits.min(32);
        Self { network: u32::from(address) & mask(prefix_bits), prefix_bits }
    }

    /// `10.0.0.0/8`; `None` for anything else, IPv6 among it.
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        Some(Self::new(address.parse().ok()?, bits.parse().ok()?))
    }

    fn overlaps(self, other: Self) -> bool {
        let common = mask(self.prefix_bits.min(other.prefix_bits));
        self.network & common == other.network & common
    }

    /// The address under which nodes see the driver.
    pub(super) fn driver(self) -> Ipv4Addr {
        Ipv4Addr::from(self.network + 1)
    }

    /// The address of a node; `None` where the block has no place for it.
    pub(super) fn node(self, node: NodeName) -> Option<Ipv4Addr> {
        let host = FIRST_NODE.checked_add(node.id())?;
        (host < !mask(self.prefix_bits)).then(|| Ipv4Addr::from(self.network + host))
    }

    fn text(self) -> String {
        format!("{}/{}", Ipv4Addr::from(self.network), self.prefix_bits)
    }
}

/// Makes the run's network on the first free block; the block.
///
/// It leads nowhere else: nodes reach each other and the driver.
pub(super) async fn create(
    engine: &Engine,
    name: &str,
    labels: &BTreeMap<String, String>,
) -> Result<Block, BackendError> {
    let taken = taken(engine).await?;
    let free = candidates().filter(|block| !taken.iter().any(|other| block.overlaps(*other)));
    let mut last_refusal = None;
    for block in free {
        let body = json!({
            "Name": name,
            "Driver": "bridge",
            "Internal": true,
            "CheckDuplicate": true,
            "Labels": labels,
            "IPAM": { "Config": [{ "Subnet": block.text(), "Gateway": block.driver() }] },
        });
        match engine.create::<Value>("/networks/create", &[], &body).await {
            Ok(_) => return Ok(block),
            // Someone else took the block in between: "Pool overlaps with other one".
            Err(EngineError::Refused { status, message, .. }) if message.contains("overlap") => {
                last_refusal = Some(format!("{message} (status {status})"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(BackendError::Failed {
        context: "cannot make a network for the containers".into(),
        reason: last_refusal.unwrap_or_else(|| {
            "every private subnet that may be used is taken by a route or another network; \
             remove networks that are not needed (docker network prune)"
                .into()
        }),
    })
}

/// Blocks to choose from, all private.
fn candidates() -> impl Iterator<Item = Block> {
    let ranges = [[10, 118], [172, 30], [192, 168]];
    ranges.into_iter().flat_map(|[first, second]| {
        (0..=255)
            .rev()
            .map(move |third| Block::new(Ipv4Addr::new(first, second, third, 0), PREFIX_BITS))
    })
}

/// Blocks in use: by the engine's networks, and by routes of this machine.
async fn taken(engine: &Engine) -> Result<Vec<Block>, EngineError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Found {
        #[serde(rename = "IPAM", default)]
        ipam: Ipam,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Ipam {
        #[serde(default)]
        config: Option<Vec<Pool>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Pool {
        #[serde(default)]
        subnet: String,
    }
    let networks: Vec<Found> = engine.get("/networks", &[]).await?;
    let pools = networks.into_iter().flat_map(|network| network.ipam.config.unwrap_or_default());
    let mut blocks: Vec<Block> = pools.filter_map(|pool| Block::parse(&pool.subnet)).collect();
    blocks.extend(routes(&fs::read_to_string("/proc/net/route").unwrap_or_default()));
    Ok(blocks)
}

/// The destinations in `/proc/net/route`; the default route claims nothing.
fn routes(table: &str) -> Vec<Block> {
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let hexadecimal =
            |field: usize| Some(u32::from_str_radix(fields.get(field)?, 16).ok()?.swap_bytes());
        let (destination, netmask) = (hexadecimal(1)?, hexadecimal(7)?);
        let bits = u8::try_from(netmask.leading_ones()).ok()?;
        (bits > 0).then(|| Block::new(Ipv4Addr::from(destination), bits))
    };
    table.lines().skip(1).filter_map(parse).collect()
}

const fn mask(prefix_bits: u8) -> u32 {
    match prefix_bits {
        0 => 0,
        bits => u32::MAX << (32 - bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> Block {
        Block::parse(text).unwrap()
    }

    #[test]
    fn overlaps_are_seen_both_ways() {
        for (a, b, overlap) in [
            ("10.118.1.0/24", "10.0.0.0/8", true),
            ("10.118.1.0/24", "10.118.1.128/25", true),
            ("10.118.1.0/24", "10.118.2.0/24", false),
            ("10.118.1.0/24", "172.17.0.0/16", false),
            ("10.118.1.0/24", "0.0.0.0/0", true),
        ] {
            assert_eq!(block(a).overlaps(block(b)), overlap, "{a} {b}");
            assert_eq!(block(b).overlaps(block(a)), overlap, "{b} {a}");
        }
        assert_eq!(Block::parse("fd00::/8"), None);
    }

    #[test]
    fn nodes_get_addresses_of_the_block() {
        let block = block("10.118.7.0/24");
        assert_eq!(block.driver(), Ipv4Addr::new(10, 118, 7, 1));
        assert_eq!(block.node(NodeName::new(1)), Some(Ipv4Addr::new(10, 118, 7, 11)));
        assert_eq!(block.node(NodeName::new(244)), Some(Ipv4Addr::new(10, 118, 7, 254)));
        assert_eq!(block.node(NodeName::new(245)), None, "broadcast");
        assert_eq!(block.node(NodeName::new(u32::MAX)), None);
    }

    #[test]
    fn routes_are_read_and_the_default_route_is_not_one() {
        let table = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
                     eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\n\
                     br0\t0001760A\t00000000\t0001\t0\t0\t0\t00FFFFFF\n";
        assert_eq!(routes(table), [block("10.118.1.0/24")]);
        assert!(routes("").is_empty());
    }
}
