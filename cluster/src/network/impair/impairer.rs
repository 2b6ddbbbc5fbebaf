//! A thread that does to the packets of some links what an impairment says.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, setsockopt,
    socket, sockopt,
};
use nix::unistd::pipe;
use rand::Rng;
use serde::Serialize;

use super::impairment::{Fate, Impairment, Lane};
use super::nfqueue::{Packet, Queue};
use crate::netns::NetworkNamespace;

/// On packets that were sent a second time: they do not come by here again.
pub(super) const SECOND_TIME_MARK: u32 = 0x4857;
/// Longest time until a thread that shall end looks.
const LOOK: Duration = Duration::from_millis(500);
/// Longest wait for a thread to open its queue.
const OPEN_LIMIT: Duration = Duration::from_secs(5);
/// An IPv4 header is that long at least.
const IP_HEADER_BYTES: usize = 20;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// What was done to packets so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Done {
    /// Came by.
    pub seen: u64,
    /// Dropped.
    pub lost: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Held back for others to overtake.
    pub reordered: u64,
    /// Sent on with a wrong bit.
    pub corrupted: u64,
}

#[derive(Default)]
struct Counters {
    seen: AtomicU64,
    lost: AtomicU64,
    duplicated: AtomicU64,
    reordered: AtomicU64,
    corrupted: AtomicU64,
}

/// One sender's packets, impaired until this is dropped.
pub struct Impairer {
    counters: Arc<Counters>,
    ended: Arc<AtomicBool>,
    /// Closed to wake the thread up.
    wake: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    namespace: Arc<NetworkNamespace>,
    rules: Vec<Vec<String>>,
}

impl Impairer {
    /// Begins: packets that leave `namespace` as `matches` say (words of `iptables`) go through queue
    /// `number` of it.
    ///
    /// # Errors
    /// The kernel has no such queues, or takes no such rule. Nothing is left behind then.
    pub(crate) fn start(
        namespace: Arc<NetworkNamespace>,
        number: u16,
        matches: &[Vec<String>],
        impairment: Impairment,
        rng: impl Rng + Send + 'static,
    ) -> io::Result<Self> {
        let counters = Arc::new(Counters::default());
        let ended = Arc::new(AtomicBool::new(false));
        let (ready, opened) = mpsc::channel();
        let (woken, wake) = pipe()?;
        let place = Arc::clone(&namespace);
        let (counted, stop) = (Arc::clone(&counters), Arc::clone(&ended));
        let thread = thread::Builder::new().name(format!("impair-{number}")).spawn(move || {
            let worked = place.inside_here(|| {
                let shell = Shell::open(number, Lane::new(impairment, rng), counted)?;
                // Nobody waits any more: the thread is asked to end, too.
                let _ = ready.send(Ok(()));
                shell.work(&woken, &stop)
            });
            if let Err(error) = worked {
                tracing::debug!("packets are not impaired any more: {error}");
                let _ = ready.send(Err(error));
            }
        })?;
        let mut impairer = Self {
            counters,
            ended,
            wake: Some(wake),
            thread: Some(thread),
            namespace,
            rules: Vec::new(),
        };
        opened.recv_timeout(OPEN_LIMIT).map_err(|_| {
            io::Error::new(io::ErrorKind::TimedOut, "the queue for packets was not opened in time")
        })??;
        for words in matches {
            impairer.lead(number, words)?;
        }
        Ok(impairer)
    }

    /// Leads packets through the queue. Should the thread end, they pass as before.
    fn lead(&mut self, number: u16, words: &[String]) -> io::Result<()> {
        let mark = SECOND_TIME_MARK.to_string();
        let number = number.to_string();
        let rule = ["OUTPUT"]
            .into_iter()
            .chain(words.iter().map(String::as_str))
            .chain(["-m", "mark", "!", "--mark", &mark])
            .chain(["-j", "NFQUEUE", "--queue-num", &number, "--queue-bypass"])
            .map(str::to_owned)
            .collect::<Vec<_>>();
        self.iptables("-A", &rule)?;
        self.rules.push(rule);
        Ok(())
    }

    fn iptables(&self, verb: &str, rule: &[String]) -> io::Result<()> {
        let begin = ["iptables", "-w", "10", "-t", "mangle", verb];
        let words: Vec<&str> = begin.into_iter().chain(rule.iter().map(String::as_str)).collect();
        self.namespace.run(&words, "").map(drop)
    }

    /// What was done to packets so far.
    pub fn done(&self) -> Done {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Done {
            seen: of(&self.counters.seen),
            lost: of(&self.counters.lost),
            duplicated: of(&self.counters.duplicated),
            reordered: of(&self.counters.reordered),
            corrupted: of(&self.counters.corrupted),
        }
    }

    /// Ends: rules first, then what still waits is let go.
    ///
    /// # Errors
    /// A rule could not be taken away; packets pass all the same.
    pub fn end(mut self) -> io::Result<Done> {
        let removed = self.remove_rules();
        self.stop();
        removed.map(|()| self.done())
    }

    fn remove_rules(&mut self) -> io::Result<()> {
        let rules = std::mem::take(&mut self.rules);
        rules.iter().map(|rule| self.iptables("-D", rule)).fold(Ok(()), Result::and)
    }

    fn stop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.wake = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the thread that impaired packets has panicked");
        }
    }
}

impl Drop for Impairer {
    fn drop(&mut self) {
        if let Err(error) = self.remove_rules() {
            tracing::debug!("a rule for packets stays until its namespace ends: {error}");
        }
        self.stop();
    }
}

/// What the thread works with.
struct Shell<R> {
    queue: Queue,
    lane: Lane<R>,
    /// Opened with the first packet that goes twice.
    second: Option<OwnedFd>,
    counters: Arc<Counters>,
    begun: Instant,
    /// When held packets go, the earliest first, and in the order in which they came.
    due: BinaryHeap<Reverse<(Duration, u64)>>,
    held: BTreeMap<u64, Held>,
    next: u64,
}

struct Held {
    packet: Packet,
    changed: bool,
    twice: bool,
}

impl<R: Rng> Shell<R> {
    fn open(number: u16, lane: Lane<R>, counters: Arc<Counters>) -> io::Result<Self> {
        Ok(Self {
            queue: Queue::open(number)?,
            lane,
            second: None,
            counters,
            begun: Instant::now(),
            due: BinaryHeap::new(),
            held: BTreeMap::new(),
            next: 0,
        })
    }

    /// Works until it shall end; then lets go what waits.
    fn work(mut self, woken: &OwnedFd, ended: &AtomicBool) -> io::Result<()> {
        while !ended.load(Ordering::Relaxed) {
            let now = self.begun.elapsed();
            let wait = match self.due.peek() {
                Some(Reverse((at, _))) => at.saturating_sub(now).min(LOOK),
                None => LOOK,
            };
            self.wait(woken, wait)?;
            for packet in self.queue.packets()? {
                self.take(packet)?;
            }
            self.let_go(self.begun.elapsed())?;
        }
        self.let_go(Duration::MAX)
    }

    fn wait(&self, woken: &OwnedFd, wait: Duration) -> io::Result<()> {
        // Rounded up: a packet that goes too early is not delayed.
        let ms = wait.as_micros().div_ceil(1_000);
        let timeout = PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX);
        let mut places = [
            PollFd::new(self.queue.fd(), PollFlags::POLLIN),
            PollFd::new(woken.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut places, timeout) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take(&mut self, mut packet: Packet) -> io::Result<()> {
        let add = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        add(&self.counters.seen);
        let headers = header_bytes(&packet.bytes);
        match self.lane.fate(packet.bytes.len(), headers, self.begun.elapsed()) {
            Fate::Lost => {
                add(&self.counters.lost);
                self.queue.decide(packet.id, false, None)
            }
            Fate::Goes { at, twice, overtaken, wrong_bit } => {
                if overtaken {
                    add(&self.counters.reordered);
                }
                let spoilt = wrong_bit.and_then(|bit| {
                    let byte = packet.bytes.get_mut(bit / 8)?;
                    *byte ^= 1 << (bit % 8);
                    Some(())
                });
                if spoilt.is_some() {
                    add(&self.counters.corrupted);
                }
                self.due.push(Reverse((at, self.next)));
                self.held.insert(self.next, Held { packet, changed: spoilt.is_some(), twice });
                self.next += 1;
                Ok(())
            }
        }
    }

    /// Lets go what is due at `now`.
    fn let_go(&mut self, now: Duration) -> io::Result<()> {
        while let Some(Reverse((at, number))) = self.due.peek().copied() {
            if at > now {
                break;
            }
            self.due.pop();
            let Some(held) = self.held.remove(&number) else { continue };
            let bytes = held.changed.then_some(held.packet.bytes.as_slice());
            self.queue.decide(held.packet.id, true, bytes)?;
            if held.twice && self.send_again(&held.packet.bytes).is_ok() {
                self.counters.duplicated.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn send_again(&mut self, bytes: &[u8]) -> io::Result<()> {
        let to: [u8; 4] = bytes
            .get(16..)
            .and_then(|rest| rest.first_chunk())
            .copied()
            .ok_or_else(|| io::Error::other("a packet without an address"))?;
        let socket = match self.second.take() {
            Some(socket) => socket,
            None => raw_socket()?,
        };
        let target = SockaddrIn::from(std::net::SocketAddrV4::new(Ipv4Addr::from(to), 0));
        let sent = sendto(socket.as_raw_fd(), bytes, &target, MsgFlags::empty());
        self.second = Some(socket);
        sent?;
        Ok(())
    }
}

fn raw_socket() -> io::Result<OwnedFd> {
    let socket =
        socket(AddressFamily::Inet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw)?;
    setsockopt(&socket, sockopt::Mark, &SECOND_TIME_MARK)?;
    Ok(socket)
}

/// How many bytes of a packet say where it goes: its IP header, and the ports and checksum behind it. What
/// comes later is covered by the checksum.
fn header_bytes(packet: &[u8]) -> usize {
    let ip = packet.first().map_or(IP_HEADER_BYTES, |first| usize::from(first & 0x0f) * 4);
    match packet.get(9) {
        Some(&TCP) => ip + 20,
        Some(&UDP) => ip + 8,
        _ => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_checksums_are_headers() {
        let mut packet = vec![0x45; 60];
        packet[9] = TCP;
        assert_eq!(header_bytes(&packet), 40);
        packet[9] = UDP;
        assert_eq!(header_bytes(&packet), 28);
        packet[0] = 0x46;
        packet[9] = 1;
        assert_eq!(header_bytes(&packet), 24);
    }
}
