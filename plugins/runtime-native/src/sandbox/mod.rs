//! Pod sandboxes: namespaces pinned by mounts, files, a network; and no process (decision 29).

pub(crate) mod cgroup;
pub(crate) mod files;
pub(crate) mod namespaces;
pub(crate) mod network;
pub(crate) mod pause;
mod run;
mod stop;
pub(crate) mod sysctls;
pub(crate) mod user_namespace;

use std::path::PathBuf;

use proto::cri::{LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption, PodSandboxConfig};

use self::namespaces::OwnNamespaces;
use crate::error::CallError;
use crate::layout::Layout;
use crate::record::SandboxRecord;
use crate::spec::{SpecError, UserIds, UserNamespacePath};

/// Returns the namespace options of a pod; without any, everything is the pod's own.
pub(crate) fn namespace_options(config: &PodSandboxConfig) -> NamespaceOption {
    security(config)
        .and_then(|context| context.namespace_options)
        .unwrap_or_default()
}

pub(crate) fn security(config: &PodSandboxConfig) -> Option<LinuxSandboxSecurityContext> {
    config.linux.as_ref()?.security_context.clone()
}

/// Returns the ids of a pod's user namespace; none is the node's.
pub(crate) fn user_ids(config: &PodSandboxConfig) -> Result<Option<UserIds>, SpecError> {
    UserIds::of(Some(&namespace_options(config)))
}

/// Returns a sandbox's user namespace by its pin; none is the node's.
pub(crate) fn users(
    layout: &Layout,
    sandbox: &SandboxRecord,
) -> Result<Option<UserNamespacePath>, CallError> {
    let ids = user_ids(&sandbox.config.0)?;
    let path = layout.sandbox(&sandbox.id).join("ns/user");
    Ok(ids.map(|ids| UserNamespacePath {
        path: path.display().to_string(),
        ids,
    }))
}

/// Returns where an OCI runtime finds a sandbox's namespaces.
pub(crate) fn namespace_folder(layout: &Layout, sandbox: &SandboxRecord) -> PathBuf {
    match own_namespaces(&sandbox.config.0).user {
        true => layout.stage(&sandbox.id).join("ns"),
        false => layout.sandbox(&sandbox.id).join("ns"),
    }
}

/// Returns what a pod has to itself. A pod on the node's network has the node's name too.
pub(crate) fn own_namespaces(config: &PodSandboxConfig) -> OwnNamespaces {
    let options = namespace_options(config);
    let network = options.network() != NamespaceMode::Node;
    OwnNamespaces {
        user: matches!(user_ids(config), Ok(Some(_))),
        network,
        ipc: options.ipc() != NamespaceMode::Node,
        uts: network,
    }
}
