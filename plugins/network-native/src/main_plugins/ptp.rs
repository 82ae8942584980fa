//! ptp: a veth between the sandbox and the node, whose end has the gateway's address; all packets go by it.

use network_cni::{Call, CniError, CniResult, Dns, Interface, Work};
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::address::Prefixed;
use crate::conf::{self, Arguments, NotBuiltIn, Runtime};
use crate::failure::{OrFail, fail};
use crate::host_local::Ipam;
use crate::links::veth::{self, Ends};
use crate::links::{EXCLUSIVE, Link, Links, NOWHERE, ON_HOST, ON_LINK, Route, is};
use crate::main_plugins::bridge::{end_masquerade, forward, holder, masquerade};
use crate::{inside, interface, sysctl};

/// The sandbox's end among the interfaces of a result: behind the node's end.
const INSIDE: u32 = 1;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Conf {
    ip_masq: bool,
    ip_masq_backend: Option<String>,
    mtu: u32,
    ipam: Option<Map<String, Value>>,
    dns: Dns,
    args: Arguments,
    runtime_config: Runtime,
}

/// A call's configuration, read.
#[derive(Debug)]
struct PointToPoint {
    conf: Conf,
    ipam: Ipam,
}

pub(crate) fn plan(call: &Call) -> Result<Work, NotBuiltIn> {
    let ptp = PointToPoint::read(call)?;
    let call = call.clone();
    Ok(Box::new(move || match call.verb {
        "ADD" => ptp.add(&call),
        "DEL" => ptp.delete(&call),
        "CHECK" => ptp.check(&call),
        _ => Ok(CniResult::default()),
    }))
}

impl PointToPoint {
    fn read(call: &Call) -> Result<Self, NotBuiltIn> {
        let conf: Conf = conf::read(call)?;
        match conf.ip_masq_backend.as_deref() {
            None | Some("nftables") => {}
            Some(other) => return Err(NotBuiltIn(format!("ipMasqBackend {other:?}"))),
        }
        let ipam = conf::ipam(call, conf.ipam.as_ref(), (&conf.runtime_config, &conf.args))?;
        let ipam = ipam.ok_or_else(|| NotBuiltIn("no ipam".to_owned()))?;
        Ok(Self { conf, ipam })
    }

    fn add(&self, call: &Call) -> Result<CniResult, CniError> {
        let mut result = self.ipam.add(holder(call))?;
        let made = self.connect(call, &mut result);
        if let Err(error) = made {
            // No DEL may follow.
            self.ipam.delete(holder(call))?;
            return Err(error);
        }
        if conf::says(&self.conf.dns) {
            result.dns.clone_from(&self.conf.dns);
        }
        Ok(result)
    }

    fn connect(&self, call: &Call, result: &mut CniResult) -> Result<(), CniError> {
        let addresses = interface::addresses(result)?;
        forward(&addresses)?;
        let sandbox = inside::open(&call.netns)?;
        let links = &mut Links::open().or_fail("failed to open a netlink socket")?;
        let ends = Ends {
            interface: &call.interface,
            mtu: self.conf.mtu,
            mac: "",
        };
        let outside = veth::make(links, &sandbox, ends)?;
        let name = outside.name.as_str();
        // Nobody but the pod is on this wire: its gateway answers from the first moment, not after two seconds of looking
        // for a duplicate. A kernel without IPv6 has no such parameter.
        drop(sysctl::write(
            &format!("net/ipv6/conf/{name}/accept_dad"),
            "0",
        ));
        links
            .set_up(outside.index)
            .or_fail(format!("failed to set {name:?} up"))?;
        for ip in &mut result.ips {
            ip.interface = Some(INSIDE);
        }
        let given = &*result;
        let inside = inside::within(&sandbox, |links| {
            let link = interface::configure(links, &call.interface, given)?;
            by_gateway(links, &link, given)?;
            Ok(link)
        })?;
        by_veth(links, &outside, result)?;
        if self.conf.ip_masq {
            masquerade(call).set(&addresses)?;
        }
        let told = |link: &Link, sandbox: &str| Interface {
            name: link.name.clone(),
            mac: link.mac_text(),
            sandbox: sandbox.to_owned(),
            ..Interface::default()
        };
        result.interfaces = vec![told(&outside, ""), told(&inside, &call.netns)];
        Ok(())
    }

    fn delete(&self, call: &Call) -> Result<CniResult, CniError> {
        self.ipam.delete(holder(call))?;
        veth::delete(call)?;
        if self.conf.ip_masq {
            end_masquerade(call)?;
        }
        Ok(CniResult::default())
    }

    fn check(&self, call: &Call) -> Result<CniResult, CniError> {
        self.ipam.check(holder(call))?;
        let previous = call.previous.as_ref();
        let previous = previous.ok_or_else(|| fail("Required prevResult missing"))?;
        let sandbox = inside::open(&call.netns)?;
        inside::within(&sandbox, |links| {
            interface::check(links, &call.interface, previous)
        })?;
        Ok(CniResult::default())
    }
}

/// The addresses of a result with their gateways, which each of them must have.
fn pairs(result: &CniResult) -> Result<Vec<(Prefixed, std::net::IpAddr)>, CniError> {
    let addresses = interface::addresses(result)?;
    let each = result.ips.iter().zip(addresses).map(|(ip, address)| {
        let gateway = interface::gateway(&ip.gateway)?;
        let gateway = gateway.ok_or_else(|| fail(format!("address {address} has no gateway")))?;
        Ok((address, gateway))
    });
    each.collect()
}

/// Within the sandbox: neighbours of the network are reached by the gateway, and only that one directly.
fn by_gateway(links: &mut Links, link: &Link, result: &CniResult) -> Result<(), CniError> {
    for (address, gateway) in pairs(result)? {
        let network = address.network();
        // The kernel made it with the address.
        let direct = Route {
            scope: NOWHERE,
            ..Route::to(network, link.index)
        };
        links
            .delete_route(&direct)
            .or_fail(format!("failed to delete route {network}"))?;
        let to_gateway = Route {
            source: Some(address.address),
            scope: ON_LINK,
            ..Route::to(Prefixed::host(gateway), link.index)
        };
        let to_network = Route {
            source: Some(address.address),
            gateway: Some(gateway),
            ..Route::to(network, link.index)
        };
        for route in [to_gateway, to_network] {
            links
                .add_route(&route, EXCLUSIVE)
                .or_fail(format!("failed to add route {}", route.destination))?;
        }
    }
    Ok(())
}

/// On the node: the gateway's address, and a route to the pod alone.
fn by_veth(links: &mut Links, link: &Link, result: &CniResult) -> Result<(), CniError> {
    for (address, gateway) in pairs(result)? {
        let gateway = Prefixed::host(gateway);
        links
            .add_address(link.index, gateway)
            .or_fail(format!("failed to add IP addr {gateway} to veth"))?;
        let route = Route {
            scope: ON_HOST,
            ..Route::to(Prefixed::host(address.address), link.index)
        };
        match links.add_route(&route, EXCLUSIVE) {
            Err(error) if is(&error, Errno::EXIST) => {}
            added => added.or_fail("failed to add route on host")?,
        }
    }
    Ok(())
}
