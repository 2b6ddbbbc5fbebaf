//! A thread that does to the packets of some links what an impairment says.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
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
const SECOND_TIME_MARK: u32 = 0x4857;
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

/// The same, while the thread works.
type Counters = Arc<Mutex<Done>>;

fn lock(counters: &Counters) -> MutexGuard<'_, Done> {
    counters.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One sender's packets, impaired until this is dropped.
pub struct Impairer {
    counters: Counters,
    /// Closed to end the thread.
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
        let counters = Counters::default();
        let (ready, opened) = mpsc::channel();
        let (woken, wake) = pipe()?;
        let place = Arc::clone(&namespace);
        let counted = Arc::clone(&counters);
        let thread = thread::Builder::new().name(format!("impair-{number}")).spawn(move || {
            let worked = place.inside_here(|| {
                let shell = Shell::open(number, Lane::new(impairment, rng), counted)?;
                // Nobody waits any more: the thread is asked to end, too.
                let _ = ready.send(Ok(()));
                shell.work(&woken)
            });
            if let Err(error) = worked {
                tracing::debug!("packets are not impaired any more: {error}");
                let _ = ready.send(Err(error));
            }
        })?;
        let mut impairer =
            Self { counters, wake: Some(wake), thread: Some(thread), namespace, rules: Vec::new() };
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

    /// Ends: rules first, then what still waits is let go; what was done to packets.
    ///
    /// # Errors
    /// A rule could not be taken away; packets pass all the same.
    pub fn end(mut self) -> io::Result<Done> {
        let removed = self.remove_rules();
        self.stop();
        removed.map(|()| *lock(&self.counters))
    }

    fn remove_rules(&mut self) -> io::Result<()> {
        let rules = std::mem::take(&mut self.rules);
        rules.iter().map(|rule| self.iptables("-D", rule)).fold(Ok(()), Result::and)
    }

    fn stop(&mut self) {
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
    counters: Counters,
    begun: Instant,
    /// By when they go, and then in the order in which they came.
    held: BTreeMap<(Duration, u64), Held>,
    next: u64,
}

struct Held {
    packet: Packet,
    changed: bool,
    twice: bool,
}

impl<R: Rng> Shell<R> {
    fn open(number: u16, lane: Lane<R>, counters: Counters) -> io::Result<Self> {
        Ok(Self {
            queue: Queue::open(number)?,
            lane,
            second: None,
            counters,
            begun: Instant::now(),
            held: BTreeMap::new(),
            next: 0,
        })
    }

    /// Works until the other end of `woken` is closed; then lets go what waits.
    fn work(mut self, woken: &OwnedFd) -> io::Result<()> {
        while !self.wait(woken)? {
            for packet in self.queue.packets()? {
                self.take(packet)?;
            }
            self.let_go(self.begun.elapsed())?;
        }
        self.let_go(Duration::MAX)
    }

    /// Waits for packets, or until one is due. Whether all is over.
    fn wait(&self, woken: &OwnedFd) -> io::Result<bool> {
        let timeout = self.held.first_key_value().map_or(PollTimeout::NONE, |((at, _), _)| {
            // Rounded up: a packet that goes too early is not delayed.
            let wait = at.saturating_sub(self.begun.elapsed());
            PollTimeout::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(PollTimeout::MAX)
        });
        let mut places = [
            PollFd::new(self.queue.fd(), PollFlags::POLLIN),
            PollFd::new(woken.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut places, timeout) {
            Ok(_) => Ok(places[1].any().unwrap_or(true)),
            Err(nix::Error::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn take(&mut self, mut packet: Packet) -> io::Result<()> {
        let headers = header_bytes(&packet.bytes);
        let fate = self.lane.fate(packet.bytes.len(), headers, self.begun.elapsed());
        let mut done = lock(&self.counters);
        done.seen += 1;
        let Fate::Goes { at, twice, overtaken, wrong_bit } = fate else {
            done.lost += 1;
            return self.queue.decide(packet.id, false, None);
        };
        done.reordered += u64::from(overtaken);
        let wrong = wrong_bit.and_then(|bit| Some((packet.bytes.get_mut(bit / 8)?, bit % 8)));
        let changed = wrong.is_some();
        if let Some((byte, bit)) = wrong {
            *byte ^= 1 << bit;
            done.corrupted += 1;
        }
        self.held.insert((at, self.next), Held { packet, changed, twice });
        self.next += 1;
        Ok(())
    }

    /// Lets go what is due at `now`.
    fn let_go(&mut self, now: Duration) -> io::Result<()> {
        while let Some(first) = self.held.first_entry()
            && first.key().0 <= now
        {
            let held = first.remove();
            let bytes = held.changed.then_some(held.packet.bytes.as_slice());
            self.queue.decide(held.packet.id, true, bytes)?;
            if held.twice && self.send_again(&held.packet.bytes).is_ok() {
                lock(&self.counters).duplicated += 1;
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
