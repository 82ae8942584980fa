//! portmap: ports of the node that lead to a pod's, as the plugin's nftables backend has them: table `cni_hostport`, a
//! rule a port, known by the container's id in its comment.

mod conntrack;
mod localnet;
mod rules;

use std::net::IpAddr;

use network_cni::{Call, CniError, CniResult, Work};
use serde::Deserialize;

use self::rules::{Forward, PortRules};
use crate::address;
use crate::conf::{self, NotBuiltIn};
use crate::failure::fail;
use crate::interface;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Conf {
    backend: Option<String>,
    snat: Option<bool>,
    conditions_v4: Option<Vec<String>>,
    conditions_v6: Option<Vec<String>>,
    masq_all: bool,
    // The bit marks packets of the iptables backend; this one needs none.
    #[serde(rename = "markMasqBit")]
    _mark_masq_bit: Option<u8>,
    external_set_mark_chain: Option<String>,
    runtime_config: Runtime,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Runtime {
    port_mappings: Vec<PortMapping>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct PortMapping {
    host_port: u16,
    container_port: u16,
    protocol: String,
    #[serde(rename = "hostIP")]
    host_ip: String,
}

/// A call's configuration, read.
#[derive(Debug)]
struct Portmap {
    snat: bool,
    forwards: Vec<Forward>,
}

pub(crate) fn plan(call: &Call) -> Result<Work, NotBuiltIn> {
    let portmap = Portmap::read(call)?;
    let call = call.clone();
    Ok(Box::new(move || match call.verb {
        "ADD" => portmap.add(&call),
        "DEL" => delete(&call).map(|()| CniResult::default()),
        "CHECK" => portmap.check(&call),
        _ => Ok(CniResult::default()),
    }))
}

/// Ends a container's mappings, made here or by a program of any version.
pub(crate) fn delete(call: &Call) -> Result<(), CniError> {
    let rules = PortRules::of(&call.container_id);
    rules.clear()?;
    rules.clear_iptables(&call.network)
}

/// Ends a container's mappings that were made here. Tells whether there were any.
pub(crate) fn sweep(call: &Call) -> Result<bool, CniError> {
    PortRules::of(&call.container_id).clear()
}

/// Keeps packets of other links from 127.0.0.0/8 before a program opens the way. A machine without nf_tables, on which the
/// program works by old iptables, has its ports all the same.
pub(crate) fn guard() -> Result<(), CniError> {
    if let Err(error) = localnet::guard() {
        tracing::warn!("a host port opens 127.0.0.0/8 to the pods' link: no nf_tables: {error}");
    }
    Ok(())
}

impl Portmap {
    fn read(call: &Call) -> Result<Self, NotBuiltIn> {
        let conf: Conf = conf::read(call)?;
        match conf.backend.as_deref() {
            None | Some("nftables") => {}
            Some(other) => return Err(NotBuiltIn(format!("backend {other:?}"))),
        }
        let has = |conditions: &Option<Vec<String>>| {
            conditions.as_ref().is_some_and(|all| !all.is_empty())
        };
        let others = [
            ("conditionsV4", has(&conf.conditions_v4)),
            ("conditionsV6", has(&conf.conditions_v6)),
            ("masqAll", conf.masq_all),
            (
                "externalSetMarkChain",
                conf.external_set_mark_chain.is_some(),
            ),
        ];
        if let Some((field, _)) = others.iter().find(|(_, is_set)| *is_set) {
            return Err(NotBuiltIn(format!("field {field}")));
        }
        let forwards = conf.runtime_config.port_mappings.iter().map(forward);
        Ok(Self {
            snat: conf.snat.unwrap_or(true),
            forwards: forwards.collect::<Result<_, _>>()?,
        })
    }

    fn add(&self, call: &Call) -> Result<CniResult, CniError> {
        let result = previous(call)?;
        if self.forwards.is_empty() {
            return Ok(result.clone());
        }
        for address in addresses(result, call)? {
            PortRules::of(&call.container_id).set(address, &self.forwards, self.snat)?;
            // New packets of old connections would go on to where they went before.
            if let Err(error) = conntrack::forget(address, &self.forwards) {
                tracing::warn!("connections to ports of {address} are not forgotten: {error}");
            }
            if self.snat && address.is_ipv4() {
                localnet::open_to(address)?;
            }
        }
        Ok(result.clone())
    }

    fn check(&self, call: &Call) -> Result<CniResult, CniError> {
        let result = previous(call)?;
        if !self.forwards.is_empty() {
            for address in addresses(result, call)? {
                PortRules::of(&call.container_id).check(address, &self.forwards, self.snat)?;
            }
        }
        Ok(CniResult::default())
    }
}

fn forward(of: &PortMapping) -> Result<Forward, NotBuiltIn> {
    let protocol = match of.protocol.to_ascii_lowercase().as_str() {
        "tcp" => 6,
        "udp" => 17,
        "sctp" => 132,
        other => return Err(NotBuiltIn(format!("protocol {other:?}"))),
    };
    if of.host_port == 0 || of.container_port == 0 {
        return Err(NotBuiltIn("port 0".to_owned()));
    }
    let host = match of.host_ip.as_str() {
        "" => None,
        text => Some(address::parse(text).ok_or_else(|| NotBuiltIn(format!("hostIP {text:?}")))?),
    };
    Ok(Forward {
        protocol,
        host,
        port: of.host_port,
        to: of.container_port,
    })
}

fn previous(call: &Call) -> Result<&CniResult, CniError> {
    let previous = call.previous.as_ref();
    previous.ok_or_else(|| fail("must be called as chained plugin"))
}

/// The first address of each version that the sandbox's interface has.
fn addresses(result: &CniResult, call: &Call) -> Result<Vec<IpAddr>, CniError> {
    let all = interface::addresses(result)?;
    let is_inside = |index: Option<u32>| {
        let told = index.and_then(|index| result.interfaces.get(usize::try_from(index).ok()?));
        told.is_none_or(|told| told.name == call.interface && !told.sandbox.is_empty())
    };
    let pairs = result.ips.iter().zip(all);
    let inside: Vec<_> = pairs
        .filter(|(ip, _)| is_inside(ip.interface))
        .map(|(_, of)| of.address)
        .collect();
    let first = |v4: bool| inside.iter().find(move |one| one.is_ipv4() == v4).copied();
    Ok([first(true), first(false)].into_iter().flatten().collect())
}
