//! Do packets pass? Measured with real datagrams between sockets in the nodes' own network
//! namespaces, so that neither a dead process nor a busy one looks like a cut.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::cut::{Cut, Endpoint};
use crate::backend::{Backend, BackendError};
use crate::node::{CLIENT_PORT, NodeName};

/// Datagrams of probes between nodes go here; no service listens on it.
const PROBE_PORT: u16 = 9097;
/// Between two tries on a link. Delivery on one machine takes microseconds.
const RESEND_EVERY: Duration = Duration::from_millis(25);
/// A link on which nothing arrived for this long, over several tries, is cut.
const SILENCE: Duration = Duration::from_millis(150);

/// What was seen on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A datagram arrived.
    Arrived,
    /// None did.
    Silent,
    /// An end has no network now (a container that does not run).
    NoNetwork,
}

/// Where a probe's socket lies: nodes have one for each port that rules tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Seat {
    Node(NodeName, u16),
    Driver,
}

/// Sends on every link of `links` until each has been heard or all is silent for long enough.
///
/// With `patience`, the links shall pass: returns as soon as all were heard, or when it ends.
/// Without, they shall be silent, and are listened to for [`SILENCE`].
pub(super) async fn measure(
    backend: &dyn Backend,
    driver: Ipv4Addr,
    links: &BTreeSet<Cut>,
    patience: Option<Duration>,
) -> Result<BTreeMap<Cut, Seen>, BackendError> {
    let mut sockets: BTreeMap<Seat, Option<Arc<UdpSocket>>> = BTreeMap::new();
    for link in links {
        for seat in [sender_seat(link), receiver_seat(link)] {
            if let Entry::Vacant(entry) = sockets.entry(seat) {
                entry.insert(open(backend, driver, seat).await?);
            }
        }
    }
    let mut seen = BTreeMap::new();
    let mut routes = Vec::new();
    for link in links {
        let ends = (&sockets[&sender_seat(link)], &sockets[&receiver_seat(link)]);
        match ends {
            (Some(from), Some(to)) => {
                let target = to.local_addr().map_err(|error| failed(link, &error))?;
                routes.push((*link, Arc::clone(from), target));
                seen.insert(*link, Seen::Silent);
            }
            _ => {
                seen.insert(*link, Seen::NoNetwork);
            }
        }
    }
    let until = Instant::now() + patience.unwrap_or(SILENCE);
    let listeners = sockets.into_values().flatten().collect();
    for index in exchange(&routes, listeners, until, patience.is_some()).await {
        if let Some((link, ..)) = routes.get(index) {
            seen.insert(*link, Seen::Arrived);
        }
    }
    Ok(seen)
}

type Route = (Cut, Arc<UdpSocket>, SocketAddr);

/// The indices of the routes on which something arrived.
async fn exchange(
    routes: &[Route],
    listeners: Vec<Arc<UdpSocket>>,
    until: Instant,
    stop_when_all_heard: bool,
) -> BTreeSet<usize> {
    let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for socket in listeners {
        let sender = sender.clone();
        tasks.spawn(async move {
            let mut buffer = [0_u8; 8];
            while let Ok(length) = socket.recv(&mut buffer).await {
                if length == buffer.len() && sender.send(u64::from_be_bytes(buffer)).is_err() {
                    return;
                }
            }
        });
    }
    let mut arrived = BTreeSet::new();
    while Instant::now() < until && !routes.is_empty() {
        for (index, (_, socket, target)) in routes.iter().enumerate() {
            // A local refusal (EPERM from an output rule) is a cut like any other.
            let _ = socket.try_send_to(&(index as u64).to_be_bytes(), *target);
        }
        let round = (Instant::now() + RESEND_EVERY).min(until);
        while let Ok(Some(index)) = timeout_at(round.into(), heard.recv()).await {
            arrived.extend(usize::try_from(index));
        }
        if stop_when_all_heard && arrived.len() == routes.len() {
            break;
        }
    }
    tasks.shutdown().await;
    arrived
}

/// A socket there; none where the node has no network now.
pub(super) async fn open(
    backend: &dyn Backend,
    driver: Ipv4Addr,
    seat: Seat,
) -> Result<Option<Arc<UdpSocket>>, BackendError> {
    let socket = match seat {
        Seat::Node(node, port) => backend.open_udp(node, port).await?,
        Seat::Driver => Some(
            std::net::UdpSocket::bind((driver, 0))
                .map_err(|error| unopened(&format!("the driver's address {driver}"), &error))?,
        ),
    };
    socket
        .map(|socket| {
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket).map(Arc::new)
        })
        .transpose()
        .map_err(|error: io::Error| unopened(&format!("{seat:?}"), &error))
}

fn sender_seat(link: &Cut) -> Seat {
    seat(link.from, link.to)
}

fn receiver_seat(link: &Cut) -> Seat {
    seat(link.to, link.from)
}

fn seat(end: Endpoint, peer: Endpoint) -> Seat {
    match (end, peer) {
        (Endpoint::Clients, _) => Seat::Driver,
        (Endpoint::Node(node), Endpoint::Clients) => Seat::Node(node, CLIENT_PORT),
        (Endpoint::Node(node), Endpoint::Node(_)) => Seat::Node(node, PROBE_PORT),
    }
}

fn failed(link: &Cut, error: &io::Error) -> BackendError {
    BackendError::Failed {
        context: format!("cannot probe the link {link}"),
        reason: error.to_string(),
    }
}

fn unopened(place: &str, error: &io::Error) -> BackendError {
    BackendError::Failed {
        context: format!("cannot open a probe socket at {place}"),
        reason: error.to_string(),
    }
}
