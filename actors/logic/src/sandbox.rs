//! What to ask a runtime for when a pod sandbox is made, in plain types.
//!
//! Mirrors upstream's `generatePodSandboxConfig` (kuberuntime_sandbox.go at v1.36).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use crate::dns::{self, Dns};
use crate::labels;
use crate::pod::PodView;
use crate::qos::{Qos, pod_qos};
use crate::types::PodUid;

/// The node's own facts that go into every pod; `config` and the node's discovery fill it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePolicy {
    pub node_name: String,
    /// The node's addresses, primary first.
    pub host_ips: Vec<String>,
    pub cluster_dns: Vec<String>,
    pub cluster_domain: String,
    /// What the node's own resolver file says.
    pub resolv_conf: Dns,
    pub root_dir: PathBuf,
    pub pod_logs_dir: PathBuf,
    /// Where the links to containers' logs lie.
    pub container_logs_dir: PathBuf,
    /// Which cgroup names to use; none leaves the parent to the runtime.
    pub cgroups: Option<CgroupDriver>,
    /// Bytes of memory of the node, for the out-of-memory score.
    pub memory_capacity: u64,
    /// The CPU quota's period; none where limits are not enforced by quota.
    pub cpu_quota_period: Option<Duration>,
    /// The seccomp profile of a container that names none.
    pub seccomp_default: Seccomp,
}

impl Default for NodePolicy {
    fn default() -> Self {
        Self {
            node_name: String::new(),
            host_ips: Vec::new(),
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            resolv_conf: Dns::default(),
            root_dir: PathBuf::from("/var/lib/kubelet"),
            pod_logs_dir: PathBuf::from(labels::POD_LOGS_DIR),
            container_logs_dir: PathBuf::from(labels::CONTAINER_LOGS_DIR),
            cgroups: None,
            memory_capacity: 0,
            cpu_quota_period: Some(Duration::from_millis(100)),
            seccomp_default: Seccomp::Unconfined,
        }
    }
}

/// How cgroups are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupDriver {
    Cgroupfs,
    Systemd,
}

/// CRI's namespace modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NamespaceMode {
    Pod,
    Container,
    Node,
}

/// Which namespaces a pod's containers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    pub network: NamespaceMode,
    pub pid: NamespaceMode,
    pub ipc: NamespaceMode,
}

/// A seccomp profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seccomp {
    Unconfined,
    RuntimeDefault,
    /// A file on the node.
    Localhost(PathBuf),
}

/// SELinux labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeLinux {
    pub user: String,
    pub role: String,
    pub type_: String,
    pub level: String,
}

/// A port of the node that leads to a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMapping {
    pub protocol: Protocol,
    pub container_port: u16,
    /// Nought where the node's port is not used.
    pub host_port: u16,
    pub host_ip: String,
}

/// A transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

/// CRI's `PodSandboxConfig`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxConfig {
    pub name: String,
    pub uid: PodUid,
    pub namespace: String,
    pub attempt: u32,
    /// Empty on the node's network: the node's own name stays.
    pub hostname: String,
    pub log_directory: PathBuf,
    pub dns: Dns,
    pub port_mappings: Vec<PortMapping>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Empty leaves it to the runtime.
    pub cgroup_parent: String,
    pub namespaces: Namespaces,
    pub sysctls: BTreeMap<String, String>,
    pub privileged: bool,
    pub seccomp: Seccomp,
    pub se_linux: Option<SeLinux>,
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
    pub supplemental_groups: Vec<i64>,
    pub runtime_handler: String,
}

pub fn sandbox_config(pod: &Pod, attempt: u32, node: &NodePolicy) -> SandboxConfig {
    let security = pod.security();
    let privileged = pod.all_containers().any(|(_, c)| {
        c.security_context
            .as_ref()
            .is_some_and(|s| s.privileged == Some(true))
    });
    SandboxConfig {
        name: pod.name().into(),
        uid: pod.uid(),
        namespace: pod.namespace().into(),
        attempt,
        hostname: if pod.host_network() {
            String::new()
        } else {
            hostname(pod, node)
        },
        log_directory: labels::pod_log_directory(
            &node.pod_logs_dir,
            pod.namespace(),
            pod.name(),
            &pod.uid(),
        ),
        dns: dns::pod_dns(pod, node),
        port_mappings: port_mappings(pod),
        labels: labels::sandbox_labels(pod),
        annotations: labels::sandbox_annotations(pod),
        cgroup_parent: node
            .cgroups
            .map(|driver| cgroup_parent(pod, driver))
            .unwrap_or_default(),
        namespaces: namespaces(pod),
        sysctls: sysctls(pod),
        privileged,
        // The sandbox's own process needs no more than the default, whatever the containers ask.
        seccomp: Seccomp::RuntimeDefault,
        se_linux: security
            .and_then(|s| s.se_linux_options.as_ref())
            .map(se_linux),
        run_as_user: security.and_then(|s| s.run_as_user),
        run_as_group: security.and_then(|s| s.run_as_group),
        supplemental_groups: supplemental_groups(pod),
        runtime_handler: String::new(),
    }
}

pub fn namespaces(pod: &Pod) -> Namespaces {
    use NamespaceMode::{Container, Node, Pod as Shared};
    Namespaces {
        network: if pod.host_network() { Node } else { Shared },
        ipc: if pod.host_ipc() { Node } else { Shared },
        pid: if pod.host_pid() {
            Node
        } else if pod.shares_process_namespace() {
            Shared
        } else {
            Container
        },
    }
}

/// The pod's host name: its own, or its name, cut to what the kernel takes.
fn hostname(pod: &Pod, node: &NodePolicy) -> String {
    const LONGEST: usize = 63;
    let spec = pod.spec();
    if let Some(name) = spec
        .and_then(|s| s.hostname_override.as_ref())
        .filter(|n| !n.is_empty())
    {
        return name.clone();
    }
    let given = spec
        .and_then(|s| s.hostname.as_ref())
        .filter(|name| !name.is_empty());
    let mut name = given.cloned().unwrap_or_else(|| pod.name().to_owned());
    if name.len() > LONGEST {
        labels::truncate(&mut name, LONGEST);
        name.truncate(name.trim_end_matches(['-', '.']).len());
    }
    let as_fqdn = spec.and_then(|s| s.set_hostname_as_fqdn) == Some(true);
    let subdomain = spec
        .and_then(|s| s.subdomain.as_ref())
        .filter(|s| !s.is_empty());
    match subdomain {
        Some(sub) if as_fqdn => {
            format!(
                "{name}.{sub}.{}.svc.{}",
                pod.namespace(),
                node.cluster_domain
            )
        }
        _ => name,
    }
}

/// The ports of the app containers; a port named twice counts once.
fn port_mappings(pod: &Pod) -> Vec<PortMapping> {
    let mut mappings = Vec::new();
    for container in pod.app_containers() {
        let mut seen = std::collections::BTreeSet::new();
        for port in container.ports.as_deref().unwrap_or_default() {
            let protocol = match port.protocol.as_deref() {
                Some("UDP") => Protocol::Udp,
                Some("SCTP") => Protocol::Sctp,
                _ => Protocol::Tcp,
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

/// Runtimes want `net.ipv4.x` where the API also takes `net/ipv4/x`.
fn sysctls(pod: &Pod) -> BTreeMap<String, String> {
    let list = pod.security().and_then(|s| s.sysctls.as_ref());
    list.into_iter()
        .flatten()
        .map(|sysctl| (dotted(&sysctl.name), sysctl.value.clone()))
        .collect()
}

/// A name whose first separator is a slash has its slashes and dots exchanged.
fn dotted(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'/' => name
            .chars()
            .map(|c| match c {
                '/' => '.',
                '.' => '/',
                other => other,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

/// fsGroup first, then the pod's list.
pub(crate) fn supplemental_groups(pod: &Pod) -> Vec<i64> {
    let Some(security) = pod.security() else {
        return Vec::new();
    };
    let listed = security.supplemental_groups.iter().flatten();
    security.fs_group.iter().chain(listed).copied().collect()
}

pub(crate) fn se_linux(options: &k8s_openapi::api::core::v1::SELinuxOptions) -> SeLinux {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    SeLinux {
        user: text(&options.user),
        role: text(&options.role),
        type_: text(&options.type_),
        level: text(&options.level),
    }
}

/// `/kubepods/burstable/podUID`, or systemd's slices for the same.
pub fn cgroup_parent(pod: &Pod, driver: CgroupDriver) -> String {
    let class = match pod_qos(pod) {
        Qos::Guaranteed => None,
        Qos::Burstable => Some("burstable"),
        Qos::BestEffort => Some("besteffort"),
    };
    let pod_part = format!("pod{}", pod.uid());
    let parts: Vec<_> = ["kubepods"]
        .into_iter()
        .chain(class)
        .chain([pod_part.as_str()])
        .collect();
    match driver {
        CgroupDriver::Cgroupfs => format!("/{}", parts.join("/")),
        CgroupDriver::Systemd => {
            let parts: Vec<_> = parts.iter().map(|part| part.replace('-', "_")).collect();
            let slice = |end: usize| format!("/{}.slice", parts[..end].join("-"));
            (1..=parts.len()).map(slice).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ContainerPort, PodSecurityContext, SecurityContext, Sysctl};

    use super::*;
    use crate::testing::*;

    #[test]
    fn a_plain_pod_gets_upstreams_sandbox() {
        let config = sandbox_config(&pod("web").app("c"), 3, &NodePolicy::default());
        assert_eq!(
            (config.name.as_str(), config.uid.as_str(), config.attempt),
            ("web", "web-uid", 3)
        );
        assert_eq!(config.hostname, "web");
        assert_eq!(
            config.log_directory,
            std::path::Path::new("/var/log/pods/default_web_web-uid")
        );
        assert_eq!(
            (config.seccomp, config.privileged),
            (Seccomp::RuntimeDefault, false)
        );
        assert_eq!(config.cgroup_parent, "");
    }

    #[test]
    fn namespaces_follow_the_spec() {
        use NamespaceMode::{Container, Node, Pod as Shared};
        let cases = [
            (false, false, false, false, (Shared, Container, Shared)),
            (true, false, false, false, (Node, Container, Shared)),
            (false, true, false, true, (Shared, Node, Shared)),
            (false, false, true, true, (Shared, Shared, Node)),
        ];
        for (network, pid, ipc, share, expected) in cases {
            let pod = pod("p").app("c").spec_with(|spec| {
                spec.host_network = Some(network);
                spec.host_pid = Some(pid);
                spec.host_ipc = Some(ipc);
                spec.share_process_namespace = Some(share);
            });
            let config = sandbox_config(&pod, 0, &NodePolicy::default());
            let modes = config.namespaces;
            assert_eq!((modes.network, modes.pid, modes.ipc), expected);
            assert_eq!(config.hostname.is_empty(), network);
        }
    }

    /// Upstream's TestGeneratePodHostNameAndDomain and TestTruncatePodHostname.
    #[test]
    fn host_names_fit_the_kernel() {
        let long = "x".repeat(62) + "-y";
        let cases = [
            ("pod", None, None, false, "pod".to_owned()),
            ("pod", Some("host"), None, false, "host".to_owned()),
            ("pod", Some("host"), Some("sub"), false, "host".to_owned()),
            (
                "pod",
                Some("host"),
                Some("sub"),
                true,
                "host.sub.default.svc.cluster.local".to_owned(),
            ),
            (long.as_str(), None, None, false, "x".repeat(62)),
        ];
        let node = NodePolicy {
            cluster_domain: "cluster.local".into(),
            ..NodePolicy::default()
        };
        for (name, host, sub, fqdn, expected) in cases {
            let pod = pod(name).spec_with(|spec| {
                spec.hostname = host.map(str::to_owned);
                spec.subdomain = sub.map(str::to_owned);
                spec.set_hostname_as_fqdn = Some(fqdn);
            });
            assert_eq!(sandbox_config(&pod, 0, &node).hostname, expected);
        }
    }

    /// Upstream's TestMakePortMappings.
    #[test]
    fn a_port_counts_once() {
        let port = |name: &str, number: i32, host_port: i32, host_ip: &str| ContainerPort {
            name: (!name.is_empty()).then(|| name.into()),
            container_port: number,
            host_port: Some(host_port),
            host_ip: Some(host_ip.into()),
            protocol: Some("TCP".into()),
        };
        let pod = pod("p").app_with("c", |c| {
            c.ports = Some(vec![
                port("", 80, 8080, "127.0.0.1"),
                port("", 80, 8080, "127.0.0.1"),
                port("", 80, 8080, "::1"),
                port("foo", 443, 0, ""),
                port("foo", 444, 0, ""),
                port("", 70_000, 0, ""),
            ]);
        });
        let config = sandbox_config(&pod, 0, &NodePolicy::default());
        let ports: Vec<_> = config
            .port_mappings
            .iter()
            .map(|m| (m.container_port, m.host_ip.as_str()))
            .collect();
        assert_eq!(ports, [(80, "127.0.0.1"), (80, "::1"), (443, "")]);
    }

    /// Upstream's TestConvertPodSysctlsVariableToDotsSeparator, and the pod's security.
    #[test]
    fn sysctls_are_dotted_and_one_privileged_container_makes_the_sandbox_so() {
        let sysctl = |name: &str| Sysctl {
            name: name.into(),
            value: "1".into(),
        };
        let pod = pod("p")
            .spec_with(|spec| {
                spec.security_context = Some(PodSecurityContext {
                    sysctls: Some(vec![
                        sysctl("kernel.shm"),
                        sysctl("net/ipv4/conf/eth0.1/x"),
                        sysctl("net.ipv4.eth0/1.y"),
                    ]),
                    run_as_user: Some(5),
                    fs_group: Some(6),
                    ..PodSecurityContext::default()
                });
            })
            .app_with("c", |c| {
                c.security_context = Some(SecurityContext {
                    privileged: Some(true),
                    ..SecurityContext::default()
                });
            });
        let config = sandbox_config(&pod, 0, &NodePolicy::default());
        let names: Vec<_> = config.sysctls.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["kernel.shm", "net.ipv4.conf.eth0/1.x", "net.ipv4.eth0/1.y"]
        );
        assert!(config.privileged);
        assert_eq!(
            (config.run_as_user, config.supplemental_groups),
            (Some(5), vec![6])
        );
    }

    #[test]
    fn cgroup_parents_are_named_as_upstream() {
        let mut pod = pod("p").app("c");
        pod.metadata.uid = Some("a-b".into());
        let cases = [
            (CgroupDriver::Cgroupfs, "/kubepods/besteffort/poda-b"),
            (
                CgroupDriver::Systemd,
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice",
            ),
        ];
        for (driver, expected) in cases {
            assert_eq!(cgroup_parent(&pod, driver), expected);
        }
        pod.status.get_or_insert_default().qos_class = Some("Guaranteed".into());
        assert_eq!(
            cgroup_parent(&pod, CgroupDriver::Cgroupfs),
            "/kubepods/poda-b"
        );
    }
}
