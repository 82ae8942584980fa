//! bridge: a veth between the sandbox and a bridge of the node.

mod device;

use std::net::IpAddr;

use network_cni::{Call, CniError, CniResult, Dns, Interface, Work};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::address::{self, Prefixed};
use crate::conf::{self, Arguments, Asked, NotBuiltIn, Runtime};
use crate::failure::{OrFail, fail};
use crate::host_local::{Holder, Ipam};
use crate::links::veth::{self, Ends};
use crate::links::{Link, Links};
use crate::masquerade::Masquerade;
use crate::{inside, interface, sysctl};

const DEFAULT_BRIDGE: &str = "cni0";
/// The sandbox's end among the interfaces of a result: behind the bridge and the node's end.
const INSIDE: u32 = 2;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Conf {
    bridge: String,
    is_gateway: bool,
    is_default_gateway: bool,
    force_address: bool,
    ip_masq: bool,
    ip_masq_backend: Option<String>,
    mtu: u32,
    hairpin_mode: bool,
    promisc_mode: bool,
    vlan: u32,
    preserve_default_vlan: bool,
    macspoofchk: bool,
    enabledad: bool,
    disable_container_interface: bool,
    port_isolation: bool,
    ipam: Option<Map<String, Value>>,
    dns: Dns,
    args: Arguments,
    runtime_config: Runtime,
}

/// A call's configuration, read.
#[derive(Debug)]
struct Bridge {
    conf: Conf,
    ipam: Option<Ipam>,
    mac: String,
}

pub(crate) fn plan(call: &Call) -> Result<Work, NotBuiltIn> {
    let bridge = Bridge::read(call)?;
    let call = call.clone();
    Ok(Box::new(move || match call.verb {
        "ADD" => bridge.add(&call),
        "DEL" => bridge.delete(&call),
        "CHECK" => bridge.check(&call),
        _ => Ok(CniResult::default()),
    }))
}

impl Bridge {
    fn read(call: &Call) -> Result<Self, NotBuiltIn> {
        let mut conf: Conf = conf::read(call)?;
        if conf.bridge.is_empty() {
            DEFAULT_BRIDGE.clone_into(&mut conf.bridge);
        }
        let refused = [
            ("vlan", conf.vlan != 0),
            ("macspoofchk", conf.macspoofchk),
            (
                "disableContainerInterface",
                conf.disable_container_interface,
            ),
        ];
        if let Some((field, _)) = refused.iter().find(|(_, is_set)| *is_set) {
            return Err(NotBuiltIn(format!("field {field}")));
        }
        match conf.ip_masq_backend.as_deref() {
            None | Some("nftables") => {}
            Some(other) => return Err(NotBuiltIn(format!("ipMasqBackend {other:?}"))),
        }
        conf.is_gateway |= conf.is_default_gateway;
        let asked = Asked::of(call)?;
        let macs = [&conf.runtime_config.mac, &conf.args.cni.mac, &asked.mac];
        let mac = macs.into_iter().find(|mac| !mac.is_empty());
        Ok(Self {
            mac: mac.cloned().unwrap_or_default(),
            ipam: conf::ipam(call, conf.ipam.as_ref(), (&conf.runtime_config, &conf.args))?,
            conf,
        })
    }

    /// Makes the node's end of the pair a port of the bridge.
    fn connect(&self, links: &mut Links, outside: &Link, bridge: &Link) -> Result<(), CniError> {
        let name = outside.name.as_str();
        links
            .set_master(outside.index, bridge.index)
            .or_fail(format!(
                "failed to connect {name:?} to bridge {}",
                bridge.name
            ))?;
        let port = (self.conf.hairpin_mode, self.conf.port_isolation);
        if port != (false, false) {
            links
                .set_port(outside.index, port)
                .or_fail(format!("failed to set up the bridge's port {name:?}"))?;
        }
        Ok(())
    }

    fn add(&self, call: &Call) -> Result<CniResult, CniError> {
        if self.conf.hairpin_mode && self.conf.promisc_mode {
            return Err(fail(
                "cannot set hairpin mode and promiscuous mode at the same time",
            ));
        }
        let sandbox = inside::open(&call.netns)?;
        let links = &mut Links::open().or_fail("failed to open a netlink socket")?;
        let bridge = device::ensure(
            links,
            &self.conf.bridge,
            self.conf.mtu,
            self.conf.promisc_mode,
        )?;
        let ends = Ends {
            interface: &call.interface,
            mtu: self.conf.mtu,
            mac: &self.mac,
        };
        let outside = veth::make(links, &sandbox, ends)?;
        let name = outside.name.as_str();
        self.connect(links, &outside, &bridge)?;
        let mut result = match &self.ipam {
            None => CniResult::default(),
            Some(ipam) => self.addresses(ipam.add(holder(call))?)?,
        };
        result.interfaces = vec![Interface::default(); 3];
        let dad = self.conf.enabledad;
        let inside = inside::within(&sandbox, |links| {
            if self.ipam.is_some() {
                prepare(&call.interface, dad);
            }
            interface::configure(links, &call.interface, &result)
        })?;
        if self.conf.is_gateway {
            self.gateways(links, &result)?;
        }
        if self.conf.ip_masq && self.ipam.is_some() {
            masquerade(call).set(&interface::addresses(&result)?)?;
        }
        let outside = device::await_port(links, name)?;
        // The bridge's address may have changed with its first port or its first address.
        let bridge = device::find(links, &self.conf.bridge)?;
        let told = |link: &Link, sandbox: &str| Interface {
            name: link.name.clone(),
            mac: link.mac_text(),
            sandbox: sandbox.to_owned(),
            ..Interface::default()
        };
        result.interfaces = vec![
            told(&bridge, ""),
            told(&outside, ""),
            told(&inside, &call.netns),
        ];
        if conf::says(&self.conf.dns) {
            result.dns.clone_from(&self.conf.dns);
        }
        Ok(result)
    }

    /// Completes what the address management gave: interfaces, gateways, default routes.
    fn addresses(&self, mut result: CniResult) -> Result<CniResult, CniError> {
        if result.ips.is_empty() {
            return Err(fail("IPAM plugin returned missing IP config"));
        }
        let mut defaults = Vec::new();
        for ip in &mut result.ips {
            ip.interface = Some(INSIDE);
            let of = Prefixed::parse(&ip.address)
                .ok_or_else(|| fail(format!("invalid address {:?}", ip.address)))?;
            if ip.gateway.is_empty() && self.conf.is_gateway {
                ip.gateway = address::next(of.network().address).to_string();
            }
            let default = match of.address {
                IpAddr::V4(_) => "0.0.0.0/0",
                IpAddr::V6(_) => "::/0",
            };
            let is_there =
                |route: &network_cni::Route| route.dst == default && !route.gw.is_empty();
            let known = result.routes.iter().chain(&defaults).any(is_there);
            if self.conf.is_default_gateway && !known {
                defaults.push(network_cni::Route {
                    dst: default.to_owned(),
                    gw: ip.gateway.clone(),
                    ..network_cni::Route::default()
                });
            }
        }
        result.routes.extend(defaults);
        Ok(result)
    }

    /// Gives the bridge the gateways' addresses, and has the node forward.
    fn gateways(&self, links: &mut Links, result: &CniResult) -> Result<(), CniError> {
        let all = interface::addresses(result)?;
        for (ip, of) in result.ips.iter().zip(&all) {
            let Some(gateway) = interface::gateway(&ip.gateway)? else {
                continue;
            };
            let wanted = Prefixed {
                address: gateway,
                length: of.length,
            };
            device::ensure_address(links, &self.conf.bridge, wanted, self.conf.force_address)?;
        }
        forward(&all)
    }

    fn delete(&self, call: &Call) -> Result<CniResult, CniError> {
        veth::delete(call)?;
        if let Some(ipam) = &self.ipam {
            ipam.delete(holder(call))?;
        }
        if self.conf.ip_masq && self.ipam.is_some() {
            end_masquerade(call)?;
        }
        Ok(CniResult::default())
    }

    fn check(&self, call: &Call) -> Result<CniResult, CniError> {
        if let Some(ipam) = &self.ipam {
            ipam.check(holder(call))?;
        }
        let previous = call
            .previous
            .as_ref()
            .ok_or_else(|| fail("Required prevResult missing"))?;
        let links = &mut Links::open().or_fail("failed to open a netlink socket")?;
        let bridge = device::find(links, &self.conf.bridge)?;
        if (bridge.promiscuity != 0) != self.conf.promisc_mode {
            return Err(fail(format!(
                "Bridge interface {} configured Promisc Mode {} doesn't match current state",
                bridge.name, self.conf.promisc_mode
            )));
        }
        let sandbox = inside::open(&call.netns)?;
        let inside = inside::within(&sandbox, |links| {
            interface::check(links, &call.interface, previous)
        })?;
        device::check_pair(links, (&bridge, &inside), previous, call)?;
        Ok(CniResult::default())
    }
}

pub(crate) fn holder(call: &Call) -> Holder<'_> {
    Holder {
        container: &call.container_id,
        interface: &call.interface,
    }
}

pub(crate) fn masquerade(call: &Call) -> Masquerade<'_> {
    Masquerade {
        network: &call.network,
        interface: &call.interface,
        container: &call.container_id,
    }
}

/// Ends the masquerading of an attachment, made here or by a program of any version.
pub(crate) fn end_masquerade(call: &Call) -> Result<(), CniError> {
    masquerade(call).clear()?;
    let addresses = call
        .previous
        .as_ref()
        .map(interface::addresses)
        .transpose()?;
    let addresses: Option<Vec<_>> =
        addresses.map(|all| all.into_iter().map(|of| of.address).collect());
    masquerade(call).clear_iptables(addresses.as_deref())
}

/// Has the node forward packets of the addresses' versions.
pub(crate) fn forward(of: &[Prefixed]) -> Result<(), CniError> {
    let parameters = [
        (true, "net/ipv4/ip_forward"),
        (false, "net/ipv6/conf/all/forwarding"),
    ];
    for (is_v4, parameter) in parameters {
        if of.iter().any(|one| one.address.is_ipv4() == is_v4) {
            sysctl::ensure(parameter, "1").or_fail("failed to enable forwarding")?;
        }
    }
    Ok(())
}

/// Parameters of the interface, before it has addresses. A kernel without them has no use for them.
fn prepare(interface: &str, looks_for_duplicates: bool) {
    let v6 = |name: &str| format!("net/ipv6/conf/{interface}/{name}");
    if looks_for_duplicates {
        drop(sysctl::write(&v6("enhanced_dad"), "1"));
        drop(sysctl::write(&v6("accept_dad"), "1"));
    } else {
        drop(sysctl::write(&v6("accept_dad"), "0"));
    }
    drop(sysctl::write(
        &format!("net/ipv4/conf/{interface}/arp_notify"),
        "1",
    ));
}
