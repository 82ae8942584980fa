//! From CRI's container configuration to the OCI runtime specification's `config.json`. Pure: what the machine and the
//! image have comes in as data. The measure of completeness is containerd's CRI (`internal/cri/server/container_create.go`).

mod annotations;
mod capabilities;
mod ids;
mod linux;
mod mounts;
mod pattern;
mod process;
mod seccomp;
mod security;
#[cfg(test)]
mod tests;
mod users;

use std::collections::BTreeMap;

use proto::cri::{ContainerConfig, LinuxContainerSecurityContext, PodSandboxConfig};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) use annotations::PassedOn;
pub(crate) use capabilities::names as capability_names;
pub(crate) use ids::{Gid, IdError, Named, Uid};
pub(crate) use linux::{cgroups_path, update_resources};
pub(crate) use mounts::normal;
pub(crate) use mounts::{HostPropagation, MountSource};
pub(crate) use pattern::Pattern;
pub(crate) use process::oom_score_adj;
pub(crate) use security::mount_label;
pub(crate) use users::{IdRange, UserIds, UserNamespacePath, asks_for_ids};

/// The version of the runtime specification that the documents follow; runc 1.1 accepts any 1.x.
const OCI_VERSION: &str = "1.0.2";

/// Why a container cannot be described: the request asks for what is wrong, or for what cannot be enforced here.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum SpecError {
    #[error("{field} is {found:?}, expected {expected}")]
    Invalid {
        field: &'static str,
        found: String,
        expected: &'static str,
    },
    #[error("{field} {value:?} cannot be enforced: {why}")]
    Unenforceable {
        field: &'static str,
        value: String,
        why: &'static str,
    },
    #[error("{0} are not supported by this runtime")]
    Unsupported(&'static str),
    #[error("no command: neither the container nor its image names one")]
    NoCommand,
}

/// What the image says about its containers (OCI image configuration).
#[derive(Clone, Debug, Default)]
pub(crate) struct ImageSettings {
    pub(crate) entrypoint: Vec<String>,
    pub(crate) command: Vec<String>,
    /// `NAME=value`.
    pub(crate) env: Vec<String>,
    pub(crate) working_dir: String,
}

/// The user of the container's process, resolved against the image's files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessUser {
    pub(crate) uid: Uid,
    pub(crate) gid: Gid,
    /// With the primary group.
    pub(crate) groups: Vec<Gid>,
}

/// The namespaces that the container joins: paths of pinned ones or of processes. Absent means the node's, except that
/// an absent pid namespace with `own_pid` is a new one.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamespacePaths {
    pub(crate) user: Option<UserNamespacePath>,
    pub(crate) network: Option<String>,
    pub(crate) ipc: Option<String>,
    pub(crate) uts: Option<String>,
    pub(crate) pid: Option<String>,
    pub(crate) own_pid: bool,
}

/// The sandbox's files that are mounted where the container has no mount of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct SandboxMounts {
    pub(crate) hosts: String,
    pub(crate) hostname: String,
    pub(crate) resolv_conf: String,
    /// `/dev/shm` of the sandbox or of the node.
    pub(crate) shm: String,
    /// Options that its own mount has: a user namespace must keep them.
    pub(crate) shm_kept: Vec<&'static str>,
}

/// A device node of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceNode {
    /// Its path in the container.
    pub(crate) path: String,
    /// `c` or `b`.
    pub(crate) kind: char,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Of `r`, `w`, `m`.
    pub(crate) permissions: String,
}

/// Which program manages cgroups: the form of their paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CgroupDriver {
    /// Folders.
    #[default]
    Cgroupfs,
    /// Scopes and slices.
    Systemd,
}

/// What this machine can enforce.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostFacts {
    /// Names (`CAP_...`) of this process's bounding set.
    pub(crate) capabilities: Vec<&'static str>,
    pub(crate) apparmor: bool,
    /// The loaded AppArmor profile of containers that name none.
    pub(crate) apparmor_default: Option<&'static str>,
    pub(crate) selinux: bool,
    /// The label of containers' files by the node's policy; empty where it has none.
    pub(crate) selinux_file: String,
    pub(crate) seccomp: bool,
    /// cgroup v2 alone.
    pub(crate) unified: bool,
    pub(crate) hugetlb: bool,
    pub(crate) swap_limit: bool,
    /// The lowest oom_score_adj that may be set.
    pub(crate) oom_score_adj_min: i64,
    pub(crate) hostname: String,
    pub(crate) architecture: &'static str,
    /// Of every container: `nofile` and the like, by their OCI names, soft and hard.
    pub(crate) rlimits: BTreeMap<String, (u64, u64)>,
}

/// Everything that a specification is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpecInput<'a> {
    pub(crate) id: &'a str,
    pub(crate) sandbox_id: &'a str,
    pub(crate) sandbox: &'a PodSandboxConfig,
    pub(crate) config: &'a ContainerConfig,
    pub(crate) image: &'a ImageSettings,
    pub(crate) user: &'a ProcessUser,
    pub(crate) namespaces: &'a NamespacePaths,
    pub(crate) sandbox_mounts: &'a SandboxMounts,
    /// The sources of the configuration's mounts, in its order.
    pub(crate) sources: &'a [MountSource],
    /// The devices of the configuration; all of the node for a privileged container.
    pub(crate) devices: &'a [DeviceNode],
    /// The text of the Localhost seccomp profile, if one is named.
    pub(crate) seccomp_profile: Option<&'a str>,
    pub(crate) rootfs: &'a str,
    pub(crate) driver: CgroupDriver,
    /// Which annotations the handler is given.
    pub(crate) passed_on: &'a PassedOn,
    /// Whether the handler can make mounts read-only with everything below them.
    pub(crate) recursive_read_only: bool,
    pub(crate) host: &'a HostFacts,
}

impl SpecInput<'_> {
    fn security(&self) -> Option<&LinuxContainerSecurityContext> {
        self.config.linux.as_ref()?.security_context.as_ref()
    }

    fn privileged(&self) -> bool {
        self.security().is_some_and(|context| context.privileged)
    }
}

/// Makes the document.
pub(crate) fn container_spec(input: SpecInput<'_>) -> Result<Value, SpecError> {
    refuse_unsupported(input)?;
    let capabilities = capabilities::of(input)?;
    let mut process = process::section(input, &capabilities)?;
    security::label(input, &mut process)?;
    let (mounts, propagation) = mounts::section(input)?;
    let mut linux = linux::section(input, propagation)?;
    if let Some(profile) = seccomp::section(input, &capabilities)? {
        linux["seccomp"] = profile;
    }
    if let Some(label) = mount_label(input.config, input.host) {
        linux["mountLabel"] = label.into();
    }
    let readonly = input
        .security()
        .is_some_and(|context| context.readonly_rootfs);
    Ok(json!({
        "ociVersion": OCI_VERSION,
        "process": process,
        "root": { "path": input.rootfs, "readonly": readonly },
        "mounts": mounts,
        "annotations": annotations::section(input),
        "linux": linux,
    }))
}

/// What CRI has and this runtime doesn't: each refused by its name, none dropped.
fn refuse_unsupported(input: SpecInput<'_>) -> Result<(), SpecError> {
    let options = input
        .security()
        .and_then(|context| context.namespace_options.as_ref());
    let pod = input.namespaces.user.as_ref().map(|user| user.ids);
    if UserIds::of(options)? != pod {
        return Err(SpecError::Invalid {
            field: "userns_options",
            found: format!("{options:?}"),
            expected: "the user namespace of the sandbox",
        });
    }
    let sandbox_privileged = input
        .sandbox
        .linux
        .as_ref()
        .and_then(|linux| linux.security_context.as_ref())
        .is_some_and(|context| context.privileged);
    if input.privileged() && !sandbox_privileged {
        return Err(SpecError::Invalid {
            field: "security_context.privileged",
            found: "true".to_owned(),
            expected: "false in a sandbox that is not privileged",
        });
    }
    Ok(())
}
