//! What to ask a runtime for when a pod sandbox is made, in plain types.
//!
//! Mirrors upstream's `generatePodSandboxConfig` (kuberuntime_sandbox.go at v1.36).

mod ports;
mod resources;

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use logic_api::linux::{Namespaces, PortMapping, SeLinuxContext, Seccomp, UserNamespace};
use logic_api::objects::Objects;
use logic_api::pod::PodView;
use logic_api::pod::labels;
use logic_api::text::sysctls;
use logic_api::types::{EventLevel, HistoryEvent, PodUid};
use logic_resources::node::policy::NodePolicy;
use logic_resources::resources::LinuxResources;
use logic_volumes as volumes;
pub use resources::resized;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::network::dns::{self, ResolverConfig};
use crate::network::hosts::{self, HostNameError};
use crate::runtime::runtime_class::{self, NoRuntimeClass};
use crate::security::{GroupsPolicy, SecurityError};

/// A sandbox to create, as CRI's `PodSandboxConfig`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxConfig {
    pub name: String,
    pub uid: PodUid,
    pub namespace: String,
    /// Counts from 0.
    pub attempt: u32,
    /// Empty on the node's network: the node's own name stays.
    pub hostname: String,
    /// Absolute, on the node.
    pub log_directory: PathBuf,
    /// What the pod's resolv.conf says.
    pub dns: ResolverConfig,
    /// Ports of the node that lead into the pod.
    pub port_mappings: Vec<PortMapping>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Empty leaves it to the runtime.
    pub cgroup_parent: String,
    pub namespaces: Namespaces,
    pub sysctls: BTreeMap<String, String>,
    /// Some container of the pod is privileged.
    pub privileged: bool,
    pub seccomp: Seccomp,
    pub se_linux: Option<SeLinuxContext>,
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
    pub supplemental_groups: Vec<i64>,
    pub groups_policy: GroupsPolicy,
    /// The pod's overhead, beside its containers.
    pub overhead: LinuxResources,
    /// The sum of the pod's containers' resources.
    pub resources: LinuxResources,
    /// Empty for the default.
    pub runtime_handler: String,
}

/// The resources of a sandbox: its pod's overhead, and what is left for its containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxResources {
    pub overhead: LinuxResources,
    pub resources: LinuxResources,
}

/// Everything that a sandbox's configuration is made of.
#[derive(Clone, Copy, Debug)]
pub struct SandboxInput<'a> {
    pub pod: &'a Pod,
    pub attempt: u32,
    pub node: &'a NodePolicy,
    pub objects: &'a dyn Objects,
    /// The node's resolver file as it is now.
    pub resolver: &'a ResolverConfig,
    pub users: UserNamespace,
    /// The pod's own cgroup, where the agent made it; empty leaves it to the runtime.
    pub cgroup_parent: &'a str,
}

/// A sandbox's configuration, and the events about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxRequest {
    pub config: SandboxConfig,
    /// Events of the pod.
    pub why: Vec<HistoryEvent>,
    /// Events of the node.
    pub node_why: Vec<HistoryEvent>,
}

/// Why a sandbox cannot be asked for.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SandboxConfigError {
    #[error(transparent)]
    HostName(#[from] HostNameError),
    #[error(transparent)]
    RuntimeClass(#[from] NoRuntimeClass),
    #[error(transparent)]
    Security(#[from] SecurityError),
}

impl SandboxConfigError {
    /// Nothing of it gets better by itself: a new definition or a new class helps.
    pub fn transient(&self) -> bool {
        match self {
            Self::RuntimeClass(_) | Self::HostName(_) | Self::Security(_) => false,
        }
    }
}

/// The event of a pod whose sandbox could not be made, whichever component refused it.
pub fn creation_failed(error: &str) -> HistoryEvent {
    HistoryEvent {
        object: None,
        weight: EventLevel::Warning,
        reason: "FailedCreatePodSandBox".to_owned(),
        message: format!("Failed to create pod sandbox: {error}"),
    }
}

pub fn sandbox_config(input: &SandboxInput<'_>) -> Result<SandboxRequest, SandboxConfigError> {
    let SandboxInput { pod, node, .. } = *input;
    let security = pod.security();
    let dns = dns::pod_dns(pod, node, input.resolver);
    let uid = pod.uid();
    let config = SandboxConfig {
        name: pod.name().into(),
        namespace: pod.namespace().into(),
        attempt: input.attempt,
        hostname: hostname(pod, node)?,
        log_directory: labels::pod_log_directory(
            &node.pod_logs_dir,
            pod.namespace(),
            pod.name(),
            &uid,
        ),
        dns: dns.dns,
        port_mappings: ports::port_mappings(pod),
        labels: labels::sandbox_labels(pod),
        annotations: labels::sandbox_annotations(pod),
        cgroup_parent: input.cgroup_parent.to_owned(),
        namespaces: Namespaces {
            users: input.users,
            ..namespaces(pod)
        },
        sysctls: sysctls(pod),
        privileged: has_privileged_container(pod),
        // The sandbox's own process needs no more than the default, whatever the containers ask.
        seccomp: Seccomp::RuntimeDefault,
        se_linux: security
            .and_then(|s| s.se_linux_options.as_ref())
            .map(se_linux),
        run_as_user: security.and_then(|s| s.run_as_user),
        run_as_group: security.and_then(|s| s.run_as_group),
        supplemental_groups: all_groups(pod, input.objects),
        groups_policy: GroupsPolicy::of(pod)?,
        overhead: resources::overhead(pod, node),
        resources: resources::of_containers(pod, node),
        runtime_handler: runtime_class::handler(pod, input.objects)?,
        uid,
    };
    Ok(SandboxRequest {
        config,
        why: dns.why,
        node_why: dns.node_why,
    })
}

/// On the node's network the node's own name stays.
fn hostname(pod: &Pod, node: &NodePolicy) -> Result<String, HostNameError> {
    if pod.host_network() {
        return Ok(String::new());
    }
    let host = hosts::host_name(pod, &node.cluster_domain)?;
    hosts::kernel_name(pod, &host)
}

/// The namespaces of a pod with the node's users.
pub fn namespaces(pod: &Pod) -> Namespaces {
    use logic_api::linux::NamespaceMode::{Container, Node, Pod as Shared};
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
        users: UserNamespace::Node,
    }
}

fn has_privileged_container(pod: &Pod) -> bool {
    let is = |security: Option<&k8s_openapi::api::core::v1::SecurityContext>| {
        security.is_some_and(|security| security.privileged == Some(true))
    };
    let mut lasting = pod.all_containers();
    lasting.any(|(_, container)| is(container.security_context.as_ref()))
        || pod
            .ephemeral_containers()
            .iter()
            .any(|container| is(container.security_context.as_ref()))
}

/// Runtimes want `net.ipv4.x` where the API also takes `net/ipv4/x`.
fn sysctls(pod: &Pod) -> BTreeMap<String, String> {
    let list = pod.security().and_then(|s| s.sysctls.as_ref());
    list.into_iter()
        .flatten()
        .map(|sysctl| (sysctls::dotted(&sysctl.name), sysctl.value.clone()))
        .collect()
}

/// The pod's own, then those of its volumes.
fn all_groups(pod: &Pod, objects: &dyn Objects) -> Vec<i64> {
    let mut groups = supplemental_groups(pod);
    groups.extend(volumes::groups::groups(pod, objects));
    groups
}

/// fsGroup first, then the pod's list.
pub(crate) fn supplemental_groups(pod: &Pod) -> Vec<i64> {
    let Some(security) = pod.security() else {
        return Vec::new();
    };
    let listed = security.supplemental_groups.iter().flatten();
    security.fs_group.iter().chain(listed).copied().collect()
}

pub(crate) fn se_linux(options: &k8s_openapi::api::core::v1::SELinuxOptions) -> SeLinuxContext {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    SeLinuxContext {
        user: text(&options.user),
        role: text(&options.role),
        type_: text(&options.type_),
        level: text(&options.level),
    }
}

#[cfg(test)]
mod tests;
