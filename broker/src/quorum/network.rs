//! Messages between the nodes of the quorum, as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

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

use super::contacts::Contacts;
use super::types::{LogId, Types};
use super::{Transport, TransportError};

/// A message, and the cluster it is of: one that went astray must not be taken for one of ours.
#[derive(Debug, Serialize, Deserialize)]
struct Envelope<M> {
    cluster: String,
    message: M,
}

/// A message.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// Would the receiver let a voter stand whose log ends so?
    MayStand(Option<LogId>),
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
    MayStand(bool),
    Append(AppendAnswer),
    Vote(VoteAnswer),
    Snapshot(SnapshotAnswer),
    /// The message was not understood.
    Nonsense(String),
}

/// The message in `bytes`.
///
/// # Errors
/// The answer to what is none, or none of this cluster.
pub(super) fn open(cluster: &str, bytes: &[u8]) -> Result<Message, Bytes> {
    match serde_json::from_slice::<Envelope<Message>>(bytes) {
        Ok(envelope) if envelope.cluster == cluster => Ok(envelope.message),
        Ok(envelope) => {
            let reason = format!("this is cluster {cluster}, not {}", envelope.cluster);
            Err(seal(&Answer::Nonsense(reason)))
        }
        Err(error) => Err(seal(&Answer::Nonsense(error.to_string()))),
    }
}

fn seal(answer: &Answer) -> Bytes {
    serde_json::to_vec(answer).unwrap_or_default().into()
}

/// Lets `raft` answer a message, or, if it is not for openraft, `lets_stand`.
pub(super) async fn handle(
    raft: &Raft<Types>,
    message: Message,
    contacts: &Contacts,
    lets_stand: impl FnOnce(Option<LogId>) -> bool,
) -> Bytes {
    let (answer, hears_leader) = match message {
        Message::MayStand(last) => (Answer::MayStand(lets_stand(last)), false),
        Message::Append(rpc) => {
            let answer = raft.append_entries(rpc).await;
            let refused = |answer| matches!(answer, &AppendEntriesResponse::HigherVote(_));
            let heard = answer.as_ref().is_ok_and(|answer| !refused(answer));
            (Answer::Append(answer), heard)
        }
        Message::Vote(rpc) => {
            let answer = raft.vote(rpc).await;
            let granted = answer.as_ref().is_ok_and(|answer| answer.vote_granted);
            (Answer::Vote(answer), granted)
        }
        Message::Snapshot(rpc) => {
            let vote = rpc.vote;
            let answer = raft.install_snapshot(rpc).await;
            let heard = answer.as_ref().is_ok_and(|answer| answer.vote == vote);
            (Answer::Snapshot(answer), heard)
        }
    };
    if hears_leader {
        contacts.heard(Duration::ZERO);
    }
    seal(&answer)
}

/// Makes the way to each node.
#[derive(Clone)]
pub(super) struct Network {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) cluster: Arc<str>,
    /// Where voters are; others say so when they join.
    pub(super) voters: Arc<BTreeMap<u64, String>>,
    pub(super) contacts: Contacts,
}

/// The way to one node.
pub(super) struct Link {
    network: Network,
    to: u64,
    address: String,
}

impl Network {
    fn link(&self, to: u64, address: &str) -> Link {
        // A voter's file may have moved it since the log was told.
        let address = self.voters.get(&to).map_or(address, String::as_str).to_owned();
        Link { network: self.clone(), to, address }
    }

    /// Whether voter `to` would let one stand whose log ends with `last`; no, if it does not answer
    /// within `limit`.
    pub(super) async fn may_stand(&self, to: u64, last: Option<LogId>, limit: Duration) -> bool {
        let link = self.link(to, "");
        let answer = link.ask(Message::MayStand(last), limit).await;
        matches!(answer, Ok(Answer::MayStand(true)))
    }
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Link {
        self.link(target, &node.addr)
    }
}

type Failed<E> = RPCError<u64, BasicNode, RaftError<u64, E>>;

impl Link {
    async fn ask(&self, message: Message, limit: Duration) -> Result<Answer, TransportError> {
        let told = |error: serde_json::Error| TransportError::new(error.to_string());
        let envelope = Envelope { cluster: self.network.cluster.to_string(), message };
        let bytes = serde_json::to_vec(&envelope).map_err(told)?;
        let to = NodeId(i32::try_from(self.to).unwrap_or(-1));
        let answer = self.network.transport.call(to, &self.address, bytes.into(), limit).await?;
        self.network.contacts.answered(self.to);
        serde_json::from_slice(&answer).map_err(told)
    }

    /// Asks as a leader does.
    async fn lead(&self, message: Message, option: &RPCOption) -> Result<Answer, TransportError> {
        if self.network.contacts.is_silent() {
            let reason = "nobody answers this leader; it lets others elect another".to_owned();
            return Err(TransportError::new(reason));
        }
        self.ask(message, option.hard_ttl()).await
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
            // Asked again at once, it would say the same.
            return Err(RPCError::Unreachable(Unreachable::new(&TransportError::new(reason))));
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
        let answer = self.lead(Message::Append(rpc), &option).await;
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
        let answer = self.lead(Message::Snapshot(rpc), &option).await;
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
        let answer = self.ask(Message::Vote(rpc), option.hard_ttl()).await;
        self.take(answer, |answer| match answer {
            Answer::Vote(answer) => Some(answer),
            _ => None,
        })
    }

    /// A node that is away is asked again soon: it may be back.
    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(Duration::from_millis(100)))
    }
}
