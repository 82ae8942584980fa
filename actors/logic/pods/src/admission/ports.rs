//! Whether the host ports of the pod are free.
//!
//! Mirrors upstream's `nodeports.Fits` and `HostPortInfo` at v1.36.

use k8s_openapi::api::core::v1::{ContainerPort, Pod};
use logic_api::pod::{PodView, is_sidecar};

/// Address, protocol and port with their defaults.
type HostPort<'a> = (&'a str, &'a str, i32);

const EVERY_ADDRESS: &str = "0.0.0.0";

pub(super) fn conflict(pod: &Pod, others: &[&Pod]) -> bool {
    if sockets(pod).next().is_none() {
        return false;
    }
    let taken: Vec<HostPort<'_>> = others.iter().flat_map(|other| sockets(other)).collect();
    sockets(pod).any(|wanted| taken.iter().any(|taken| collide(wanted, *taken)))
}

/// The node's ports of everything that runs as long as the pod does.
fn sockets(pod: &Pod) -> impl Iterator<Item = HostPort<'_>> {
    let sidecars = pod.init_containers().iter().filter(|c| is_sidecar(c));
    let lasting = sidecars.chain(pod.app_containers());
    lasting
        .flat_map(|c| c.ports.iter().flatten())
        .filter_map(socket)
}

fn socket(port: &ContainerPort) -> Option<HostPort<'_>> {
    let address = given(&port.host_ip).unwrap_or(EVERY_ADDRESS);
    let protocol = given(&port.protocol).unwrap_or("TCP");
    let number = port.host_port.filter(|number| *number > 0)?;
    Some((address, protocol, number))
}

fn given(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

/// The same port of one protocol, on one address or on every address.
fn collide(a: HostPort<'_>, b: HostPort<'_>) -> bool {
    let everywhere = a.0 == EVERY_ADDRESS || b.0 == EVERY_ADDRESS;
    (a.1, a.2) == (b.1, b.2) && (everywhere || a.0 == b.0)
}

#[cfg(test)]
mod tests {
    use logic_api::testing::*;

    use super::*;

    /// Ports as `TCP/127.0.0.1/80`; parts may be empty.
    fn with(ports: &[&str]) -> Pod {
        let port = |text: &&str| {
            let parts: Vec<&str> = text.split('/').collect();
            ContainerPort {
                protocol: Some(parts[0].into()),
                host_ip: Some(parts[1].into()),
                host_port: Some(parts[2].parse().unwrap()),
                ..ContainerPort::default()
            }
        };
        let ports = ports.iter().map(port).collect();
        pod("p").app_with("c", |c| c.ports = Some(ports))
    }

    /// Upstream's TestNodePorts and TestHostPortInfo_Check.
    #[test]
    fn a_port_is_taken_on_its_address_and_on_every_address() {
        let cases: [(&[&str], &[&str], bool); 14] = [
            (&[], &["TCP//80"], false),
            (&["UDP/127.0.0.1/8080"], &["UDP/127.0.0.1/9090"], false),
            (&["UDP/127.0.0.1/8080"], &["UDP/127.0.0.1/8080"], true),
            (&["TCP/127.0.0.1/8080"], &["TCP/127.0.0.1/8080"], true),
            (&["TCP/127.0.0.1/8080"], &["TCP/127.0.0.2/8080"], false),
            (&["UDP/127.0.0.1/8080"], &["TCP/127.0.0.1/8080"], false),
            (
                &["UDP/127.0.0.1/8000", "UDP/127.0.0.1/8080"],
                &["UDP/127.0.0.1/8080"],
                true,
            ),
            (&["TCP/0.0.0.0/8001"], &["TCP/127.0.0.1/8001"], true),
            (
                &["TCP/10.0.10.10/8001", "TCP/0.0.0.0/8001"],
                &["TCP/127.0.0.1/8001"],
                true,
            ),
            (&["TCP/127.0.0.1/8001"], &["TCP/0.0.0.0/8001"], true),
            (&["UDP/127.0.0.1/8001"], &["TCP/0.0.0.0/8001"], false),
            (&["//80"], &["TCP/0.0.0.0/80"], true),
            (&["//0"], &["//0"], false),
            (&["TCP//80"], &["//80"], true),
        ];
        for (wanted, taken, expected) in cases {
            let found = conflict(&with(wanted), &[&with(taken)]);
            assert_eq!(found, expected, "{wanted:?} {taken:?}");
        }
    }

    #[test]
    fn sidecars_hold_their_ports_and_init_containers_do_not() {
        let init = |policy: Option<&str>| {
            let mut pod = with(&[]).init("i");
            let spec = pod.spec.as_mut().unwrap();
            let init = &mut spec.init_containers.as_mut().unwrap()[0];
            init.restart_policy = policy.map(str::to_owned);
            init.ports = with(&["//80"]).spec.unwrap().containers[0].ports.clone();
            pod
        };
        assert!(conflict(&with(&["//80"]), &[&init(Some("Always"))]));
        assert!(!conflict(&with(&["//80"]), &[&init(None)]));
        assert!(conflict(&init(Some("Always")), &[&with(&["//80"])]));
    }
}
