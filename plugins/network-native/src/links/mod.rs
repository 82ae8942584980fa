//! Links, addresses and routes of one network namespace, by rtnetlink(7).

pub(crate) mod veth;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::address::{self, Prefixed};
use crate::netlink::attributes::{Attributes, find, find_u32, text};
use crate::netlink::{Answer, Message, Socket};

const NEWLINK: u16 = 16;
const DELLINK: u16 = 17;
const GETLINK: u16 = 18;
const SETLINK: u16 = 19;
const NEWADDR: u16 = 20;
const DELADDR: u16 = 21;
const GETADDR: u16 = 22;
const NEWROUTE: u16 = 24;
const DELROUTE: u16 = 25;
const GETROUTE: u16 = 26;

/// Make what is not there.
pub(crate) const CREATE: u16 = 0x400;
/// Refuse what is there.
pub(crate) const EXCLUSIVE: u16 = 0x200;

const ADDRESS: u16 = 1;
const NAME: u16 = 3;
const MTU: u16 = 4;
const LINK: u16 = 5;
const MASTER: u16 = 10;
const PORT: u16 = 12;
const QUEUE: u16 = 13;
const STATE: u16 = 16;
const INFO: u16 = 18;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const NAMESPACE: u16 = 28;
const PROMISCUITY: u16 = 30;
const VETH_PEER: u16 = 1;
const PORT_HAIRPIN: u16 = 4;
const PORT_ISOLATED: u16 = 33;

pub(crate) const UP: u32 = 1;
pub(crate) const PROMISCUOUS: u32 = 0x100;
pub(crate) const ALL_MULTICAST: u32 = 0x200;
/// `IF_OPER_UP`.
pub(crate) const OPERATING: u8 = 6;

const UNSPECIFIED: u8 = 0;
const BRIDGE: u8 = 7;
const INET: u8 = 2;
const INET6: u8 = 10;

const TENTATIVE: u32 = 0x40;
const DUPLICATE: u32 = 0x08;

/// The main table and the protocol of routes that an administrator's program makes.
const MAIN: u8 = 254;
const BOOT: u8 = 3;
const UNICAST: u8 = 1;
pub(crate) const UNIVERSE: u8 = 0;
pub(crate) const ON_LINK: u8 = 253;
pub(crate) const ON_HOST: u8 = 254;
pub(crate) const NOWHERE: u8 = 255;

/// A link as the kernel tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) flags: u32,
    pub(crate) name: String,
    pub(crate) mac: Vec<u8>,
    pub(crate) mtu: u32,
    /// The index of a veth's other end, in that one's namespace.
    pub(crate) peer: Option<u32>,
    pub(crate) master: Option<u32>,
    pub(crate) state: u8,
    pub(crate) kind: String,
    pub(crate) promiscuity: u32,
    pub(crate) queue: u32,
}

impl Link {
    pub(crate) fn mac_text(&self) -> String {
        let parts: Vec<_> = self.mac.iter().map(|byte| format!("{byte:02x}")).collect();
        parts.join(":")
    }

    fn read(body: &[u8]) -> Option<Self> {
        let attributes = body.get(16..)?;
        let value = |kind| find(attributes, kind);
        let info = value(INFO).unwrap_or_default();
        Some(Self {
            index: u32::from_ne_bytes(body[4..8].try_into().ok()?),
            flags: u32::from_ne_bytes(body[8..12].try_into().ok()?),
            name: text(value(NAME)?),
            mac: value(ADDRESS).unwrap_or_default().to_vec(),
            mtu: find_u32(attributes, MTU).unwrap_or_default(),
            peer: find_u32(attributes, LINK),
            master: find_u32(attributes, MASTER),
            state: value(STATE)
                .and_then(|bytes| bytes.first().copied())
                .unwrap_or_default(),
            kind: find(info, INFO_KIND).map(text).unwrap_or_default(),
            promiscuity: find_u32(attributes, PROMISCUITY).unwrap_or_default(),
            queue: find_u32(attributes, QUEUE).unwrap_or_default(),
        })
    }
}

/// An address of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkAddress {
    pub(crate) link: u32,
    pub(crate) prefixed: Prefixed,
    pub(crate) flags: u32,
}

impl LinkAddress {
    /// Duplicates are still looked for.
    pub(crate) fn is_tentative(&self) -> bool {
        self.flags & TENTATIVE != 0
    }

    pub(crate) fn is_duplicate(&self) -> bool {
        self.flags & DUPLICATE != 0
    }
}

/// A route that is made, or looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) destination: Prefixed,
    pub(crate) gateway: Option<IpAddr>,
    pub(crate) source: Option<IpAddr>,
    pub(crate) link: u32,
    pub(crate) priority: Option<u32>,
    pub(crate) table: Option<u32>,
    pub(crate) scope: u8,
}

impl Route {
    pub(crate) fn to(destination: Prefixed, link: u32) -> Self {
        Self {
            destination,
            gateway: None,
            source: None,
            link,
            priority: None,
            table: None,
            scope: UNIVERSE,
        }
    }
}

/// The links of the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Links {
    socket: Socket,
}

impl Links {
    pub(crate) fn open() -> io::Result<Self> {
        let socket = Socket::route()?;
        Ok(Self { socket })
    }

    pub(crate) fn socket(&mut self) -> &mut Socket {
        &mut self.socket
    }

    /// Returns the link of a name; none where there is none.
    pub(crate) fn find(&mut self, name: &str) -> io::Result<Option<Link>> {
        let message = link_message(GETLINK, 0, (UNSPECIFIED, 0, 0, 0));
        self.one(Message {
            attributes: Attributes::new().text(NAME, name),
            ..message
        })
    }

    /// Returns the link of an index; none where there is none.
    pub(crate) fn at(&mut self, index: u32) -> io::Result<Option<Link>> {
        self.one(link_message(GETLINK, 0, (UNSPECIFIED, index, 0, 0)))
    }

    fn one(&mut self, message: Message) -> io::Result<Option<Link>> {
        match self.socket.get(&message) {
            Ok(answers) => Ok(answers.iter().find_map(|answer| Link::read(&answer.body))),
            Err(error) if is(&error, Errno::NODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the link of a name, which must be there.
    pub(crate) fn named(&mut self, name: &str) -> io::Result<Link> {
        let found = self.find(name)?;
        found.ok_or_else(|| io::Error::other(format!("there is no link {name:?}")))
    }

    /// Makes a link of a kind; fails where its name is taken.
    pub(crate) fn make(&mut self, kind: &str, name: &str, with: &Attributes) -> io::Result<()> {
        let info = Attributes::new().text(INFO_KIND, kind);
        let message = link_message(NEWLINK, CREATE | EXCLUSIVE, (UNSPECIFIED, 0, 0, 0));
        self.socket.change(&Message {
            attributes: Attributes::new()
                .text(NAME, name)
                .and(with)
                .nested(INFO, info),
            ..message
        })
    }

    /// Makes a pair: `name` here, and the other end in the namespace `there`.
    pub(crate) fn make_veth(
        &mut self,
        name: &str,
        there: BorrowedFd<'_>,
        (peer, mtu, mac): (&str, Option<u32>, Option<&[u8]>),
    ) -> io::Result<()> {
        let sized = |attributes: Attributes| match mtu {
            Some(mtu) => attributes.u32(MTU, mtu),
            None => attributes,
        };
        let descriptor = u32::try_from(there.as_raw_fd()).map_err(io::Error::other)?;
        let mut end = sized(Attributes::new().text(NAME, peer)).u32(NAMESPACE, descriptor);
        if let Some(mac) = mac {
            end = end.bytes(ADDRESS, mac);
        }
        // The other end's attributes stand behind a head of a link's message.
        let mut inner = vec![0; 16];
        inner.extend(end.as_bytes());
        let data = Attributes::new().bytes(VETH_PEER, &inner);
        let info = Attributes::new()
            .text(INFO_KIND, "veth")
            .nested(INFO_DATA, data);
        let message = link_message(NEWLINK, CREATE | EXCLUSIVE, (UNSPECIFIED, 0, 0, 0));
        self.socket.change(&Message {
            attributes: sized(Attributes::new().text(NAME, name)).nested(INFO, info),
            ..message
        })
    }

    /// Sets flags of a link: those of `change` to what they are in `flags`.
    pub(crate) fn set_flags(&mut self, index: u32, flags: u32, change: u32) -> io::Result<()> {
        self.socket.change(&link_message(
            NEWLINK,
            0,
            (UNSPECIFIED, index, flags, change),
        ))
    }

    pub(crate) fn set_up(&mut self, index: u32) -> io::Result<()> {
        self.set_flags(index, UP, UP)
    }

    fn set(&mut self, index: u32, attributes: Attributes) -> io::Result<()> {
        let message = link_message(SETLINK, 0, (UNSPECIFIED, index, 0, 0));
        self.socket.change(&Message {
            attributes,
            ..message
        })
    }

    /// Makes a link a port of a bridge, and sets it up.
    pub(crate) fn set_master(&mut self, index: u32, master: u32) -> io::Result<()> {
        let message = link_message(NEWLINK, 0, (UNSPECIFIED, index, UP, UP));
        self.socket.change(&Message {
            attributes: Attributes::new().u32(MASTER, master),
            ..message
        })
    }

    pub(crate) fn set_mac(&mut self, index: u32, mac: &[u8]) -> io::Result<()> {
        self.set(index, Attributes::new().bytes(ADDRESS, mac))
    }

    pub(crate) fn set_mtu(&mut self, index: u32, mtu: u32) -> io::Result<()> {
        self.set(index, Attributes::new().u32(MTU, mtu))
    }

    pub(crate) fn set_queue(&mut self, index: u32, length: u32) -> io::Result<()> {
        self.set(index, Attributes::new().u32(QUEUE, length))
    }

    /// Sets how a bridge treats one of its ports.
    pub(crate) fn set_port(
        &mut self,
        index: u32,
        (hairpin, isolated): (bool, bool),
    ) -> io::Result<()> {
        let port = Attributes::new()
            .u8(PORT_HAIRPIN, hairpin.into())
            .u8(PORT_ISOLATED, isolated.into());
        let message = link_message(SETLINK, 0, (BRIDGE, index, 0, 0));
        self.socket.change(&Message {
            attributes: Attributes::new().nested(PORT, port),
            ..message
        })
    }

    /// Deletes a link; one that is gone already is well.
    pub(crate) fn delete(&mut self, index: u32) -> io::Result<()> {
        let gone = self
            .socket
            .change(&link_message(DELLINK, 0, (UNSPECIFIED, index, 0, 0)));
        match gone {
            Err(error) if is(&error, Errno::NODEV) => Ok(()),
            other => other,
        }
    }

    /// Returns the addresses of a link.
    pub(crate) fn addresses(&mut self, index: u32) -> io::Result<Vec<LinkAddress>> {
        let message = Message {
            kind: GETADDR,
            flags: 0,
            head: address_head(UNSPECIFIED, 0, 0),
            attributes: Attributes::new(),
        };
        let all = self.socket.list(&message)?;
        let read = all.iter().filter_map(|answer| read_address(&answer.body));
        Ok(read.filter(|address| address.link == index).collect())
    }

    pub(crate) fn add_address(&mut self, index: u32, of: Prefixed) -> io::Result<()> {
        self.address(NEWADDR, CREATE | EXCLUSIVE, (index, of))
    }

    pub(crate) fn delete_address(&mut self, index: u32, of: Prefixed) -> io::Result<()> {
        self.address(DELADDR, 0, (index, of))
    }

    fn address(&mut self, kind: u16, flags: u16, (index, of): (u32, Prefixed)) -> io::Result<()> {
        let bytes = address::bytes(of.address);
        let mut attributes = Attributes::new().bytes(2, &bytes).bytes(1, &bytes);
        if let IpAddr::V4(_) = of.address
            && kind == NEWADDR
            && of.length < 31
        {
            let host = !of.mask() & u128::from(u32::MAX);
            let broadcast = address::from(address::number(of.address) | host, of.address);
            attributes = attributes.bytes(4, &address::bytes(broadcast));
        }
        self.socket.change(&Message {
            kind,
            flags,
            head: address_head(family(of.address), of.length, index),
            attributes,
        })
    }

    pub(crate) fn add_route(&mut self, route: &Route, flags: u16) -> io::Result<()> {
        self.socket
            .change(&route_message(NEWROUTE, CREATE | flags, route))
    }

    pub(crate) fn delete_route(&mut self, route: &Route) -> io::Result<()> {
        self.socket.change(&route_message(DELROUTE, 0, route))
    }

    /// Returns the destinations and gateways of a link's routes, in all tables.
    pub(crate) fn routes(&mut self) -> io::Result<Vec<(Prefixed, Option<IpAddr>)>> {
        let message = Message {
            kind: GETROUTE,
            flags: 0,
            head: vec![0; 12],
            attributes: Attributes::new(),
        };
        let all = self.socket.list(&message)?;
        Ok(all
            .iter()
            .filter_map(|answer| read_route(&answer.body))
            .collect())
    }

    /// Returns the index of the link by which an address is reached; none where it is not.
    pub(crate) fn way_to(&mut self, address: IpAddr) -> Option<u32> {
        let message = Message {
            kind: GETROUTE,
            flags: 0,
            head: route_head(Prefixed::host(address), 0, (0, 0), 0),
            attributes: Attributes::new().bytes(1, &address::bytes(address)),
        };
        let answers = self.socket.get(&message).ok()?;
        let found = |answer: &Answer| find_u32(answer.body.get(12..)?, 4);
        answers.iter().find_map(found)
    }
}

/// Tells whether an error of the kernel is this one.
pub(crate) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

pub(crate) fn mtu(bytes: u32) -> Attributes {
    Attributes::new().u32(MTU, bytes)
}

fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => INET,
        IpAddr::V6(_) => INET6,
    }
}

fn link_message(
    kind: u16,
    flags: u16,
    (family, index, up, change): (u8, u32, u32, u32),
) -> Message {
    let mut head = vec![family, 0, 0, 0];
    head.extend(index.to_ne_bytes());
    head.extend(up.to_ne_bytes());
    head.extend(change.to_ne_bytes());
    Message {
        kind,
        flags,
        head,
        attributes: Attributes::new(),
    }
}

fn address_head(family: u8, length: u8, index: u32) -> Vec<u8> {
    let mut head = vec![family, length, 0, 0];
    head.extend(index.to_ne_bytes());
    head
}

fn read_address(body: &[u8]) -> Option<LinkAddress> {
    let (head, attributes) = (body.get(..8)?, body.get(8..)?);
    let local = find(attributes, 2).or_else(|| find(attributes, 1))?;
    let flags = find_u32(attributes, 8).unwrap_or_else(|| head[2].into());
    Some(LinkAddress {
        link: u32::from_ne_bytes(head[4..8].try_into().ok()?),
        prefixed: Prefixed {
            address: address::from_bytes(local)?,
            length: head[1],
        },
        flags,
    })
}

fn route_head(to: Prefixed, table: u8, (protocol, scope): (u8, u8), kind: u8) -> Vec<u8> {
    let mut head = vec![
        family(to.address),
        to.length,
        0,
        0,
        table,
        protocol,
        scope,
        kind,
    ];
    head.extend(0_u32.to_ne_bytes());
    head
}

fn route_message(kind: u16, flags: u16, route: &Route) -> Message {
    let to = route.destination;
    let making = kind == NEWROUTE;
    let table = match route.table {
        None => MAIN,
        // The attribute has the number where it is too large for the head.
        Some(table) => u8::try_from(table).unwrap_or(0),
    };
    let head = match making {
        true => route_head(to, table, (BOOT, route.scope), UNICAST),
        false => route_head(to, table, (0, route.scope), 0),
    };
    let mut attributes = Attributes::new().u32(4, route.link);
    if to.length > 0 {
        attributes = attributes.bytes(1, &address::bytes(to.network().address));
    }
    if let Some(gateway) = route.gateway {
        attributes = attributes.bytes(5, &address::bytes(gateway));
    }
    if let Some(source) = route.source {
        attributes = attributes.bytes(7, &address::bytes(source));
    }
    if let Some(priority) = route.priority {
        attributes = attributes.u32(6, priority);
    }
    if let Some(table) = route.table {
        attributes = attributes.u32(15, table);
    }
    Message {
        kind,
        flags,
        head,
        attributes,
    }
}

fn read_route(body: &[u8]) -> Option<(Prefixed, Option<IpAddr>)> {
    let (head, attributes) = (body.get(..12)?, body.get(12..)?);
    let zero = match head[0] {
        INET => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        INET6 => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let destination = find(attributes, 1).and_then(address::from_bytes);
    let destination = Prefixed {
        address: destination.unwrap_or(zero),
        length: head[1],
    };
    Some((
        destination,
        find(attributes, 5).and_then(address::from_bytes),
    ))
}
