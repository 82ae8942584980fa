//! Pod sandboxes: namespaces pinned by mounts, files, a network; and no process (decision 29).

pub(crate) mod cgroup;
pub(crate) mod files;
pub(crate) mod namespaces;
pub(crate) mod network;
pub(crate) mod pause;
mod run;
mod stop;
pub(crate) mod sysctls;

use proto::cri::{LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption, PodSandboxConfig};

use self::namespaces::OwnNamespaces;

/// Returns the namespace options of a pod; without any, everything is the pod's own.
pub(crate) fn namespace_options(config: &PodSandboxConfig) -> NamespaceOption {
    security(config)
        .and_then(|context| context.namespace_options)
        .unwrap_or_default()
}

pub(crate) fn security(config: &PodSandboxConfig) -> Option<LinuxSandboxSecurityContext> {
    config.linux.as_ref()?.security_context.clone()
}

/// Returns what a pod has to itself. A pod on the node's network has the node's name too.
pub(crate) fn own_namespaces(config: &PodSandboxConfig) -> OwnNamespaces {
    let options = namespace_options(config);
    let network = options.network() != NamespaceMode::Node;
    OwnNamespaces {
        network,
        ipc: options.ipc() != NamespaceMode::Node,
        uts: network,
    }
}
