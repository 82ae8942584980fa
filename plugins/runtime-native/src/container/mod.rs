//! Containers: made from a configuration and an image, run by the pod's monitor.

mod checkpoint;
mod copy_tree;
mod create;
pub(crate) mod devices;
pub(crate) mod exec;
mod relabel;
mod remove;
pub(crate) mod sources;
pub(crate) mod staging;
mod start;
mod stop;
mod update;
pub(crate) mod user;
mod volumes;

use proto::cri::{ContainerConfig, LinuxContainerSecurityContext};

pub(crate) use volumes::VOLUMES;

/// Returns the security context of a container; an absent one is empty.
pub(crate) fn security(config: &ContainerConfig) -> LinuxContainerSecurityContext {
    config
        .linux
        .as_ref()
        .and_then(|linux| linux.security_context.clone())
        .unwrap_or_default()
}
