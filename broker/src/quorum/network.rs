//! Messages between the nodes of the quorum, as JSON.

use std::sync::Arc;

use bytes::Bytes;
use openraft::error::{
    InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{BasicNode, Raft};
use replication::types::NodeId;
use serde::{Deserialize, Serialize};

use super::types::Types;
use super::{Transport, TransportError};

/// A message.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<u64>),
    Snapshot(InstallSnapshotRequest<Types>),
}

type AppendAnswer = Result<AppendEntriesResponse<u64>, RaftError<u64>>;
type VoteAnswer = Result<VoteResponse<u64>, RaftError<u64>>;
type SnapshotAnswer = Result<InstallSnapshotResponse<u64>, RaftError<u64, InstallSnapshotError>>;

/// Its answer.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Append(AppendAnswer),
    Vote(VoteAnswer),
    Snapshot(SnapshotAnswer),
    /// The message was not understood.
    Nonsense(String),
}

/// Lets `raft` answer a message that came in.
pub(super) async fn handle(raft: &Raft<Types>, message: &[u8]) -> Bytes {
    let answer = match serde_json::from_slice(message) {
        Ok(Message::Append(rpc)) => Answer::Append(raft.append_entries(rpc).await),
        Ok(Message::Vote(rpc)) => Answer::Vote(raft.vote(rpc).await),
        Ok(Message::Snapshot(rpc)) => Answer::Snapshot(raft.install_snapshot(rpc).await),
        Err(error) => Answer::Nonsense(error.to_string()),
    };
    serde_json::to_vec(&answer).unwrap_or_default().into()
}

/// Makes the way to each node.
#[derive(Clone)]
pub(super) struct Network(pub(super) Arc<dyn Transport>);

/// The way to one node.
pub(super) struct Link {
    transport: Arc<dyn Transport>,
    to: u64,
    address: String,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Link {
        Link { transport: Arc::clone(&self.0), to: target, address: node.addr.clone() }
    }
}

type Failed<E> = RPCError<u64, BasicNode, RaftError<u64, E>>;

impl Link {
    async fn ask(&self, message: &Message, option: &RPCOption) -> Result<Answer, TransportError> {
        let told = |error: serde_json::Error| TransportError::new(error.to_string());
        let bytes = serde_json::to_vec(message).map_err(told)?;
        let to = NodeId(i32::try_from(self.to).unwrap_or(-1));
        let answer =
            self.transport.call(to, &self.address, bytes.into(), option.hard_ttl()).await?;
        serde_json::from_slice(&answer).map_err(told)
    }

    /// The answer, if it is one to this message.
    #[expect(clippy::result_large_err, reason = "the error is openraft's")]
    fn take<T, E: std::error::Error + 'static>(
        &self,
        answer: Result<Answer, TransportError>,
        pick: impl FnOnce(Answer) -> Option<Result<T, RaftError<u64, E>>>,
    ) -> Result<T, Failed<E>> {
        let answer = answer.map_err(|error| RPCError::Unreachable(Unreachable::new(&error)))?;
        if let Answer::Nonsense(reason) = answer {
            return Err(NetworkError::new(&TransportError::new(reason)).into());
        }
        match pick(answer) {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) => Err(RemoteError::new(self.to, error).into()),
            None => {
                let reason = "an answer to another message".to_owned();
                Err(NetworkError::new(&TransportError::new(reason)).into())
            }
        }
    }
}

impl RaftNetwork<Types> for Link {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, Failed<openraft::error::Infallible>> {
        let answer = self.ask(&Message::Append(rpc), &option).await;
        self.take(answer, |answer| match answer {
            Answer::Append(answer) => Some(answer),
            _ => None,
        })
    }

    async fn install_snapshot(
        &mut self,
        rpc: InstallSnapshotRequest<Types>,
        option: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Failed<InstallSnapshotError>> {
        let answer = self.ask(&Message::Snapshot(rpc), &option).await;
        self.take(answer, |answer| match answer {
            Answer::Snapshot(answer) => Some(answer),
            _ => None,
        })
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, Failed<openraft::error::Infallible>> {
        let answer = self.ask(&Message::Vote(rpc), &option).await;
        self.take(answer, |answer| match answer {
            Answer::Vote(answer) => Some(answer),
            _ => None,
        })
    }

    /// A node that is away is asked again soon: it may be back.
    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(std::time::Duration::from_millis(100)))
    }
}
