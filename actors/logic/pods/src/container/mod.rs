//! What to ask a runtime for when a container is made, in plain types.
//!
//! Mirrors upstream's `generateContainerConfig` (kuberuntime_container.go at v1.36).

mod device_options;
pub mod environment;
pub mod hooks;
mod mounts;
pub mod termination;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{self as core, Pod};
use logic_api::linux::Namespaces;
use logic_api::objects::Objects;
use logic_api::pod::PodView;
use logic_api::pod::labels;
use logic_api::text::env_file::EnvFiles;
use logic_api::types::{ContainerId, ContainerKind};
use logic_placement::ContainerPlacement;
use logic_placement::devices::ContainerDevices;
use logic_resources::node::policy::NodePolicy;
use logic_resources::resources::{LinuxResources, linux_resources};
use logic_volumes as volumes;
use logic_volumes::{MountedVolumes, Subpath};
pub use mounts::{
    ContainerMount, Device, MountAccess, MountError, MountOrigin, MountPropagation,
    PreparedSubpaths, has_subpaths, recursive_read_only,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::container::environment::{
    EnvironmentError, EnvironmentInput, Expander, ProgramStrings, TooLong, Variables,
};
use crate::runtime::runtime_class::HandlerFeatures;
use crate::security::{
    ImageUser, Security, SecurityError, SecurityInput, container_security, verify_non_root,
};

/// A container to create, as CRI's `ContainerConfig`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerConfig {
    pub name: String,
    pub attempt: u32,
    /// The image reference that the runtime resolved the image to.
    pub image: String,
    /// The image as the pod's spec names it.
    pub image_user_spec: String,
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub working_dir: String,
    pub envs: Vec<(String, String)>,
    pub mounts: Vec<ContainerMount>,
    pub devices: Vec<Device>,
    /// Fully qualified names of CDI devices (`vendor.com/class=name`).
    pub cdi_devices: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Within the sandbox's log directory.
    pub log_path: PathBuf,
    pub stdin: bool,
    pub stdin_once: bool,
    pub tty: bool,
    pub resources: LinuxResources,
    pub security: Security,
    /// As the spec names it (`SIGUSR1`); none leaves it to the image.
    pub stop_signal: Option<String>,
}

/// Why a container cannot be asked for: its waiting reason is `CreateContainerConfigError`.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ContainerConfigError {
    #[error("container {container}: environment cannot be made")]
    Environment {
        container: String,
        source: EnvironmentError,
    },
    #[error("container {container}: security context cannot be honoured")]
    Security {
        container: String,
        source: SecurityError,
    },
    #[error("container {container}: mounts cannot be made")]
    Mounts {
        container: String,
        source: MountError,
    },
    #[error("container {container}: command cannot be made")]
    Command { container: String, source: TooLong },
    #[error("unable to find target container {target}")]
    Target { target: String },
}

impl ContainerConfigError {
    pub const REASON: &str = "CreateContainerConfigError";

    /// The text for the status: the cause, as upstream shows it.
    pub fn message(&self) -> String {
        match self {
            Self::Environment { source, .. } => source.to_string(),
            Self::Security { source, .. } => source.to_string(),
            Self::Mounts { source, .. } => source.to_string(),
            Self::Command { source, .. } => source.to_string(),
            Self::Target { .. } => self.to_string(),
        }
    }

    /// Whether the next sync may find what is missing; for the rest only a new definition helps.
    pub fn transient(&self) -> bool {
        match self {
            Self::Environment { source, .. } => source.transient(),
            // The values may come from a ConfigMap.
            Self::Command { .. } | Self::Target { .. } => true,
            Self::Security { .. } | Self::Mounts { .. } => false,
        }
    }
}

/// Everything that a container's configuration is made of.
#[derive(Clone, Copy, Debug)]
pub struct ContainerInput<'a> {
    pub pod: &'a Pod,
    pub container: &'a core::Container,
    pub kind: ContainerKind,
    pub restart_count: u32,
    /// The image reference that the runtime resolved the image to.
    pub image: &'a str,
    pub image_user: &'a ImageUser,
    pub pod_ips: &'a [String],
    pub node: &'a NodePolicy,
    pub objects: &'a dyn Objects,
    /// The files that the container's variables come from.
    pub env_files: &'a EnvFiles,
    /// The references that the runtime resolved the image volumes' images to, by volume.
    pub image_volumes: &'a BTreeMap<String, String>,
    /// The pod's volumes as they are mounted.
    pub volumes: &'a MountedVolumes,
    /// The paths within volumes that [`subpaths`] asked for.
    pub subpaths: &'a PreparedSubpaths,
    /// The features of the pod's runtime handler.
    pub features: HandlerFeatures,
    /// The pod's managed hosts file, if it has one.
    pub hosts_file: Option<&'a Path>,
    /// Those of the pod's sandbox.
    pub namespaces: &'a Namespaces,
    /// The instance whose process namespace an ephemeral container joins.
    pub target: Option<&'a ContainerId>,
    /// Where it runs.
    pub placement: &'a ContainerPlacement,
    /// The CDI names of the devices that it gets of its pod's claims.
    pub claim_devices: &'a [String],
    /// What it gets with the devices of device plugins; none where it has none.
    pub plugin_devices: Option<&'a ContainerDevices>,
}

/// Makes the configuration in upstream's order, so that the same error is reported first.
pub fn container_config(
    input: &ContainerInput<'_>,
) -> Result<ContainerConfig, ContainerConfigError> {
    let ContainerInput {
        pod,
        container,
        restart_count,
        node,
        ..
    } = *input;
    let name = || container.name.clone();
    let envs = device_options::variables(input, variables(input)?);
    let unmountable = |source| ContainerConfigError::Mounts {
        container: name(),
        source,
    };
    // Devices first, as upstream: their errors are reported first.
    let devices = mounts::devices(input).map_err(unmountable)?;
    let mounts = mounts::mounts(input, &envs).map_err(unmountable)?;
    let security = security(input).map_err(|source| ContainerConfigError::Security {
        container: name(),
        source,
    })?;
    let (command, args) =
        command(container, &envs).map_err(|source| ContainerConfigError::Command {
            container: name(),
            source,
        })?;
    let config = ContainerConfig {
        name: name(),
        attempt: restart_count,
        image: input.image.to_owned(),
        image_user_spec: container.image.clone().unwrap_or_default(),
        command,
        args,
        working_dir: container.working_dir.clone().unwrap_or_default(),
        mounts,
        devices,
        cdi_devices: input.claim_devices.to_vec(),
        labels: labels::container_labels(pod, container),
        annotations: labels::container_annotations(pod, container, restart_count),
        log_path: labels::container_log_path(&container.name, restart_count),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        resources: input.placement.limit(linux_resources(pod, container, node)),
        security,
        stop_signal: container
            .lifecycle
            .as_ref()
            .and_then(|l| l.stop_signal.clone()),
        envs,
    };
    Ok(match input.plugin_devices {
        Some(devices) => device_options::with_devices(config, devices),
        None => config,
    })
}

/// The container's command and arguments, expanded: with its variables no more than a program can be started with.
fn command(
    container: &core::Container,
    envs: &Variables,
) -> Result<(Vec<String>, Vec<String>), TooLong> {
    let mut strings = ProgramStrings::default();
    for (name, value) in envs {
        strings.add_variable(name, value)?;
    }
    let expander = Expander::of(envs);
    let mut expand = |words: &Option<Vec<String>>, field: &str| {
        let words = words.iter().flatten().enumerate();
        words
            .map(|(index, word)| {
                let what = || format!("{field}[{index}]");
                let word = expander.expand(word, what)?;
                strings.add_argument(&word, what)?;
                Ok(word)
            })
            .collect::<Result<Vec<_>, _>>()
    };
    Ok((
        expand(&container.command, "command")?,
        expand(&container.args, "args")?,
    ))
}

/// The paths within the pod's volumes that must be prepared before the configuration can be made.
pub fn subpaths(input: &ContainerInput<'_>) -> Result<Vec<Subpath>, ContainerConfigError> {
    let envs = device_options::variables(input, variables(input)?);
    mounts::subpaths(input, &envs).map_err(|source| ContainerConfigError::Mounts {
        container: input.container.name.clone(),
        source,
    })
}

fn variables(input: &ContainerInput<'_>) -> Result<environment::Variables, ContainerConfigError> {
    let envs = environment::variables(&EnvironmentInput {
        pod: input.pod,
        container: input.container,
        pod_ips: input.pod_ips,
        node: input.node,
        objects: input.objects,
        env_files: input.env_files,
    });
    envs.map_err(|source| ContainerConfigError::Environment {
        container: input.container.name.clone(),
        source,
    })
}

fn security(input: &ContainerInput<'_>) -> Result<Security, SecurityError> {
    let ContainerInput {
        pod,
        container,
        node,
        image_user,
        namespaces,
        target,
        ..
    } = *input;
    verify_non_root(pod, container, image_user)?;
    let mut security = container_security(&SecurityInput {
        pod,
        container,
        node,
        image_user,
        namespaces,
        target,
    })?;
    let groups = volumes::groups::groups(pod, input.objects);
    security.supplemental_groups.extend(groups);
    Ok(security)
}

/// The instance whose process namespace an ephemeral container joins: the newest of the container that it names. None
/// for other containers, and where it names none. `newest` has the newest instance of each container.
pub fn target<'a>(
    pod: &Pod,
    name: &str,
    newest: &'a BTreeMap<String, ContainerId>,
) -> Result<Option<&'a ContainerId>, ContainerConfigError> {
    let spec = pod.spec();
    let mut ephemeral = spec
        .into_iter()
        .flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    let own = ephemeral.find(|container| container.name == name);
    let target = own.and_then(|own| own.target_container_name.as_ref());
    let Some(target) = target.filter(|target| !target.is_empty()) else {
        return Ok(None);
    };
    let missing = || ContainerConfigError::Target {
        target: target.clone(),
    };
    newest.get(target).map(Some).ok_or_else(missing)
}

/// The directory of a container's own files: `ROOT/pods/UID/containers/NAME`.
pub fn pod_container_directory(node: &NodePolicy, pod: &Pod, container: &str) -> PathBuf {
    let pods = node.root_dir.join("pods").join(pod.uid().as_str());
    pods.join("containers").join(container)
}
