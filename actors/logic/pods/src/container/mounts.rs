//! What of the node and of images a container finds in its file system.
//!
//! Mirrors upstream's `makeMounts` and `makeBlockVolumes` (kubelet_pods.go at v1.36): volumes, devices, the
//! hosts file, and the place for last words.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Container, VolumeMount};
use logic_volumes as volumes;
use logic_volumes::{MountedVolume, Relabel, Subpath, VolumeMode};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{ContainerInput, pod_container_directory};
use crate::container::environment::{Expander, NotExpanded, Variables};
use crate::images::volumes as image_volumes;
use crate::runtime::runtime_class::HandlerFeatures;

const HOSTS: &str = "/etc/hosts";
/// Bytes of a path within a volume: the kernel takes `PATH_MAX` with the NUL.
const MAX_SUB_PATH_BYTES: usize = 4095;

/// A file or directory of the node, or an image, inside the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerMount {
    /// Empty for an image.
    pub host_path: PathBuf,
    pub container_path: String,
    pub access: MountAccess,
    pub propagation: MountPropagation,
    /// Whether the runtime labels the files for the container.
    pub relabel: Relabel,
    /// What must exist on the node before the container is created.
    pub origin: MountOrigin,
}

/// Whether a mount is writable in the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountAccess {
    ReadWrite,
    ReadOnly,
    /// Mounts below it are read-only as well.
    RecursiveReadOnly,
}

/// Whether later mounts below it propagate between host and container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountPropagation {
    /// Neither to the host nor from it.
    #[default]
    Private,
    HostToContainer,
    Bidirectional,
}

/// Where a mount comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountOrigin {
    /// An empty file of mode 0666 that the worker makes first.
    TerminationMessage,
    /// The pod's hosts file, which the worker wrote.
    Hosts,
    /// A mounted volume of the pod.
    Volume,
    /// An image as the runtime resolved it, or a directory of it.
    Image {
        image: String,
        /// The image as the pod's spec names it.
        user_spec: String,
        sub_path: String,
    },
}

/// A device of the node inside the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub host_path: PathBuf,
    pub container_path: String,
    /// `mrw` or `r`
    pub permissions: String,
}

/// Why a mount cannot be asked for; the texts are upstream's.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MountError {
    #[error("cannot find volume {volume:?} to mount into container {container:?}")]
    NoVolume { volume: String, container: String },
    #[error("cannot find volume {volume:?} to pass into container {container:?}")]
    NoDevice { volume: String, container: String },
    #[error("error DevicePath `{0}` must be an absolute path")]
    DevicePath(String),
    #[error("missing value for {}", .0.join(", "))]
    NoValue(Vec<String>),
    #[error("error SubPath `{0}` must not be an absolute path")]
    Absolute(String),
    #[error("unable to provision SubPath `{0}`: must not contain '..'")]
    Backsteps(String),
    #[error(
        "subPathExpr of volumeMount {volume:?} is too long: reached {reached} bytes, at most {MAX_SUB_PATH_BYTES} are a path"
    )]
    TooLong { volume: String, reached: usize },
    #[error("failed to prepare subPath for volumeMount {volume:?} of container {container:?}")]
    Unprepared { volume: String, container: String },
    #[error("invalid MountPropagation mode: {0:?}")]
    Propagation(String),
    #[error("failed to resolve recursive read-only mode: {0}")]
    RecursiveReadOnly(String),
}

/// The mounts in upstream's order: volumes, the hosts file, the place for last words.
pub(super) fn mounts(
    input: &ContainerInput<'_>,
    envs: &Variables,
) -> Result<Vec<ContainerMount>, MountError> {
    let wanted = input.container.volume_mounts.as_deref().unwrap_or_default();
    let volumes = (0..).zip(wanted);
    let volumes = volumes.map(|(index, mount)| volume(input, (index, mount), envs));
    let mut made = volumes.collect::<Result<Vec<_>, _>>()?;
    let has_own_hosts = wanted.iter().any(|mount| mount.mount_path == HOSTS);
    if let Some(file) = input.hosts_file.filter(|_| !has_own_hosts) {
        made.push(ContainerMount {
            host_path: file.to_owned(),
            container_path: HOSTS.to_owned(),
            access: MountAccess::ReadWrite,
            propagation: MountPropagation::Private,
            relabel: Relabel::No,
            origin: MountOrigin::Hosts,
        });
    }
    made.extend(last_words(input));
    Ok(made)
}

/// The paths within mounted volumes that the container's mounts start from.
pub(super) fn subpaths(
    input: &ContainerInput<'_>,
    envs: &Variables,
) -> Result<Vec<Subpath>, MountError> {
    let wanted = input.container.volume_mounts.as_deref().unwrap_or_default();
    let mut subpaths = Vec::new();
    for (index, mount) in (0..).zip(wanted) {
        let path = sub_path(mount, envs)?;
        let Some(volume) = input.volumes.volumes.get(&mount.name) else {
            continue;
        };
        if !path.is_empty() {
            subpaths.push(Subpath {
                volume: mount.name.clone(),
                index,
                path,
                access: volume.access,
            });
        }
    }
    Ok(subpaths)
}

/// Whether a mount of the container starts within a volume.
pub fn has_subpaths(container: &Container) -> bool {
    let given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let mut mounts = container.volume_mounts.iter().flatten();
    mounts.any(|mount| given(&mount.sub_path) || given(&mount.sub_path_expr))
}

fn volume(
    input: &ContainerInput<'_>,
    (index, mount): (u32, &VolumeMount),
    envs: &Variables,
) -> Result<ContainerMount, MountError> {
    if let Some(image) = input.image_volumes.get(&mount.name) {
        return image_mount(input, image, (mount, envs));
    }
    let mounted = input.volumes.volumes.get(&mount.name);
    let mounted = mounted.filter(|mounted| mounted.mode == VolumeMode::FileSystem);
    let mounted = mounted.ok_or_else(|| MountError::NoVolume {
        volume: mount.name.clone(),
        container: input.container.name.clone(),
    })?;
    let host_path = match sub_path(mount, envs)?.is_empty() {
        true => mounted.path.clone(),
        false => prepared(input, index, mount)?,
    };
    let propagation = propagation(mount)?;
    Ok(ContainerMount {
        host_path,
        container_path: absolute(&mount.mount_path),
        access: access(mount, mounted, input.features)?,
        propagation,
        relabel: mounted.relabel,
        origin: MountOrigin::Volume,
    })
}

fn prepared(
    input: &ContainerInput<'_>,
    index: u32,
    mount: &VolumeMount,
) -> Result<PathBuf, MountError> {
    let path = input.subpaths.get(&index).cloned();
    path.ok_or_else(|| MountError::Unprepared {
        volume: mount.name.clone(),
        container: input.container.name.clone(),
    })
}

fn image_mount(
    input: &ContainerInput<'_>,
    image: &str,
    (mount, envs): (&VolumeMount, &Variables),
) -> Result<ContainerMount, MountError> {
    let mut volumes = image_volumes::of(input.pod).into_iter();
    let volume = volumes.find(|volume| volume.name == mount.name);
    Ok(ContainerMount {
        host_path: PathBuf::new(),
        container_path: absolute(&mount.mount_path),
        access: MountAccess::ReadOnly,
        propagation: propagation(mount)?,
        relabel: Relabel::No,
        origin: MountOrigin::Image {
            image: image.to_owned(),
            user_spec: volume.map(|volume| volume.image).unwrap_or_default(),
            sub_path: sub_path(mount, envs)?,
        },
    })
}

fn access(
    mount: &VolumeMount,
    mounted: &MountedVolume,
    features: HandlerFeatures,
) -> Result<MountAccess, MountError> {
    if is_recursively_read_only(mount, features).map_err(MountError::RecursiveReadOnly)? {
        return Ok(MountAccess::RecursiveReadOnly);
    }
    let read_only =
        mount.read_only == Some(true) || mounted.access == volumes::VolumeAccess::ReadOnly;
    Ok(match read_only {
        true => MountAccess::ReadOnly,
        false => MountAccess::ReadWrite,
    })
}

/// Upstream's `resolveRecursiveReadOnly`.
fn is_recursively_read_only(
    mount: &VolumeMount,
    features: HandlerFeatures,
) -> Result<bool, String> {
    let mode = mount.recursive_read_only.as_deref().unwrap_or("Disabled");
    if mode == "Disabled" {
        return Ok(false);
    }
    let refuse = |why: String| {
        Err(format!(
            "volume {:?} requested recursive read-only mode, but it is {why}",
            mount.name
        ))
    };
    if mount.read_only != Some(true) {
        return refuse("not read-only".to_owned());
    }
    let propagation = mount.mount_propagation.as_deref().unwrap_or("None");
    if propagation != "None" {
        return refuse(format!("not compatible with propagation {propagation:?}"));
    }
    match (mode, features.recursive_read_only_mounts) {
        ("IfPossible", supported) => Ok(supported),
        ("Enabled", true) => Ok(true),
        ("Enabled", false) => refuse("not supported by the runtime".to_owned()),
        (other, _) => Err(format!("unknown recursive read-only mode {other:?}")),
    }
}

/// A mount's recursive read-only mode in the status: none where the spec does not ask; upstream's
/// `resolveRecursiveReadOnly` decides there too.
pub fn recursive_read_only(mount: &VolumeMount, features: HandlerFeatures) -> Option<&'static str> {
    mount.recursive_read_only.as_ref()?;
    match is_recursively_read_only(mount, features) {
        Ok(true) => Some("Enabled"),
        Ok(false) | Err(_) => Some("Disabled"),
    }
}

fn propagation(mount: &VolumeMount) -> Result<MountPropagation, MountError> {
    match mount.mount_propagation.as_deref() {
        None | Some("None") => Ok(MountPropagation::Private),
        Some("HostToContainer") => Ok(MountPropagation::HostToContainer),
        Some("Bidirectional") => Ok(MountPropagation::Bidirectional),
        Some(other) => Err(MountError::Propagation(other.to_owned())),
    }
}

/// The devices of the pod's raw block volumes.
pub(super) fn devices(input: &ContainerInput<'_>) -> Result<Vec<Device>, MountError> {
    let wanted = input.container.volume_devices.iter().flatten();
    let device = |device: &k8s_openapi::api::core::v1::VolumeDevice| {
        if !device.device_path.starts_with('/') {
            return Err(MountError::DevicePath(device.device_path.clone()));
        }
        let mounted = input.volumes.volumes.get(&device.name);
        let mounted = mounted.filter(|mounted| mounted.mode == VolumeMode::Block);
        let mounted = mounted.ok_or_else(|| MountError::NoDevice {
            volume: device.name.clone(),
            container: input.container.name.clone(),
        })?;
        let permissions = match mounted.access {
            volumes::VolumeAccess::ReadWrite => "mrw",
            volumes::VolumeAccess::ReadOnly => "r",
        };
        Ok(Device {
            host_path: mounted.path.clone(),
            container_path: device.device_path.clone(),
            permissions: permissions.to_owned(),
        })
    };
    wanted.map(device).collect()
}

fn sub_path(mount: &VolumeMount, envs: &Variables) -> Result<String, MountError> {
    let expression = mount
        .sub_path_expr
        .as_deref()
        .filter(|text| !text.is_empty());
    let path = match expression {
        Some(text) => Expander::of(envs)
            .expand_fully(text, MAX_SUB_PATH_BYTES)
            .map_err(|error| match error {
                NotExpanded::Missing(names) => MountError::NoValue(names.into_iter().collect()),
                NotExpanded::Length(reached) => MountError::TooLong {
                    volume: mount.name.clone(),
                    reached,
                },
            })?,
        None => mount.sub_path.clone().unwrap_or_default(),
    };
    if path.starts_with('/') {
        return Err(MountError::Absolute(path));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(MountError::Backsteps(path));
    }
    Ok(path)
}

fn absolute(path: &str) -> String {
    match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/{path}"),
    }
}

/// The file in which a container may leave its last words.
///
/// Upstream gives each instance's file a random name; the attempt tells instances apart as well.
fn last_words(input: &ContainerInput<'_>) -> Option<ContainerMount> {
    let path = input.container.termination_message_path.as_ref()?;
    let folder = pod_container_directory(input.node, input.pod, &input.container.name);
    (!path.is_empty()).then(|| ContainerMount {
        host_path: folder.join(format!("{:08x}", input.restart_count)),
        container_path: absolute(path),
        access: MountAccess::ReadWrite,
        propagation: MountPropagation::Private,
        relabel: Relabel::No,
        origin: MountOrigin::TerminationMessage,
    })
}

/// The prepared subpaths of a container's mounts, by the mount's index.
pub type PreparedSubpaths = BTreeMap<u32, PathBuf>;
