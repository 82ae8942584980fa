//! Ports of the node at 127.0.0.1 that lead to a pod, without opening the node's own services there.
//!
//! The kernel routes packets from or to 127.0.0.0/8 through a link only if the link's `route_localnet` is on. It must
//! be on for 127.0.0.1:hostPort to reach a pod, but it also lets in what comes from the link for 127.0.0.1
//! (CVE-2020-8558). [`guard`] drops those packets, and is in force before the parameter is written.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use network_cni::CniError;

use crate::address::Prefixed;
use crate::failure::OrFail;
use crate::links::Links;
use crate::nftables::{Batch, Expressions, Family, RAW_PREROUTING, Side, Tables, Target};
use crate::sysctl;

/// A table of our own: the standard plugins never touch it, and nothing here deletes it, because a bridge keeps its
/// `route_localnet` after its last pod.
const TABLE: &str = "oxlet_localnet";
const TABLE_WORDS: &str = "Packets from other links never reach 127.0.0.0/8";
const CHAIN: &str = "prerouting";
/// 127.0.0.0/8
const LOOPBACK: Prefixed = Prefixed {
    address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)),
    length: 8,
};

/// Lets packets from 127.0.0.1 pass to the pod with this address.
pub(super) fn open_to(address: IpAddr) -> Result<(), CniError> {
    let links = &mut Links::open().or_fail("failed to open a netlink socket")?;
    let Some(index) = links.way_to(address) else {
        return Ok(());
    };
    let Some(link) = links.at(index).or_fail("failed to look at links")? else {
        return Ok(());
    };
    guard().or_fail("unable to keep other links from 127.0.0.0/8")?;
    let parameter = format!("net/ipv4/conf/{}/route_localnet", link.name);
    sysctl::write(&parameter, "1").or_fail("unable to enable route_localnet")
}

/// Drops what other links send to 127.0.0.0/8. Answers of pods pass: the chain comes before the translation of
/// addresses, where they are still for the address of the pod's gateway.
pub(super) fn guard() -> io::Result<()> {
    Tables::open()?.change(|_| {
        let mut batch = Batch::new(Family::V4, TABLE);
        batch.table(Some(TABLE_WORDS));
        batch.base_chain(CHAIN, RAW_PREROUTING);
        // One transaction: the rule is never missing in between.
        batch.flush(CHAIN);
        let rule = Expressions::new()
            .not_from_loopback()
            .within(Side::Destination, LOOPBACK)
            .verdict(Target::Drop);
        batch.rule(CHAIN, rule, None);
        Ok(batch)
    })
}
