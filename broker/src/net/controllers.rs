//! What this node asks of the active controller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::protocol::Request;
use replication::types::NodeId;
use tokio::sync::watch;

use crate::net::connection::AskError;
use crate::net::peers::Peers;
use crate::quorum::Leadership;

/// Finds the active controller and asks it.
#[derive(Debug)]
pub struct Controllers {
    leadership: watch::Receiver<Leadership>,
    peers: Arc<Peers>,
    voters: BTreeMap<NodeId, String>,
    next: AtomicUsize,
}

impl Controllers {
    /// Of the quorum of `voters`, whose leader is told by `leadership`.
    pub fn new(
        leadership: watch::Receiver<Leadership>,
        peers: Arc<Peers>,
        voters: BTreeMap<NodeId, String>,
    ) -> Self {
        Self { leadership, peers, voters, next: AtomicUsize::new(0) }
    }

    /// The active controller as far as this node knows.
    pub fn active(&self) -> Option<NodeId> {
        self.leadership.borrow().leader.as_ref().map(|(id, _)| *id)
    }

    /// Where to ask: at the leader, or, while none is known, at each voter in turn. Whoever is
    /// not the active controller says so.
    fn address(&self) -> String {
        if let Some((_, address)) = &self.leadership.borrow().leader {
            return address.clone();
        }
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let count = self.voters.len().max(1);
        self.voters.values().nth(turn % count).cloned().unwrap_or_default()
    }

    /// Asks for `request` in `version`, within `limit`.
    ///
    /// # Errors
    /// [`AskError`]. That another one is the active controller is an answer, not an error.
    pub async fn ask<R: Request + Sync>(
        &self,
        version: i16,
        request: &R,
        limit: Duration,
    ) -> Result<R::Response, AskError>
    where
        R::Response: Send,
    {
        let mut connection = self.peers.connection(&self.address(), limit).await?;
        let answer = connection.ask(version, request, limit).await;
        self.peers.done(connection, &answer);
        answer
    }

    /// Passes on a request as it came; the body of the answer as it comes.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn forward(&self, request: &Forwarded, limit: Duration) -> Result<Bytes, AskError> {
        let mut connection = self.peers.connection(&self.address(), limit).await?;
        let answer = connection
            .forward(
                request.key,
                request.version,
                request.request_header_version,
                request.response_header_version,
                &request.body,
                limit,
            )
            .await;
        self.peers.done(connection, &answer);
        answer
    }
}

/// A request that is passed on.
#[derive(Clone, Debug)]
pub struct Forwarded {
    /// Its API.
    pub key: i16,
    /// Its version.
    pub version: i16,
    /// Of its header.
    pub request_header_version: i16,
    /// Of its answer's header.
    pub response_header_version: i16,
    /// What follows the header.
    pub body: Bytes,
}
