//! The node's ports that lead into a pod (upstream's `MakePortMappings`).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use logic_api::linux::{PortMapping, PortProtocol};
use logic_api::pod::PodView;

/// The ports of the app containers; a port named twice in a container counts once.
pub(super) fn port_mappings(pod: &Pod) -> Vec<PortMapping> {
    let mut mappings = Vec::new();
    for container in pod.app_containers() {
        let mut seen = BTreeSet::new();
        for port in container.ports.as_deref().unwrap_or_default() {
            let protocol = match port.protocol.as_deref() {
                Some("UDP") => PortProtocol::Udp,
                Some("SCTP") => PortProtocol::Sctp,
                Some(_) | None => PortProtocol::Tcp,
            };
            let host_ip = port.host_ip.clone().unwrap_or_default();
            let host_port = port.host_port.unwrap_or(0);
            let name = port.name.clone().filter(|name| !name.is_empty());
            let (number, family) = (port.container_port, host_ip.contains(':'));
            let key = name
                .unwrap_or_else(|| format!("{family}-{protocol:?}-{host_ip}:{number}:{host_port}"));
            let ports = (u16::try_from(number), u16::try_from(host_port));
            if let (Ok(container_port), Ok(host_port)) = ports
                && seen.insert(key)
            {
                mappings.push(PortMapping {
                    protocol,
                    container_port,
                    host_port,
                    host_ip,
                });
            }
        }
    }
    mappings
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ContainerPort;
    use logic_api::testing::*;

    use super::*;

    fn port(name: &str, number: i32, host_port: i32, host_ip: &str) -> ContainerPort {
        ContainerPort {
            name: (!name.is_empty()).then(|| name.into()),
            container_port: number,
            host_port: Some(host_port),
            host_ip: Some(host_ip.into()),
            protocol: Some("TCP".into()),
        }
    }

    /// Upstream's TestMakePortMappings.
    #[test]
    fn a_port_counts_once_in_each_container_and_family() {
        let ports = vec![
            port("", 80, 8080, "127.0.0.1"),
            port("", 80, 8080, "127.0.0.1"),
            port("", 80, 8080, "::1"),
            port("", 80, 8080, "::"),
            port("", 80, 8080, ""),
            port("foo", 443, 4343, "192.168.0.1"),
            port("foo", 444, 0, ""),
            port("bar", 443, 0, ""),
            port("", 70_000, 0, ""),
        ];
        let udp = ContainerPort {
            protocol: Some("UDP".into()),
            ..port("", 80, 8080, "127.0.0.1")
        };
        let pod = pod("p")
            .init("i")
            .app_with("c", |c| c.ports = Some([ports, vec![udp]].concat()))
            .app_with("d", |c| {
                c.ports = Some(vec![port("foo", 443, 4343, "192.168.0.1")])
            });
        let made = port_mappings(&pod);
        let found: Vec<_> = made
            .iter()
            .map(|m| {
                (
                    m.container_port,
                    m.host_port,
                    m.host_ip.as_str(),
                    m.protocol,
                )
            })
            .collect();
        let tcp = PortProtocol::Tcp;
        assert_eq!(
            found,
            [
                (80, 8080, "127.0.0.1", tcp),
                (80, 8080, "::1", tcp),
                (80, 8080, "::", tcp),
                (80, 8080, "", tcp),
                (443, 4343, "192.168.0.1", tcp),
                (443, 0, "", tcp),
                (80, 8080, "127.0.0.1", PortProtocol::Udp),
                (443, 4343, "192.168.0.1", tcp),
            ]
        );
    }
}
