//! What the machine and its system call themselves.
//!
//! Upstream: cAdvisor's machine and version, `VersionInfo` and `GoRuntime` of nodestatus/setters.go (1.36).

use k8s_openapi::api::core::v1::{DaemonEndpoint, NodeDaemonEndpoints, NodeStatus};
use logic_resources::node;

use super::{LastRuntimeStatus, NodeStatusFacts, NodeStatusPolicy};

/// Read once, at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeHostFacts {
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    pub kernel_version: String,
    pub os_image: String,
    /// As Rust names it: `x86_64`.
    pub architecture: String,
    /// Swap in bytes.
    pub swap: u64,
}

/// The system's name for people, from the text of `/etc/os-release`.
pub fn os_image(os_release: &str) -> String {
    let name = os_release
        .lines()
        .find_map(|line| line.trim().strip_prefix("PRETTY_NAME="));
    let name = name.map(|name| name.trim().trim_matches(['"', '\'']).to_owned());
    name.filter(|name| !name.is_empty())
        .unwrap_or_else(|| "Linux".to_owned())
}

pub(super) fn versions(
    policy: &NodeStatusPolicy,
    facts: &NodeStatusFacts,
    status: &mut NodeStatus,
) {
    let info = status.node_info.get_or_insert_default();
    info.kernel_version.clone_from(&facts.host.kernel_version);
    info.os_image.clone_from(&facts.host.os_image);
    info.container_runtime_version = match &facts.runtime {
        Some(LastRuntimeStatus { runtime, .. }) => {
            format!("{}://{}", runtime.name, runtime.version)
        }
        // The last version is truer than upstream's value for a runtime that does not answer.
        None if !info.container_runtime_version.is_empty() => {
            info.container_runtime_version.clone()
        }
        None => "://Unknown".to_owned(),
    };
    info.kubelet_version.clone_from(&policy.version);
    info.kube_proxy_version = String::new();
    info.operating_system = "linux".to_owned();
    info.architecture = node::arch(&facts.host.architecture).to_owned();
    status.daemon_endpoints = Some(NodeDaemonEndpoints {
        kubelet_endpoint: Some(DaemonEndpoint {
            port: i32::from(policy.port),
        }),
    });
}
