//! The node's addresses, as far as its configuration does not give them.
//!
//! Upstream: `NodeAddress` of nodestatus/setters.go, apimachinery's `ResolveBindAddress` (1.36). The kernel is
//! asked for the route; its answer is the address that upstream reads from the routing table.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use logic_node::node_status::{NodeAddresses, NodeStatusPolicy, hostname_is_address, validate};

/// An entry in the hosts file answers at once; the lookup does not wait for a name server that is down.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) async fn find(policy: &NodeStatusPolicy) -> NodeAddresses {
    let mut given = policy.node_ips.iter().filter(|ip| !ip.is_unspecified());
    if let Some(problem) = given.find_map(|ip| validate(*ip, is_local).err()) {
        return NodeAddresses {
            found: None,
            problem,
        };
    }
    let specified = policy.node_ips.iter().any(|ip| !ip.is_unspecified());
    if specified || hostname_is_address(policy).is_some() {
        return NodeAddresses::default();
    }
    // `::` prefers IPv6 where there is a choice.
    let prefers_v4 = policy.node_ips.first().is_none_or(IpAddr::is_ipv4);
    let named = looked_up(&policy.name, prefers_v4).await;
    match named.or_else(|| way_out(prefers_v4)) {
        Some(ip) => NodeAddresses {
            found: Some(ip),
            problem: String::new(),
        },
        None => NodeAddresses {
            found: None,
            problem: "no default routes found in the host, and its name has no address".to_owned(),
        },
    }
}

/// Addresses that the name resolves to and that the host has.
async fn looked_up(name: &str, prefers_v4: bool) -> Option<IpAddr> {
    let lookup = tokio::net::lookup_host((name, 0));
    let answer = tokio::time::timeout(LOOKUP_TIMEOUT, lookup).await.ok()?;
    let ips = answer.ok()?.map(|address| address.ip());
    let own: Vec<IpAddr> = ips.filter(|ip| validate(*ip, is_local).is_ok()).collect();
    let preferred = own.iter().find(|ip| ip.is_ipv4() == prefers_v4);
    preferred.or(own.first()).copied()
}

/// The source address of the default route. Connecting a datagram socket sends nothing: it only looks up the route.
fn way_out(prefers_v4: bool) -> Option<IpAddr> {
    let v4: (IpAddr, IpAddr) = (
        Ipv4Addr::UNSPECIFIED.into(),
        // For documents only; any address beyond the default route does.
        Ipv4Addr::new(192, 0, 2, 1).into(),
    );
    let v6: (IpAddr, IpAddr) = (
        Ipv6Addr::UNSPECIFIED.into(),
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    );
    let ways = match prefers_v4 {
        true => [v4, v6],
        false => [v6, v4],
    };
    let routed = |(from, to)| {
        let socket = UdpSocket::bind(SocketAddr::new(from, 0)).ok()?;
        socket.connect(SocketAddr::new(to, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    let mut ways = ways.into_iter().filter_map(routed);
    ways.find(|ip| validate(*ip, |_| true).is_ok())
}

/// An address that no interface has cannot be bound.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind(SocketAddr::new(ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestNodeAddress asks a double; this asks the machine.
    #[tokio::test]
    async fn an_address_that_the_host_does_not_have_is_refused() {
        let policy = |ip: &str| NodeStatusPolicy {
            node_ips: vec![ip.parse().unwrap()],
            ..NodeStatusPolicy::default()
        };
        let found = find(&policy("192.0.2.77")).await;
        assert_eq!(
            found.problem,
            "node IP: \"192.0.2.77\" not found in the host's network interfaces"
        );
        let found = find(&policy("127.0.0.1")).await;
        assert_eq!(found.problem, "nodeIP can't be loopback address");
    }

    #[test]
    fn the_loopback_is_local_and_a_documents_address_is_not() {
        assert!(is_local(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_local(Ipv4Addr::new(192, 0, 2, 9).into()));
    }
}
