//! Carries the metadata log's messages over the connections between nodes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use replication::types::NodeId;

use crate::net::connection::AskError;
use crate::net::peers::Peers;
use crate::quorum::{Transport, TransportError};

/// An API key beyond all of Kafka's: what follows is a message of the metadata log.
pub const QUORUM_KEY: i16 = 0x7000;

/// Messages of the metadata log as frames under [`QUORUM_KEY`].
#[derive(Debug)]
pub struct QuorumLink {
    peers: Arc<Peers>,
}

impl QuorumLink {
    /// Uses the connections of `peers`.
    pub fn new(peers: Arc<Peers>) -> Self {
        Self { peers }
    }
}

#[async_trait]
impl Transport for QuorumLink {
    async fn call(
        &self,
        _to: NodeId,
        address: &str,
        rpc: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, TransportError> {
        let told = |error: AskError| TransportError::new(error.to_string());
        let mut connection = self.peers.connection(address, deadline).await.map_err(told)?;
        let answer = connection.exchange_raw(QUORUM_KEY, &rpc, deadline).await;
        self.peers.done(connection, &answer);
        answer.map_err(told)
    }
}
