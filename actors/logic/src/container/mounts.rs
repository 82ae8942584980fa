//! What of the node and of images a container finds in its file system.
//!
//! Mirrors upstream's `makeMounts` (kubelet_pods.go and kuberuntime_container.go at v1.36), as far as the
//! node provides volumes: images, the hosts file, and the place for last words.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::VolumeMount;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{ContainerInput, pod_container_directory};
use crate::environment::{self, Variables};

const HOSTS: &str = "/etc/hosts";

/// A file or folder of the node, or an image, inside the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Empty for an image.
    pub host_path: PathBuf,
    pub container_path: String,
    pub access: Access,
    /// What must exist on the node before the container is created.
    pub origin: Origin,
}

/// What the container may do with a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    ReadWrite,
    ReadOnly,
    /// What is mounted below is read-only as well.
    RecursiveReadOnly,
}

/// Where a mount comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// An empty file of mode 0666 that the worker makes first.
    TerminationMessage,
    /// The pod's hosts file, which the worker wrote.
    Hosts,
    /// A mounted volume of the pod.
    Volume,
    /// What the runtime resolved an image to, or a folder of it.
    Image { image: String, sub_path: String },
}

/// Why a mount cannot be asked for; the texts are upstream's.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MountError {
    #[error("cannot find volume {volume:?} to mount into container {container:?}")]
    NoVolume { volume: String, container: String },
    #[error("missing value for {}", .0.join(", "))]
    NoValue(Vec<String>),
    #[error("error SubPath `{0}` must not be an absolute path")]
    Absolute(String),
    #[error("unable to provision SubPath `{0}`: must not contain '..'")]
    Backsteps(String),
}

/// The mounts in upstream's order: volumes, the hosts file, the place for last words.
pub(super) fn mounts(
    input: &ContainerInput<'_>,
    envs: &Variables,
) -> Result<Vec<Mount>, MountError> {
    let wanted = input.container.volume_mounts.as_deref().unwrap_or_default();
    let volumes = wanted.iter().map(|mount| volume(input, mount, envs));
    let mut made = volumes.collect::<Result<Vec<_>, _>>()?;
    let has_own_hosts = wanted.iter().any(|mount| mount.mount_path == HOSTS);
    if let Some(file) = input.hosts_file.filter(|_| !has_own_hosts) {
        made.push(Mount {
            host_path: file.to_owned(),
            container_path: HOSTS.to_owned(),
            access: Access::ReadWrite,
            origin: Origin::Hosts,
        });
    }
    made.extend(last_words(input));
    Ok(made)
}

/// Images are the volumes that the node provides so far.
fn volume(
    input: &ContainerInput<'_>,
    mount: &VolumeMount,
    envs: &Variables,
) -> Result<Mount, MountError> {
    let sub_path = sub_path(mount, envs)?;
    let image = input.image_volumes.get(&mount.name);
    let image = image.ok_or_else(|| MountError::NoVolume {
        volume: mount.name.clone(),
        container: input.container.name.clone(),
    })?;
    Ok(Mount {
        host_path: PathBuf::new(),
        container_path: absolute(&mount.mount_path),
        access: Access::ReadOnly,
        origin: Origin::Image {
            image: image.clone(),
            sub_path,
        },
    })
}

fn sub_path(mount: &VolumeMount, envs: &Variables) -> Result<String, MountError> {
    let expression = mount
        .sub_path_expr
        .as_deref()
        .filter(|text| !text.is_empty());
    let path = match expression {
        Some(text) => environment::expand_fully(text, envs)
            .map_err(|names| MountError::NoValue(names.into_iter().collect()))?,
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
fn last_words(input: &ContainerInput<'_>) -> Option<Mount> {
    let path = input.container.termination_message_path.as_ref()?;
    let folder = pod_container_directory(input.node, input.pod, &input.container.name);
    (!path.is_empty()).then(|| Mount {
        host_path: folder.join(format!("{:08x}", input.restart_count)),
        container_path: absolute(path),
        access: Access::ReadWrite,
        origin: Origin::TerminationMessage,
    })
}
