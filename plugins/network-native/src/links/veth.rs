//! The pair of interfaces between a pod and its node.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::AsFd;

use network_cni::{Call, CniError};
use rustix::io::Errno;

use crate::failure::{OrFail, fail};
use crate::links::{Link, Links, is};
use crate::{conf, sysctl};

/// Names are drawn at random; one that is taken is drawn again.
const NAMES_MAX: usize = 10;

/// What is told of both ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends<'a> {
    /// The name within the sandbox.
    pub(crate) interface: &'a str,
    /// The kernel's default where it is zero.
    pub(crate) mtu: u32,
    /// The kernel draws one where it is empty.
    pub(crate) mac: &'a str,
}

/// Makes a pair, one end in the sandbox. Returns the node's end.
pub(crate) fn make(links: &mut Links, sandbox: &File, ends: Ends<'_>) -> Result<Link, CniError> {
    let mac = match ends.mac {
        "" => None,
        text => Some(
            conf::mac(text).ok_or_else(|| fail(format!("address {text}: invalid MAC address")))?,
        ),
    };
    let mtu = (ends.mtu > 0).then_some(ends.mtu);
    for _ in 0..NAMES_MAX {
        let name = draw();
        let peer = (ends.interface, mtu, mac.as_deref());
        match links.make_veth(&name, sandbox.as_fd(), peer) {
            Ok(()) => {
                let link = links.named(&name);
                let link = link.or_fail(format!("failed to lookup {name:?}"))?;
                // Its routes are the node's own. A kernel without IPv6 has no such parameter.
                drop(sysctl::write(
                    &format!("net/ipv6/conf/{name}/accept_ra"),
                    "0",
                ));
                return Ok(link);
            }
            Err(error) if is(&error, Errno::EXIST) => {
                let taken = links.find(&name).or_fail("failed to look at links")?;
                if taken.is_none() {
                    let interface = ends.interface;
                    return Err(fail(format!(
                        "container veth name ({interface:?}) peer provided ({name:?}) already exists"
                    )));
                }
            }
            Err(error) => return Err(error).or_fail("failed to make veth pair"),
        }
    }
    Err(fail("failed to find a unique veth name"))
}

/// The programs draw theirs in the same way: NetworkManager leaves links of this name alone.
fn draw() -> String {
    let number = RandomState::new().hash_one(std::process::id());
    format!("veth{:08x}", number & u64::from(u32::MAX))
}

/// Deletes the sandbox's end, and with it the node's; well where it is gone.
pub(crate) fn delete(call: &Call) -> Result<(), CniError> {
    let Some(sandbox) = crate::inside::open_if_there(&call.netns)? else {
        return Ok(());
    };
    let name = call.interface.as_str();
    crate::inside::within(&sandbox, |links| {
        let found = links
            .find(name)
            .or_fail(format!("failed to lookup {name:?}"))?;
        match found {
            Some(link) => links
                .delete(link.index)
                .or_fail(format!("failed to delete {name:?}")),
            None => Ok(()),
        }
    })
}
