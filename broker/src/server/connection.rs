//! One connection: requests are taken up in order and answered in order.
//!
//! A request is begun as soon as it is read, so a produce appends while the ones before it still
//! wait for their followers; its answer waits its turn. How many may wait is bounded, and so is
//! what a reader that takes nothing can hold up.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::server::budget::Share;
use crate::server::dispatch::{self, Answer, Pending};
use crate::server::listener::Gate;
use crate::server::services::Services;
use crate::server::versions::Audience;
use crate::wire::frame::{FrameError, read_body, read_length};

/// Requests of one connection that wait for their answer.
const MOST_WAITING: usize = 16;

/// Who is at the other end.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// Its address.
    pub peer: SocketAddr,
    /// The listener it came in by.
    pub listener: String,
    /// Who comes in there.
    pub audience: Audience,
}

/// A request that was begun, and its share of memory.
struct Begun {
    pending: Pending,
    _share: Share,
}

/// Serves one connection until it ends.
pub(super) async fn run(
    stream: TcpStream,
    origin: Origin,
    gate: Arc<Gate>,
    services: Arc<Services>,
    mut stop: watch::Receiver<bool>,
) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(peer = %origin.peer, %error, "TCP_NODELAY cannot be set");
    }
    let (read, write) = stream.into_split();
    let (begun, answers) = mpsc::channel(MOST_WAITING);
    let peer = origin.peer;
    let most_idle = gate.write;
    let writer = tokio::spawn(write_answers(write, answers, most_idle, peer));
    let reading =
        read_requests(BufReader::with_capacity(64 * 1024, read), &origin, &gate, &services, begun);
    let end = tokio::select! {
        biased;
        () = stopped(&mut stop) => Err(End::Deaf),
        end = reading => end,
    };
    match end {
        // What was understood is still answered. The writer does not panic.
        Ok(()) => drop(writer.await),
        Err(End::Idle) => {
            debug!(%peer, "idle for too long");
            writer.abort();
        }
        Err(End::Deaf) => writer.abort(),
        Err(End::Nonsense(reason)) => {
            drop(writer.await);
            warn!(%peer, listener = origin.listener, reason, "connection closed");
        }
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the node is gone.
    drop(stop.wait_for(|stop| *stop).await);
}

/// Why no more is read.
enum End {
    Idle,
    /// Answers cannot be delivered any more.
    Deaf,
    Nonsense(String),
}

async fn read_requests(
    mut read: BufReader<tokio::net::tcp::OwnedReadHalf>,
    origin: &Origin,
    gate: &Gate,
    services: &Arc<Services>,
    begun: mpsc::Sender<Begun>,
) -> Result<(), End> {
    loop {
        let length = timeout(gate.idle, read_length(&mut read, gate.most_request_bytes)).await;
        let Some(length) = length.map_err(|_| End::Idle)?.map_err(|error| end(&error))? else {
            return Ok(());
        };
        let share = gate.requests.take(length as usize).await;
        let body = timeout(gate.idle, read_body(&mut read, length)).await;
        let frame: Bytes = body.map_err(|_| End::Idle)?.map_err(|error| end(&error))?;
        match dispatch::begin(frame, origin, services).await {
            Ok(pending) => {
                if begun.send(Begun { pending, _share: share }).await.is_err() {
                    return Err(End::Deaf);
                }
            }
            Err(reason) => return Err(End::Nonsense(reason)),
        }
    }
}

fn end(error: &FrameError) -> End {
    End::Nonsense(error.to_string())
}

async fn write_answers(
    mut write: OwnedWriteHalf,
    mut answers: mpsc::Receiver<Begun>,
    most_idle: std::time::Duration,
    peer: SocketAddr,
) {
    while let Some(Begun { pending, _share: share }) = answers.recv().await {
        let answer = pending.await;
        drop(share);
        let (bytes, held) = match answer {
            Answer::Frame { bytes, held } => (bytes, held),
            Answer::Nothing => continue,
            Answer::Close(reason) => {
                warn!(%peer, reason, "connection closed");
                return;
            }
        };
        // A large answer may take long; what counts is that the reader takes some of it.
        for part in bytes.chunks(WRITE_STEP) {
            match timeout(most_idle, write.write_all(part)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    debug!(%peer, %error, "the answer was not taken");
                    return;
                }
                Err(_) => {
                    warn!(%peer, "it takes no answers; connection closed");
                    return;
                }
            }
        }
        drop(held);
    }
}

/// Bytes within which a reader must show that it still takes some.
const WRITE_STEP: usize = 256 * 1024;
