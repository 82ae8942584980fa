//! Ports for programs that bind them themselves: held from the pick on, also while such a program is down.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use anyhow::{Result, bail};

/// Below those that the kernel gives to outgoing connections, so that none of these has it when its program binds it.
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

/// A TCP port that no other [`HeldPort`] of this network namespace is, in any process, until this one is dropped.
///
/// Its claim is an abstract Unix socket of the port's name: it belongs to the network namespace as the port does, and ends
/// with the process. The port itself stays free for the program that it is for.
#[derive(Debug)]
pub struct HeldPort {
    number: u16,
    _claim: UnixListener,
}

impl HeldPort {
    /// Picks a port that nothing listens at on any address.
    pub fn pick() -> Result<HeldPort> {
        // Processes that start together look at different ports first.
        let start = std::process::id().wrapping_mul(31);
        for turn in 0..COUNT {
            let number = u16::try_from(FIRST + start.wrapping_add(turn) % COUNT)?;
            let name = SocketAddr::from_abstract_name(format!("oxlet-test-port-{number}"))?;
            if let Ok(claim) = UnixListener::bind_addr(&name)
                && TcpListener::bind((Ipv4Addr::UNSPECIFIED, number)).is_ok()
            {
                return Ok(HeldPort {
                    number,
                    _claim: claim,
                });
            }
        }
        bail!("no free port from {FIRST} to {}", FIRST + COUNT - 1)
    }

    /// Returns the port's number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_port_is_picked_once_while_it_is_held_though_nothing_listens_at_it() {
        let held: Vec<_> = (0..20).map(|_| HeldPort::pick().unwrap()).collect();
        let numbers: BTreeSet<_> = held.iter().map(HeldPort::number).collect();
        assert_eq!(numbers.len(), held.len());
        for port in &held {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).unwrap();
        }
    }

    #[test]
    fn a_port_at_which_something_listens_is_not_picked() {
        let first = HeldPort::pick().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, first.number())).unwrap();
        drop(first);
        let second = HeldPort::pick().unwrap();
        assert_ne!(second.number(), listener.local_addr().unwrap().port());
    }
}
