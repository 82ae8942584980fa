//! The node's addresses. Upstream: `NodeAddress` of nodestatus/setters.go, `validateNodeIP` (1.36).

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Node, NodeAddress};

use super::{CloudProvider, NodeAddresses, NodeStatusPolicy, PROVIDED_IP};

/// Why an address cannot be the node's; `is_local` tells whether an interface of the host has it.
pub fn validate(ip: IpAddr, is_local: impl Fn(IpAddr) -> bool) -> Result<(), String> {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let why = if ip.is_loopback() {
        "can't be loopback address"
    } else if ip.is_multicast() {
        "can't be a multicast address"
    } else if link_local {
        "can't be a link-local unicast address"
    } else if ip.is_unspecified() {
        "can't be an all zeros address"
    } else if is_local(ip) {
        return Ok(());
    } else {
        return Err(format!(
            "node IP: {:?} not found in the host's network interfaces",
            ip.to_string()
        ));
    };
    Err(format!("nodeIP {why}"))
}

/// Whether the operator named the node by its address.
pub fn hostname_is_address(policy: &NodeStatusPolicy) -> Option<IpAddr> {
    policy.hostname.parse().ok()
}

/// Where the node's pods say that they are: its first address, and the first of the other family. Addresses inside the
/// cluster come before those outside.
///
/// Upstream: `GetNodeHostIPs` of pkg/util/node (1.36).
pub fn host_ips(node: &Node) -> Vec<String> {
    let status = node.status.as_ref();
    let of = |kind: &'static str| {
        let all = status
            .into_iter()
            .flat_map(|s| s.addresses.iter().flatten());
        all.filter(move |address| address.type_ == kind)
            .filter_map(|address| address.address.parse::<IpAddr>().ok())
    };
    let all: Vec<IpAddr> = of("InternalIP").chain(of("ExternalIP")).collect();
    let first = all.first();
    let second = all
        .iter()
        .find(|ip| first.is_some_and(|first| first.is_ipv6() != ip.is_ipv6()));
    first
        .into_iter()
        .chain(second)
        .map(IpAddr::to_string)
        .collect()
}

pub(super) fn set(
    policy: &NodeStatusPolicy,
    known: &NodeAddresses,
    node: &mut Node,
) -> Result<(), String> {
    let mut given = policy.node_ips.iter().filter(|ip| !ip.is_unspecified());
    let (first, second) = (given.next(), given.next());
    if first.is_some() && !known.problem.is_empty() {
        return Err(format!("failed to validate nodeIP: {}", known.problem));
    }
    annotate(policy, (first, second), node);
    let status = node.status.get_or_insert_default();
    let host = address("Hostname", &policy.hostname);
    if policy.cloud == CloudProvider::External {
        if status.addresses.as_ref().is_some_and(|all| !all.is_empty()) {
            return Ok(());
        }
        if policy.node_ips.is_empty() {
            status.addresses = Some(vec![host]);
            return Ok(());
        }
    }
    let internal = |ip: &IpAddr| address("InternalIP", &ip.to_string());
    let addresses = match (first, second) {
        (Some(first), Some(second)) => vec![internal(first), internal(second), host],
        (Some(only), None) => vec![internal(only), host],
        (None, _) => match hostname_is_address(policy).or(known.found) {
            Some(ip) => vec![internal(&ip), host],
            None => {
                return Err(format!(
                    "can't get ip address of node {}. error: {}",
                    policy.name, known.problem
                ));
            }
        },
    };
    status.addresses = Some(addresses);
    Ok(())
}

/// Annotates the addresses that the operator chose, for a cloud provider.
fn annotate(policy: &NodeStatusPolicy, given: (Option<&IpAddr>, Option<&IpAddr>), node: &mut Node) {
    let annotations = &mut node.metadata.annotations;
    match (policy.cloud, given.0) {
        (CloudProvider::External, Some(first)) => {
            let text = match given.1 {
                Some(second) => format!("{first},{second}"),
                None => first.to_string(),
            };
            let annotations = annotations.get_or_insert_default();
            annotations.insert(PROVIDED_IP.to_owned(), text);
        }
        (CloudProvider::External | CloudProvider::None, _) => {
            if let Some(annotations) = annotations {
                annotations.remove(PROVIDED_IP);
            }
        }
    }
}

fn address(r#type: &str, address: &str) -> NodeAddress {
    NodeAddress {
        type_: r#type.to_owned(),
        address: address.to_owned(),
    }
}
