//! Connections of UDP that the kernel remembers: their packets would go on to where they went before the rules.

use std::io;
use std::net::IpAddr;

use rustix::io::Errno;

use super::rules::Forward;
use crate::links::is;
use crate::netlink::attributes::{Attributes, find};
use crate::netlink::{Message, Socket};

const SUBSYSTEM: u16 = 1 << 8;
const GET: u16 = SUBSYSTEM | 1;
const DELETE: u16 = SUBSYSTEM | 2;
const ORIGINAL: u16 = 1;
const ZONE: u16 = 18;
const TUPLE_PROTOCOL: u16 = 2;
const NUMBER: u16 = 1;
const DESTINATION_PORT: u16 = 3;
const UDP: u8 = 17;

/// Forgets the connections to the ports, of the address's version.
pub(super) fn forget(address: IpAddr, forwards: &[Forward]) -> io::Result<()> {
    let ports = forwards.iter().filter(|forward| forward.protocol == UDP);
    let ports: Vec<_> = ports.map(|forward| forward.port).collect();
    if ports.is_empty() {
        return Ok(());
    }
    let family = if address.is_ipv4() { 2 } else { 10 };
    let message = |kind, attributes| Message {
        kind,
        flags: 0,
        head: vec![family, 0, 0, 0],
        attributes,
    };
    let mut socket = Socket::netfilter()?;
    for entry in socket.list(&message(GET, Attributes::new()))? {
        let Some((tuple, attributes)) = entry
            .body
            .get(4..)
            .and_then(|body| Some((find(body, ORIGINAL)?, body)))
        else {
            continue;
        };
        if !is_udp_to(tuple, &ports) {
            continue;
        }
        let mut which = Attributes::new().nested_bytes(ORIGINAL, tuple);
        if let Some(zone) = find(attributes, ZONE) {
            which = which.bytes(ZONE, zone);
        }
        match socket.change(&message(DELETE, which)) {
            Err(error) if is(&error, Errno::NOENT) => {}
            gone => gone?,
        }
    }
    Ok(())
}

fn is_udp_to(tuple: &[u8], ports: &[u16]) -> bool {
    let protocol = find(tuple, TUPLE_PROTOCOL).unwrap_or_default();
    let port = find(protocol, DESTINATION_PORT).and_then(|bytes| bytes.try_into().ok());
    find(protocol, NUMBER) == Some(&[UDP])
        && port.is_some_and(|port| ports.contains(&u16::from_be_bytes(port)))
}
