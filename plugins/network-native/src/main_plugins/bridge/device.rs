//! The bridge itself, and the node's end of a pair as its port.

use std::time::Duration;

use blocking_pool::Cancel;
use network_cni::{Call, CniError, CniResult};
use rustix::io::Errno;

use crate::address::Prefixed;
use crate::failure::{OrFail, fail};
use crate::links::{Link, Links, OPERATING, PROMISCUOUS, is, mtu};
use crate::netlink::attributes::Attributes;
use crate::sysctl;

/// How long a port may take until packets pass; the program waits as long.
const PORT_TIMEOUT: Duration = Duration::from_millis(2550);
const PORT_INTERVAL: Duration = Duration::from_millis(1);

/// Returns a bridge by its name.
pub(super) fn find(links: &mut Links, name: &str) -> Result<Link, CniError> {
    let link = links.named(name);
    let link = link.or_fail(format!("could not lookup {name:?}"))?;
    match link.kind.as_str() {
        "bridge" => Ok(link),
        _ => Err(fail(format!("{name:?} already exists but is not a bridge"))),
    }
}

/// Makes a bridge unless it is there, and sets it up.
pub(super) fn ensure(
    links: &mut Links,
    name: &str,
    bytes: u32,
    promiscuous: bool,
) -> Result<Link, CniError> {
    if links
        .find(name)
        .or_fail(format!("could not lookup {name:?}"))?
        .is_none()
    {
        let with = match bytes {
            0 => Attributes::new(),
            bytes => mtu(bytes),
        };
        match links.make("bridge", name, &with) {
            // Another pod's ADD was first.
            Err(error) if is(&error, Errno::EXIST) => {}
            made => made.or_fail(format!("could not add {name:?}"))?,
        }
    }
    let bridge = find(links, name)?;
    if promiscuous {
        links
            .set_flags(bridge.index, PROMISCUOUS, PROMISCUOUS)
            .or_fail(format!("could not set promiscuous mode on {name:?}"))?;
    }
    // Its routes are the node's own. A kernel without IPv6 has no such parameter.
    drop(sysctl::write(
        &format!("net/ipv6/conf/{name}/accept_ra"),
        "0",
    ));
    links
        .set_up(bridge.index)
        .or_fail(format!("failed to set {name:?} up"))?;
    Ok(bridge)
}

/// Gives the bridge an address unless it has it. Another one of the same network stands in its way.
pub(super) fn ensure_address(
    links: &mut Links,
    name: &str,
    wanted: Prefixed,
    force: bool,
) -> Result<(), CniError> {
    let bridge = find(links, name)?;
    let all = links.addresses(bridge.index);
    let all = all.or_fail("could not get list of IP addresses")?;
    let family = |one: &Prefixed| one.address.is_ipv4() == wanted.address.is_ipv4();
    for has in all.iter().map(|one| one.prefixed).filter(family) {
        if has == wanted {
            return Ok(());
        }
        let overlaps = has.contains(wanted.address) || wanted.contains(has.address);
        if !wanted.address.is_ipv4() && !overlaps {
            continue;
        }
        if !force {
            return Err(fail(format!(
                "failed to set bridge addr: {name:?} already has an IP address different from {wanted}"
            )));
        }
        links
            .delete_address(bridge.index, has)
            .or_fail(format!("could not remove IP address from {name:?}"))?;
    }
    match links.add_address(bridge.index, wanted) {
        Err(error) if is(&error, Errno::EXIST) => {}
        added => added.or_fail(format!("could not add IP address {wanted} to {name:?}"))?,
    }
    // The bridge would take the lowest address of its ports otherwise, and change it as they come and go.
    links
        .set_mac(bridge.index, &bridge.mac)
        .or_fail("could not set bridge's mac")
}

/// Waits until packets pass the port.
pub(super) fn await_port(links: &mut Links, name: &str) -> Result<Link, CniError> {
    let mut waited = Duration::ZERO;
    loop {
        let port = links
            .named(name)
            .or_fail(format!("failed to lookup {name:?}"))?;
        if port.state == OPERATING {
            return Ok(port);
        }
        let rest = Cancel::current().sleep(PORT_INTERVAL);
        if waited >= PORT_TIMEOUT || rest.is_err() {
            return Err(fail(format!("bridge port in error state: {}", port.state)));
        }
        waited += PORT_INTERVAL;
    }
}

/// Checks that the sandbox's end has its other one among the node's links, as a port of the bridge.
pub(super) fn check_pair(
    links: &mut Links,
    (bridge, inside): (&Link, &Link),
    previous: &CniResult,
    call: &Call,
) -> Result<(), CniError> {
    if inside.kind != "veth" {
        let name = &inside.name;
        return Err(fail(format!(
            "Error: Container interface {name} not of type veth"
        )));
    }
    for told in &previous.interfaces {
        let mac = match (told.name.as_str(), told.sandbox.as_str()) {
            (name, "") if name == bridge.name => bridge.mac_text(),
            (name, sandbox) if name == call.interface && sandbox == call.netns => inside.mac_text(),
            _ => continue,
        };
        if !told.mac.is_empty() && told.mac != mac {
            let (name, was) = (&told.name, &told.mac);
            return Err(fail(format!(
                "Interface {name} Mac {was} doesn't match: {mac}"
            )));
        }
    }
    let outside = match inside.peer {
        Some(index) => links.at(index).or_fail("failed to look at links")?,
        None => None,
    };
    let is_port =
        |link: &Link| link.master == Some(bridge.index) && link.peer == Some(inside.index);
    match outside.is_some_and(|link| is_port(&link)) {
        true => Ok(()),
        false => Err(fail(format!(
            "CNI veth created for bridge {} was not found",
            bridge.name
        ))),
    }
}
