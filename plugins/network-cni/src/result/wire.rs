//! A result as the contract has it.

use proto::network as wire;

use super::{CniResult, Dns};
use crate::version::Version;

/// Returns the result with its JSON in `version`.
pub(crate) fn to_wire(result: &CniResult, version: Version) -> wire::Result {
    let interfaces = result.interfaces.iter().map(|interface| wire::Interface {
        name: interface.name.clone(),
        mac: interface.mac.clone(),
        mtu: interface.mtu,
        sandbox: interface.sandbox.clone(),
        socket_path: interface.socket_path.clone(),
        pci_id: interface.pci_id.clone(),
    });
    let ips = result.ips.iter().map(|ip| wire::IpConfig {
        address: ip.address.clone(),
        gateway: ip.gateway.clone(),
        interface: ip.interface,
    });
    let routes = result.routes.iter().map(|route| wire::Route {
        dst: route.dst.clone(),
        gw: route.gw.clone(),
        mtu: route.mtu,
        advmss: route.advmss,
        priority: route.priority,
        table: route.table,
        scope: route.scope,
    });
    wire::Result {
        interfaces: interfaces.collect(),
        ips: ips.collect(),
        routes: routes.collect(),
        dns: Some(dns(&result.dns)),
        json: result.to_value(version).to_string().into_bytes(),
    }
}

fn dns(dns: &Dns) -> wire::Dns {
    wire::Dns {
        nameservers: dns.nameservers.clone(),
        domain: dns.domain.clone(),
        search: dns.search.clone(),
        options: dns.options.clone(),
    }
}
