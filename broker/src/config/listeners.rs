//! Addresses, as properties write them.

use std::collections::BTreeMap;
use std::fmt;

use replication::types::NodeId;

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl HostPort {
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some(Self { host: host.to_owned(), port: port.parse().ok()? })
    }
}

/// A named address: who connects there is told apart by the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// `CLIENT`, `BROKER`, …
    pub name: String,
    /// Where.
    pub address: HostPort,
}

const LISTENERS: &str = "NAME://host:port, several separated by commas, each name once";
const VOTERS: &str = "id@host:port, several separated by commas, each id once";

/// `CLIENT://10.0.0.12:9092,BROKER://10.0.0.12:9091`.
pub(super) fn listeners(text: &str) -> Result<Vec<Listener>, &'static str> {
    let mut found: Vec<Listener> = Vec::new();
    for part in text.split(',') {
        let (name, address) = part.trim().split_once("://").ok_or(LISTENERS)?;
        let address = HostPort::parse(address).ok_or(LISTENERS)?;
        if name.is_empty() || found.iter().any(|listener| listener.name == name) {
            return Err(LISTENERS);
        }
        found.push(Listener { name: name.to_owned(), address });
    }
    Ok(found)
}

/// `1@10.0.0.11:9093,2@10.0.0.12:9093`.
pub(super) fn voters(text: &str) -> Result<BTreeMap<NodeId, HostPort>, &'static str> {
    let mut found = BTreeMap::new();
    for part in text.split(',') {
        let (id, address) = part.trim().split_once('@').ok_or(VOTERS)?;
        let id = id.parse().ok().filter(|id| *id >= 0).ok_or(VOTERS)?;
        let address = HostPort::parse(address).ok_or(VOTERS)?;
        if address.host.is_empty() || found.insert(NodeId(id), address).is_some() {
            return Err(VOTERS);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_nonsense_is_not() {
        assert_eq!(HostPort::parse("[::1]:9092").unwrap().to_string(), "[::1]:9092");
        assert_eq!(HostPort::parse("h:9092").unwrap().to_string(), "h:9092");
        for bad in ["", "CLIENT", "CLIENT://h", "CLIENT://h:x", "A://h:1,A://h:2", "A://h:99999"] {
            assert!(listeners(bad).is_err(), "{bad}");
        }
        for bad in ["", "1@h", "x@h:1", "1@h:1,1@g:2", "-1@h:1", "1@:5"] {
            assert!(voters(bad).is_err(), "{bad}");
        }
    }
}
