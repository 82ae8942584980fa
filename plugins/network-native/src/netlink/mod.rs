//! Netlink: requests, their answers, and batches. One codec serves routes, traffic control and nf_tables
//! (`docs/decisions/0031-standard-plugins-built-in.md`).
//!
//! A socket belongs to the namespace of the thread that opens it, and may be used from any other.

pub(crate) mod attributes;

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto,
    socket_with,
};

use self::attributes::Attributes;

const REQUEST: u16 = 1;
const ACK: u16 = 4;
const DUMP: u16 = 0x300;
const DUMP_INTERRUPTED: u16 = 0x10;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const HEADER: usize = 16;
/// The kernel answers at once; one that does not is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The kernel fills dumps in pieces of 32 KiB at most.
const BUFFER: usize = 64 << 10;
/// A list that changes while it is told is asked for again.
const DUMPS_MAX: usize = 20;

/// A message: a kind, flags, a fixed head and attributes.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) head: Vec<u8>,
    pub(crate) attributes: Attributes,
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) kind: u16,
    pub(crate) body: Vec<u8>,
}

/// A socket of one namespace.
#[derive(Debug)]
pub(crate) struct Socket {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket for routes, links and traffic control.
    pub(crate) fn route() -> io::Result<Self> {
        // NETLINK_ROUTE is protocol 0, which is what no protocol means.
        Self::open(None)
    }

    /// Opens a socket for nf_tables and connection tracking.
    pub(crate) fn netfilter() -> io::Result<Self> {
        Self::open(Some(NETFILTER))
    }

    fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        let socket = socket_with(family, SocketType::RAW, flags, protocol)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
        Ok(Self {
            socket,
            sequence: 0,
            buffer: vec![0; BUFFER],
        })
    }

    /// Asks for a change and waits until it is done.
    pub(crate) fn change(&mut self, message: &Message) -> io::Result<()> {
        let sequence = self.send(&[message], ACK)?;
        self.read(sequence, 1).map(drop)
    }

    /// Asks for one thing.
    pub(crate) fn get(&mut self, message: &Message) -> io::Result<Vec<Answer>> {
        let sequence = self.send(&[message], ACK)?;
        self.read(sequence, 1).map(|(answers, _)| answers)
    }

    /// Asks for a list.
    pub(crate) fn list(&mut self, message: &Message) -> io::Result<Vec<Answer>> {
        for _ in 0..DUMPS_MAX {
            let sequence = self.send(&[message], DUMP)?;
            let (answers, whole) = self.read(sequence, 1)?;
            if whole {
                return Ok(answers);
            }
        }
        Err(io::Error::other("the list changes all the time"))
    }

    /// Sends messages as one; only those with `NLM_F_ACK` are acknowledged. Returns the notifications of those with
    /// `NLM_F_ECHO`.
    pub(crate) fn batch(&mut self, messages: &[&Message]) -> io::Result<Vec<Answer>> {
        let asked = messages.iter().filter(|message| message.flags & ACK != 0);
        let count = asked.count();
        let sequence = self.send(messages, 0)?;
        self.read(sequence, count).map(|(answers, _)| answers)
    }

    /// Returns the number of the first message; those of a batch have all the same.
    fn send(&mut self, messages: &[&Message], flags: u16) -> io::Result<u32> {
        self.sequence += 1;
        let mut bytes = Vec::with_capacity(256 * messages.len());
        for message in messages {
            let length = HEADER + message.head.len() + message.attributes.as_bytes().len();
            let length = u32::try_from(length).map_err(io::Error::other)?;
            bytes.extend(length.to_ne_bytes());
            bytes.extend(message.kind.to_ne_bytes());
            bytes.extend((REQUEST | flags | message.flags).to_ne_bytes());
            bytes.extend(self.sequence.to_ne_bytes());
            bytes.extend(0_u32.to_ne_bytes());
            bytes.extend(&message.head);
            bytes.extend(message.attributes.as_bytes());
        }
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &bytes, SendFlags::empty(), &kernel)?;
        Ok(self.sequence)
    }

    /// Reads answers until so many are acknowledged; tells whether the list is whole.
    fn read(&mut self, sequence: u32, mut awaited: usize) -> io::Result<(Vec<Answer>, bool)> {
        let (mut answers, mut whole) = (Vec::new(), true);
        let mut failed = None;
        while awaited > 0 {
            let (_, length) = self.receive()?;
            let mut rest = &self.buffer[..length.min(self.buffer.len())];
            while let Some((header, body, next)) = split(rest) {
                rest = next;
                if header.sequence != sequence {
                    continue;
                }
                whole &= header.flags & DUMP_INTERRUPTED == 0;
                match header.kind {
                    ERROR | DONE => {
                        failed = failed.or(code(body));
                        awaited = awaited.saturating_sub(1);
                    }
                    kind => answers.push(Answer {
                        kind,
                        body: body.to_vec(),
                    }),
                }
            }
            // A batch that is refused as a whole has no more to say.
            if failed.is_some() {
                break;
            }
        }
        match failed {
            Some(code) => Err(io::Error::from_raw_os_error(code)),
            None => Ok((answers, whole)),
        }
    }

    fn receive(&mut self) -> io::Result<(usize, usize)> {
        loop {
            match recv(&self.socket, &mut self.buffer[..], RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the kernel did not answer in time",
                    ));
                }
                read => return Ok(read?),
            }
        }
    }
}

struct Header {
    kind: u16,
    flags: u16,
    sequence: u32,
}

/// Parts the first message from the rest.
fn split(bytes: &[u8]) -> Option<(Header, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    let length = usize::try_from(length).ok()?;
    let header = Header {
        kind: u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?),
        flags: u16::from_ne_bytes(bytes.get(6..8)?.try_into().ok()?),
        sequence: u32::from_ne_bytes(bytes.get(8..12)?.try_into().ok()?),
    };
    let body = bytes.get(HEADER..length)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((header, body, rest))
}

/// The error number that an acknowledgement or the end of a list carries.
fn code(body: &[u8]) -> Option<i32> {
    let code = i32::from_ne_bytes(body.get(..4)?.try_into().ok()?);
    (code < 0).then_some(code.saturating_neg())
}
