//! How fast what a node sends leaves it: limited, and measured with datagrams to the driver.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::backend::{Backend, BackendError};
use crate::node::NodeName;

/// Datagrams of a measurement, and the bytes that each takes on the wire.
const DATAGRAMS: u32 = 12;
const PAYLOAD: usize = 1_000;
const WIRE_BYTES: u32 = 1_042;
/// Longest wait for one of them, beyond what the asked rate explains.
const PATIENCE: Duration = Duration::from_secs(2);

/// The `tc` arguments that limit what leaves through `eth0` to `kbit` a second.
pub(crate) fn limit(kbit: u32) -> Vec<String> {
    let rate = format!("{kbit}kbit");
    // One full packet at once, and room for what waits: slow shall not mean lossy.
    ["tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", &rate]
        .into_iter()
        .chain(["burst", "2kb", "limit", "4mb"])
        .map(str::to_owned)
        .collect()
}

/// The `tc` arguments that lift the limit.
pub(crate) fn unlimited() -> Vec<String> {
    ["tc", "qdisc", "del", "dev", "eth0", "root"].map(str::to_owned).to_vec()
}

/// How many kbit a second leave `node` now, at most about `expected`; none where it has no network.
pub(super) async fn measure(
    backend: &dyn Backend,
    driver: Ipv4Addr,
    node: NodeName,
    expected: Option<u32>,
) -> Result<Option<f64>, BackendError> {
    let failed = |error: io::Error| BackendError::Failed {
        context: format!("cannot measure how fast {node} sends"),
        reason: error.to_string(),
    };
    let Some(from) = backend.open_udp(node, 0).await? else { return Ok(None) };
    let to = UdpSocket::bind(SocketAddr::from((driver, 0))).await.map_err(failed)?;
    let target = to.local_addr().map_err(failed)?;
    let payload = vec![0_u8; PAYLOAD];
    for _ in 0..DATAGRAMS {
        from.send_to(&payload, target).map_err(failed)?;
    }
    let each = expected.map_or(Duration::ZERO, |kbit| {
        Duration::from_millis(u64::from(WIRE_BYTES * 8 / kbit.max(1)))
    });
    let mut buffer = vec![0_u8; PAYLOAD];
    let mut first = None;
    for _ in 0..DATAGRAMS {
        let heard = timeout(each * 4 + PATIENCE, to.recv(&mut buffer)).await;
        if !matches!(heard, Ok(Ok(_))) {
            return Err(failed(io::Error::other("a datagram did not arrive")));
        }
        first.get_or_insert_with(Instant::now);
    }
    let took = first.map_or(Duration::ZERO, |first| first.elapsed()).as_secs_f64().max(1e-6);
    Ok(Some(f64::from((DATAGRAMS - 1) * WIRE_BYTES * 8) / 1_000.0 / took))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_stands_in_what_is_run() {
        assert_eq!(
            limit(30).join(" "),
            "tc qdisc replace dev eth0 root tbf rate 30kbit burst 2kb limit 4mb"
        );
    }
}
