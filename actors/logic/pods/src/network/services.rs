//! The variables that tell a container where services are.
//!
//! Mirrors upstream's `getServiceEnvVarMap` (kubelet_pods.go) and pkg/kubelet/envvars at v1.36.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};
use logic_api::objects::Objects;
use logic_api::pod::PodView;

use crate::container::environment::Variables;

/// The service whose variables every pod of every namespace gets.
const MASTER: (&str, &str) = ("default", "kubernetes");

/// Those of the API's own service and, unless the pod does not want them, those of every service of its
/// namespace, of which one named like the API's own goes before it. Services without an address of their own
/// (headless ones) have none.
pub fn variables(pod: &Pod, objects: &dyn Objects) -> Variables {
    let wants_links = pod.spec().and_then(|spec| spec.enable_service_links) != Some(false);
    let all = objects.services();
    let mut known: BTreeMap<&str, &Service> = BTreeMap::new();
    for service in all.iter().filter(|service| address(service).is_some()) {
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        if (namespace, name) == MASTER {
            known.entry(name).or_insert(service);
        } else if namespace == pod.namespace() && wants_links {
            known.insert(name, service);
        }
    }
    from_services(known.into_values())
}

fn address(service: &Service) -> Option<&str> {
    let address = service.spec.as_ref()?.cluster_ip.as_deref()?;
    (!["", "None"].contains(&address)).then_some(address)
}

/// Each service's variables, in the order of the services.
pub fn from_services<'a>(services: impl IntoIterator<Item = &'a Service>) -> Variables {
    let mut made = Variables::new();
    for service in services {
        let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref());
        let (Some(address), Some([first, ..])) = (address(service), ports) else {
            continue;
        };
        let prefix = in_capitals(service.metadata.name.as_deref().unwrap_or_default());
        let mut say = |name: String, value: String| made.push((format!("{prefix}_{name}"), value));
        say("SERVICE_HOST".to_owned(), address.to_owned());
        say("SERVICE_PORT".to_owned(), first.port.to_string());
        let ports = ports.unwrap_or_default();
        for port in ports {
            if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
                say(
                    format!("SERVICE_PORT_{}", in_capitals(name)),
                    port.port.to_string(),
                );
            }
        }
        say("PORT".to_owned(), url(address, first));
        for port in ports {
            let number = port.port.to_string();
            let name = format!("PORT_{number}_{}", protocol(port).to_uppercase());
            say(name.clone(), url(address, port));
            say(format!("{name}_PROTO"), protocol(port).to_lowercase());
            say(format!("{name}_PORT"), number);
            say(format!("{name}_ADDR"), address.to_owned());
        }
    }
    made
}

fn protocol(port: &ServicePort) -> &str {
    let named = port.protocol.as_deref().filter(|name| !name.is_empty());
    named.unwrap_or("TCP")
}

fn url(address: &str, port: &ServicePort) -> String {
    let protocol = protocol(port).to_lowercase();
    match address.contains(':') {
        true => format!("{protocol}://[{address}]:{}", port.port),
        false => format!("{protocol}://{address}:{}", port.port),
    }
}

fn in_capitals(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ServiceSpec;

    use super::*;

    fn service(name: &str, address: &str, ports: &[(&str, i32, &str)]) -> Service {
        let port = |(name, port, protocol): &(&str, i32, &str)| ServicePort {
            name: (!name.is_empty()).then(|| (*name).into()),
            port: *port,
            protocol: (!protocol.is_empty()).then(|| (*protocol).into()),
            ..ServicePort::default()
        };
        let mut service = Service::default();
        service.metadata.name = Some(name.into());
        service.spec = Some(ServiceSpec {
            cluster_ip: Some(address.into()),
            ports: Some(ports.iter().map(port).collect()),
            ..ServiceSpec::default()
        });
        service
    }

    /// Upstream's TestFromServices.
    #[test]
    fn a_service_is_told_by_address_and_by_every_port() {
        let services = [
            service("foo-bar", "1.2.3.4", &[("", 8080, "TCP")]),
            service(
                "abc-123",
                "5.6.7.8",
                &[("u-d-p", 8081, "UDP"), ("t-c-p", 8081, "TCP")],
            ),
            service("q-u-u-x", "9.8.7.6", &[("", 8082, ""), ("8083", 8083, "")]),
            service("svrc-clusterip-none", "None", &[("", 8082, "TCP")]),
            service("svrc-clusterip-empty", "", &[("", 8082, "TCP")]),
            service("without-ports", "9.9.9.9", &[]),
            service("super-ipv6", "2001:DB8::", &[("", 8084, "TCP")]),
        ];
        let expected = "FOO_BAR_SERVICE_HOST=1.2.3.4
FOO_BAR_SERVICE_PORT=8080
FOO_BAR_PORT=tcp://1.2.3.4:8080
FOO_BAR_PORT_8080_TCP=tcp://1.2.3.4:8080
FOO_BAR_PORT_8080_TCP_PROTO=tcp
FOO_BAR_PORT_8080_TCP_PORT=8080
FOO_BAR_PORT_8080_TCP_ADDR=1.2.3.4
ABC_123_SERVICE_HOST=5.6.7.8
ABC_123_SERVICE_PORT=8081
ABC_123_SERVICE_PORT_U_D_P=8081
ABC_123_SERVICE_PORT_T_C_P=8081
ABC_123_PORT=udp://5.6.7.8:8081
ABC_123_PORT_8081_UDP=udp://5.6.7.8:8081
ABC_123_PORT_8081_UDP_PROTO=udp
ABC_123_PORT_8081_UDP_PORT=8081
ABC_123_PORT_8081_UDP_ADDR=5.6.7.8
ABC_123_PORT_8081_TCP=tcp://5.6.7.8:8081
ABC_123_PORT_8081_TCP_PROTO=tcp
ABC_123_PORT_8081_TCP_PORT=8081
ABC_123_PORT_8081_TCP_ADDR=5.6.7.8
Q_U_U_X_SERVICE_HOST=9.8.7.6
Q_U_U_X_SERVICE_PORT=8082
Q_U_U_X_SERVICE_PORT_8083=8083
Q_U_U_X_PORT=tcp://9.8.7.6:8082
Q_U_U_X_PORT_8082_TCP=tcp://9.8.7.6:8082
Q_U_U_X_PORT_8082_TCP_PROTO=tcp
Q_U_U_X_PORT_8082_TCP_PORT=8082
Q_U_U_X_PORT_8082_TCP_ADDR=9.8.7.6
Q_U_U_X_PORT_8083_TCP=tcp://9.8.7.6:8083
Q_U_U_X_PORT_8083_TCP_PROTO=tcp
Q_U_U_X_PORT_8083_TCP_PORT=8083
Q_U_U_X_PORT_8083_TCP_ADDR=9.8.7.6
SUPER_IPV6_SERVICE_HOST=2001:DB8::
SUPER_IPV6_SERVICE_PORT=8084
SUPER_IPV6_PORT=tcp://[2001:DB8::]:8084
SUPER_IPV6_PORT_8084_TCP=tcp://[2001:DB8::]:8084
SUPER_IPV6_PORT_8084_TCP_PROTO=tcp
SUPER_IPV6_PORT_8084_TCP_PORT=8084
SUPER_IPV6_PORT_8084_TCP_ADDR=2001:DB8::";
        let made = from_services(&services);
        let lines: Vec<_> = made
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(lines.join("\n"), expected);
    }
}
