//! Packets of a network namespace in user space, by the kernel's queues (`NFQUEUE`): they wait in the kernel until
//! they are let go. The messages are those of `linux/netfilter/nfnetlink_queue.h`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    setsockopt, socket, sockopt,
};

const SUBSYSTEM: u16 = 3;
const MSG_PACKET: u16 = 0;
const MSG_VERDICT: u16 = 1;
const MSG_CONFIG: u16 = 2;
const CONFIG_COMMAND: u16 = 1;
const CONFIG_PARAMETERS: u16 = 2;
const CONFIG_MOST_WAITING: u16 = 3;
const COMMAND_BIND: u8 = 1;
const FAMILY_INET: u8 = 2;
const COPY_PACKET: u8 = 2;
const PACKET_HEADER: u16 = 1;
const VERDICT_HEADER: u16 = 2;
const PAYLOAD: u16 = 10;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLMSG_ERROR: u16 = 2;
/// Of netlink's header, and of netfilter's after it.
const HEADER_BYTES: usize = 16;
const FAMILY_BYTES: usize = 4;
/// More than the longest message: the kernel hands packets over in pieces of a link's size.
const BUFFER_BYTES: usize = 128 * 1024;
/// What the socket holds before packets are dropped.
const SOCKET_BYTES: usize = 8 * 1024 * 1024;
/// Packets that may wait in the kernel.
const MOST_WAITING: u32 = 65_536;

/// A packet that waits in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// Its number in the queue.
    pub(super) id: u32,
    /// From the IP header on.
    pub(super) bytes: Vec<u8>,
}

/// A queue of the namespace in which it was opened.
pub(super) struct Queue {
    socket: OwnedFd,
    number: u16,
    buffer: Vec<u8>,
}

impl Queue {
    /// Opens queue `number` in the network namespace of this thread.
    ///
    /// # Errors
    /// The kernel has no such queues, or somebody else has this one.
    pub(super) fn open(number: u16) -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkNetFilter,
        )?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BYTES)
            .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &SOCKET_BYTES))?;
        let mut queue = Self { socket, number, buffer: vec![0; BUFFER_BYTES] };
        queue.configure(CONFIG_COMMAND, &[COMMAND_BIND, 0, 0, FAMILY_INET])?;
        let [a, b, c, d] = u32::from(u16::MAX).to_be_bytes();
        queue.configure(CONFIG_PARAMETERS, &[a, b, c, d, COPY_PACKET])?;
        queue.configure(CONFIG_MOST_WAITING, &MOST_WAITING.to_be_bytes())?;
        Ok(queue)
    }

    /// To wait for packets.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn configure(&mut self, attribute: u16, value: &[u8]) -> io::Result<()> {
        let flags = NLM_F_REQUEST | NLM_F_ACK;
        let text = message(MSG_CONFIG, flags, self.number, &[(attribute, value)]);
        send(self.socket.as_raw_fd(), &text, MsgFlags::empty())?;
        let length = recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::empty())?;
        let answer = self.buffer.get(..length).unwrap_or_default();
        let code = number_at(answer, HEADER_BYTES).map_or(0, u32::cast_signed);
        match kind_of(answer) {
            Some(NLMSG_ERROR) if code == 0 => Ok(()),
            Some(NLMSG_ERROR) => Err(io::Error::from_raw_os_error(-code)),
            _ => Err(io::Error::other("the kernel's packet queue gave no answer")),
        }
    }

    /// The packets that have come, without waiting.
    ///
    /// # Errors
    /// The socket; more packets than it holds are no error, they are lost like on any link.
    pub(super) fn packets(&mut self) -> io::Result<Vec<Packet>> {
        let mut packets = Vec::new();
        loop {
            match recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => {
                    packets.extend(read(self.buffer.get(..length).unwrap_or_default()));
                }
                Err(nix::Error::EAGAIN) => return Ok(packets),
                Err(nix::Error::EINTR | nix::Error::ENOBUFS) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Lets a packet go, with other bytes if that is wanted, or drops it.
    ///
    /// # Errors
    /// The socket.
    pub(super) fn decide(&self, id: u32, pass: bool, bytes: Option<&[u8]>) -> io::Result<()> {
        let header = [u32::from(pass).to_be_bytes(), id.to_be_bytes()].concat();
        let mut attributes = vec![(VERDICT_HEADER, &header[..])];
        attributes.extend(bytes.map(|bytes| (PAYLOAD, bytes)));
        let text = message(MSG_VERDICT, NLM_F_REQUEST, self.number, &attributes);
        send(self.socket.as_raw_fd(), &text, MsgFlags::empty())?;
        Ok(())
    }
}

fn message(kind: u16, flags: u16, queue: u16, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut text = vec![0; 4];
    text.extend(((SUBSYSTEM << 8) | kind).to_ne_bytes());
    text.extend(flags.to_ne_bytes());
    text.extend([0; 8]);
    text.extend([0, 0]);
    text.extend(queue.to_be_bytes());
    for (kind, value) in attributes {
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        text.extend(length.to_ne_bytes());
        text.extend(kind.to_ne_bytes());
        text.extend(*value);
        text.resize(text.len().next_multiple_of(4), 0);
    }
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    text.splice(..4, length.to_ne_bytes());
    text
}

fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn kind_of(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?))
}

/// The packets in what the kernel sent.
fn read(mut bytes: &[u8]) -> Vec<Packet> {
    let mut packets = Vec::new();
    while let Some(length) = number_at(bytes, 0).and_then(|length| usize::try_from(length).ok()) {
        if length < HEADER_BYTES {
            break;
        }
        if kind_of(bytes) == Some((SUBSYSTEM << 8) | MSG_PACKET) {
            let attributes = bytes.get(HEADER_BYTES + FAMILY_BYTES..length.min(bytes.len()));
            packets.extend(attributes.and_then(packet));
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    packets
}

fn packet(mut attributes: &[u8]) -> Option<Packet> {
    /// The rest of an attribute's kind are flags.
    const KIND: u16 = 0x3fff;
    let (mut id, mut bytes) = (None, Vec::new());
    while let Some(head) = attributes.first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let value = attributes.get(4..length)?;
        match u16::from_ne_bytes([head[2], head[3]]) & KIND {
            PACKET_HEADER => id = Some(u32::from_be_bytes(*value.first_chunk()?)),
            PAYLOAD => bytes = value.to_vec(),
            _ => {}
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(Packet { id: id?, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_read_from_among_other_attributes() {
        let header = [7_u32.to_be_bytes(), [8, 0, 3, 0]].concat();
        let attributes =
            [(PACKET_HEADER, &header[..7]), (9, &b"other"[..]), (PAYLOAD, &b"packet"[..])];
        let mut text = message(MSG_PACKET, 0, 1, &attributes);
        assert_eq!(read(&text), [Packet { id: 7, bytes: b"packet".to_vec() }]);
        text.truncate(text.len() - 3);
        assert!(read(&text).is_empty(), "a cut message holds nothing");
    }
}
