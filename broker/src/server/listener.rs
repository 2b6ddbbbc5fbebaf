//! Accepting connections.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tracing::{info, warn};

use crate::config::Config;
use crate::server::budget::Budget;
use crate::server::connection;
use crate::server::services::Services;
use crate::server::versions::Audience;

/// What every connection of a node shares.
#[derive(Debug)]
pub struct Gate {
    connections: Arc<Semaphore>,
    /// Requests in memory.
    pub(super) requests: Budget,
    /// `socket.request.max.bytes`.
    pub(super) most_request_bytes: u32,
    /// `connections.max.idle.ms`.
    pub(super) idle: Duration,
    /// `connection.write.timeout.ms`.
    pub(super) write: Duration,
}

impl Gate {
    /// The limits of `config`.
    pub fn new(config: &Config) -> Self {
        Self {
            connections: Arc::new(Semaphore::new(config.limits.connections)),
            requests: Budget::new(config.limits.all_requests_bytes),
            most_request_bytes: config.limits.request_bytes,
            idle: config.times.connection_idle,
            write: config.times.connection_write,
        }
    }
}

/// Serves whoever connects to `listener` until `stop` turns true.
pub async fn serve(
    listener: TcpListener,
    name: String,
    audience: Audience,
    gate: Arc<Gate>,
    services: Arc<Services>,
    mut stop: watch::Receiver<bool>,
) {
    let port = listener.local_addr().map_or(0, |address| address.port());
    info!(listener = name, port, "listening");
    let mut refused = 0_u64;
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: connections that end give some back.
                warn!(listener = name, %error, "a connection cannot be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&gate.connections).try_acquire_owned() else {
            refused += 1;
            if refused.is_power_of_two() {
                warn!(listener = name, %peer, refused, "max.connections is reached");
            }
            continue;
        };
        let origin = connection::Origin { peer, listener: name.clone(), audience };
        let (gate, services, stop) = (Arc::clone(&gate), Arc::clone(&services), stop.clone());
        tokio::spawn(async move {
            connection::run(stream, origin, gate, services, stop).await;
            drop(permit);
        });
    }
}
