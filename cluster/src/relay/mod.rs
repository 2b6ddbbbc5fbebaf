//! Messages between nodes held, lost or refused on their way, each by its kind: what a link that
//! delays or drops packets does only now and then, done to the one message that matters.
//!
//! In each node's network namespace a rule leads what other nodes send to its ports for brokers and
//! controllers to a relay of the driver's. It passes whole messages on, in their order; one that is held
//! holds up its connection, as a lost packet would. Who connects from the node itself, and clients and
//! probes, do not come by here.

mod refuse;
mod rule;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::debug;

pub use rule::{Deed, Message, Refusal, Rule, Side};

use crate::backend::{Backend, BackendError};
use crate::node::{BROKER_PORT, CONTROLLER_PORT, NodeName, NodeSpec};
use rule::{Crossing, fitting};

/// A relay listens so far above the port that it stands before.
const PORT_DISTANCE: u16 = 100;
const MOST_BYTES: u32 = 256 * 1024 * 1024;
const BACKLOG: u32 = 128;
/// After a connection could not be taken: there are too many.
const PAUSE: Duration = Duration::from_millis(50);

/// The relays before all nodes of a cluster.
pub(crate) struct Relays {
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    backend: Arc<dyn Backend>,
    names: BTreeMap<Ipv4Addr, NodeName>,
    rules: watch::Sender<BTreeMap<u64, Rule>>,
    /// What each rule has met.
    met: Mutex<BTreeMap<u64, Met>>,
}

/// What a rule has met.
#[derive(Debug, Default)]
struct Met {
    spared: u64,
    stopped: u64,
    /// How often each request was refused, by all that it says.
    refused: HashMap<Bytes, u64>,
}

/// How many messages a rule has stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stopped {
    /// In all.
    pub stopped: u64,
    /// Refused before, and sent again word for word.
    pub repeated: u64,
}

impl Shared {
    fn met(&self) -> MutexGuard<'_, BTreeMap<u64, Met>> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a rule does to a message that it has not met yet. None: it is spared.
    fn meet(&self, id: u64, rule: &Rule, frame: &Bytes) -> Option<Deed> {
        let mut all = self.met();
        let met = all.entry(id).or_default();
        if met.spared < rule.spared {
            met.spared += 1;
            return None;
        }
        met.stopped += 1;
        if matches!(rule.deed, Deed::Refuse(_)) {
            *met.refused.entry(body_of_request(frame)).or_default() += 1;
        }
        Some(rule.deed)
    }

    /// What becomes of a message, once no rule holds it any more. None: it passes.
    async fn fate(&self, crossing: Crossing, frame: &Bytes) -> Option<Deed> {
        let mut rules = self.rules.subscribe();
        let mut holder = None;
        loop {
            {
                let rules = rules.borrow_and_update();
                let (id, rule) = fitting(&rules, crossing)?;
                if holder.replace(id) != Some(id) {
                    let deed = self.meet(id, rule, frame)?;
                    debug!(?crossing, %rule, "a message is stopped");
                    if deed != Deed::Hold {
                        return Some(deed);
                    }
                }
            }
            rules.changed().await.ok()?;
        }
    }
}

impl Relays {
    /// Puts a relay before every node. Before the first start: connections that stand already are not
    /// led here.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] where that cannot be had.
    pub(crate) async fn install(
        backend: &Arc<dyn Backend>,
        nodes: &[NodeSpec],
    ) -> Result<Self, BackendError> {
        let shared = Arc::new(Shared {
            backend: Arc::clone(backend),
            names: nodes.iter().map(|node| (node.address, node.name)).collect(),
            rules: watch::Sender::new(BTreeMap::new()),
            met: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        for node in nodes {
            let broker = node.role.is_broker().then_some(BROKER_PORT);
            let controller = node.role.is_controller().then_some(CONTROLLER_PORT);
            for port in broker.into_iter().chain(controller) {
                let listener = listen(&**backend, node, port + PORT_DISTANCE).await?;
                backend.redirect(node.name, port, port + PORT_DISTANCE).await?;
                let behind = Behind { node: node.name, address: (node.address, port).into() };
                tasks.spawn(stand(Arc::clone(&shared), listener, behind));
            }
        }
        Ok(Self { shared, _tasks: tasks })
    }

    /// Puts a rule in force.
    pub(crate) fn add(&self, id: u64, rule: Rule) {
        self.shared.rules.send_modify(|rules| drop(rules.insert(id, rule)));
    }

    /// Lifts it: what it held goes on its way. How many messages it has stopped.
    pub(crate) fn lift(&self, id: u64) -> Stopped {
        self.shared.rules.send_modify(|rules| drop(rules.remove(&id)));
        self.stopped(id)
    }

    /// How many messages the rule has stopped so far.
    pub(crate) fn stopped(&self, id: u64) -> Stopped {
        let all = self.shared.met();
        let Some(met) = all.get(&id) else { return Stopped::default() };
        let repeated = met.refused.values().map(|times| times - 1).sum();
        Stopped { stopped: met.stopped, repeated }
    }
}

/// Where a relay passes messages on to.
#[derive(Clone, Copy)]
struct Behind {
    node: NodeName,
    address: SocketAddr,
}

async fn listen(
    backend: &dyn Backend,
    node: &NodeSpec,
    port: u16,
) -> Result<TcpListener, BackendError> {
    let socket = backend.open_tcp(node.name).await?;
    let bound = socket
        .set_reuseaddr(true)
        .and_then(|()| socket.bind((node.address, port).into()))
        .and_then(|()| socket.listen(BACKLOG));
    bound.map_err(|error| BackendError::Failed {
        context: format!("cannot put a relay before port {port} of {}", node.name),
        reason: error.to_string(),
    })
}

async fn stand(shared: Arc<Shared>, listener: TcpListener, behind: Behind) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    connections.spawn(pass(Arc::clone(&shared), stream, from, behind));
                }
                Err(error) => {
                    debug!(%error, "a relay takes no connection");
                    sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Passes one connection's messages on, until both sides have ended it.
async fn pass(shared: Arc<Shared>, near: TcpStream, from: SocketAddr, behind: Behind) {
    let SocketAddr::V4(peer) = from else { return };
    let Some(peer) = shared.names.get(peer.ip()).copied() else { return };
    // A node that does not run refuses: so the connection ends here, too.
    let Ok(socket) = shared.backend.open_tcp(behind.node).await else { return };
    let Ok(far) = socket.connect(behind.address).await else { return };
    if near.set_nodelay(true).and_then(|()| far.set_nodelay(true)).is_err() {
        return;
    }
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    let line = Line {
        shared,
        peer,
        node: behind.node,
        asked: Mutex::default(),
        near: tokio::sync::Mutex::new(near_write),
    };
    // An error, such as a message that is lost, ends both directions.
    let ended = tokio::try_join!(line.requests(near_read, far_write), line.answers(far_read));
    if let Err(error) = ended {
        debug!(%peer, node = %behind.node, %error, "a relayed connection ends");
    }
}

/// A connection that is relayed.
struct Line {
    shared: Arc<Shared>,
    peer: NodeName,
    node: NodeName,
    /// What was asked under which number, and not answered yet.
    asked: Mutex<HashMap<i32, i16>>,
    near: tokio::sync::Mutex<OwnedWriteHalf>,
}

impl Line {
    async fn requests(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        while let Some(frame) = read_frame(&mut from).await? {
            let (api, question) = head_of_request(&frame)?;
            let crossing = Crossing { side: Side::Requests, api, from: self.peer, to: self.node };
            match self.shared.fate(crossing, &frame).await {
                None | Some(Deed::Hold) => {
                    self.asked().insert(question, api);
                    write_frame(&mut to, &frame).await?;
                }
                Some(Deed::Refuse(refusal)) => {
                    let answer = refuse::alter_partition(&frame, refusal.code())
                        .map_err(|error| io::Error::other(format!("{error:#}")))?;
                    write_frame(&mut *self.near.lock().await, &answer).await?;
                }
                Some(Deed::Lose) => return Err(io::Error::other("a request is lost")),
            }
        }
        to.shutdown().await
    }

    async fn answers(&self, mut from: OwnedReadHalf) -> io::Result<()> {
        while let Some(frame) = read_frame(&mut from).await? {
            let question = frame.first_chunk().copied().map(i32::from_be_bytes);
            let question =
                question.ok_or_else(|| io::Error::other("an answer without a number"))?;
            let api = self.asked().remove(&question).unwrap_or(-1);
            let crossing = Crossing { side: Side::Answers, api, from: self.node, to: self.peer };
            match self.shared.fate(crossing, &frame).await {
                Some(Deed::Lose | Deed::Refuse(_)) => {
                    return Err(io::Error::other("an answer is lost"));
                }
                None | Some(Deed::Hold) => {
                    write_frame(&mut *self.near.lock().await, &frame).await?;
                }
            }
        }
        self.near.lock().await.shutdown().await
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<i32, i16>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a request says, without its number: kind, version, and what follows the number.
fn body_of_request(frame: &Bytes) -> Bytes {
    let (head, rest) = (frame.get(..4).unwrap_or_default(), frame.get(8..).unwrap_or_default());
    [head, rest].concat().into()
}

/// Kind and number of a request, which begins with both, the version between them.
fn head_of_request(frame: &Bytes) -> io::Result<(i16, i32)> {
    match frame.first_chunk::<8>() {
        Some(&[a, b, _, _, n @ ..]) => Ok((i16::from_be_bytes([a, b]), i32::from_be_bytes(n))),
        None => Err(io::Error::other("a request without a head")),
    }
}

async fn read_frame(from: &mut OwnedReadHalf) -> io::Result<Option<Bytes>> {
    let length = match from.read_u32().await {
        Ok(length) => length,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    if length > MOST_BYTES {
        return Err(io::Error::other(format!("a message of {length} bytes")));
    }
    let mut frame = BytesMut::zeroed(length as usize);
    from.read_exact(&mut frame).await?;
    Ok(Some(frame.freeze()))
}

async fn write_frame(to: &mut OwnedWriteHalf, frame: &Bytes) -> io::Result<()> {
    let length = u32::try_from(frame.len()).map_err(io::Error::other)?;
    let mut whole = BytesMut::with_capacity(frame.len() + 4);
    whole.extend_from_slice(&length.to_be_bytes());
    whole.extend_from_slice(frame);
    to.write_all(&whole).await
}
