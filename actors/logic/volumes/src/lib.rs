//! Volumes: the entries of a pod's spec, resolved into what a storage plugin mounts.
//!
//! This page holds the types. [`files`] makes the files of configMap, secret, projected and downwardAPI; [`resolve`]
//! turns one entry of `spec.volumes` into one [`Volume`]; [`reconciler`] decides what is mounted and unmounted next;
//! [`csi_node`] lists the registered drivers; [`paths`] has upstream's directory layout.

pub mod csi_node;
pub mod files;
pub mod groups;
pub mod object_changes;
pub mod paths;
pub mod reconciler;
pub mod resolve;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use logic_api::objects::TokenSpec;
use logic_api::pod::PodView;
use serde::{Deserialize, Serialize};

/// Unique on the node and the same after every restart: upstream's `UniqueVolumeName`, such as
/// `kubernetes.io/empty-dir/UID-NAME` or `kubernetes.io/csi/DRIVER^HANDLE`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VolumeId(pub String);

impl fmt::Display for VolumeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Upstream's volume plugins that this node has.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::EnumIter,
)]
pub enum VolumeKind {
    EmptyDir,
    HostPath,
    ConfigMap,
    Secret,
    Projected,
    DownwardApi,
    Local,
    Nfs,
    Csi,
    /// The runtime mounts it; nothing is asked of a storage plugin.
    Image,
}

impl VolumeKind {
    /// Upstream's plugin name without `kubernetes.io/`, as in directories and unique names.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EmptyDir => "empty-dir",
            Self::HostPath => "host-path",
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
            Self::Projected => "projected",
            Self::DownwardApi => "downward-api",
            Self::Local => "local-volume",
            Self::Nfs => "nfs",
            Self::Csi => "csi",
            Self::Image => "image",
        }
    }

    /// The kind of that name, if this node has it.
    pub fn from_name(name: &str) -> Option<Self> {
        use strum::IntoEnumIterator;
        Self::iter().find(|kind| kind.as_str() == name)
    }
}

/// One volume of one pod, with everything that its mounting needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    pub id: VolumeId,
    pub kind: VolumeKind,
    /// The pod's name of it.
    pub name: String,
    /// The name of its directory: the pod's name of it, or the persistent volume's.
    pub folder: String,
    pub source: VolumeSource,
    pub access: VolumeAccess,
    pub mode: VolumeMode,
    pub mount_options: Vec<String>,
    pub ownership: Option<Ownership>,
    /// The SELinux label of the mount; empty for none.
    pub selinux_label: String,
    /// The attachment that must be there before it may be mounted.
    pub attachment: Attachment,
}

/// Whether a controller attaches the volume to the node first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attachment {
    NotNeeded,
    /// It must stand in the node's `volumesInUse` before it is mounted; the attachment itself has been seen.
    Attached,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeSource {
    EmptyDir(EmptyDir),
    HostPath {
        path: String,
        /// The API's word; empty for no check.
        r#type: String,
    },
    Files(FileSet),
    Local {
        path: String,
        fs_type: String,
    },
    Nfs {
        server: String,
        path: String,
    },
    Csi(Box<CsiVolume>),
    Image,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmptyDir {
    pub medium: Medium,
    /// Bytes. For memory it is what the mount is made with: upstream's least of the volume's limit, the pod's memory
    /// limit and the node's allocatable.
    pub size_limit: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Medium {
    #[default]
    Disk,
    Memory,
    /// Bytes of a page; none is the node's default size.
    HugePages(Option<u64>),
}

/// Files that appear, and change, all at once.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FileSet {
    pub medium: Medium,
    /// By path within the volume.
    pub files: BTreeMap<String, FileProjection>,
    /// Directories within the volume at which a container has another volume.
    pub mount_points: BTreeSet<String>,
}

#[derive(Clone, Default, PartialEq, Eq)]
pub struct FileProjection {
    pub data: Vec<u8>,
    /// Permission bits, such as 0o644.
    pub mode: u32,
    /// The owner's uid; none is root.
    pub owner: Option<u32>,
}

// Data may be secret: it is never shown.
impl fmt::Debug for FileSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("FileSet")
            .field("medium", &self.medium)
            .field("files", &self.files.keys())
            .finish()
    }
}

impl fmt::Debug for FileProjection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "File({} bytes, {:o}, owner {:?})",
            self.data.len(),
            self.mode,
            self.owner
        )
    }
}

/// A volume of a CSI driver; the words are CSI's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiVolume {
    pub driver: String,
    /// The driver's own id of the volume.
    pub volume_handle: String,
    /// Empty for the driver's choice.
    pub fs_type: String,
    /// None for an inline volume.
    pub access_mode: Option<AccessMode>,
    /// What the driver said of the volume when it was made.
    pub volume_context: BTreeMap<String, String>,
    /// The attachment's `VolumeAttachment.status.attachmentMetadata`.
    pub publish_context: BTreeMap<String, String>,
    pub stage_secrets: Secrets,
    pub publish_secrets: Secrets,
    pub expand_secrets: Secrets,
    /// An inline volume, which lives and ends with its pod.
    pub ephemeral: bool,
    /// CSIDriver's `podInfoOnMount`.
    pub pod_info: bool,
    pub tokens: Vec<CsiToken>,
    /// CSIDriver's `serviceAccountTokenInSecrets`.
    pub tokens_in_secrets: bool,
    /// The in-tree plugin that the volume's objects name, for one that was migrated.
    pub migrated_from: String,
    /// Bytes; 0 when not known.
    pub size: u64,
    /// CSIDriver's `seLinuxMount`.
    pub selinux_mount: bool,
    /// CSIDriver's `requiresRepublish`.
    pub republish: bool,
}

/// Confidential values by key; left out of debug output.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(pub BTreeMap<String, String>);

impl fmt::Debug for Secrets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Secrets({:?})", self.0.keys())
    }
}

#[derive(Clone, PartialEq, Eq)]
pub struct CsiToken {
    /// Empty for the API server's own.
    pub audience: String,
    pub token: String,
    /// After which the driver is given another.
    pub expires: Timestamp,
}

impl fmt::Debug for CsiToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Token({:?} until {})", self.audience, self.expires)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessMode {
    ReadWriteOnce,
    ReadOnlyMany,
    ReadWriteMany,
    ReadWriteOncePod,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeAccess {
    ReadWrite,
    ReadOnly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum VolumeMode {
    FileSystem,
    /// A raw block device.
    Block,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ownership {
    /// The group's id.
    pub fs_group: u32,
    pub policy: FsGroupChangePolicy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FsGroupChangePolicy {
    Always,
    OnRootMismatch,
}

/// An object that a volume was made from: when it changes, the volume may.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    /// `ConfigMap`, `Secret`, `PersistentVolumeClaim` ...
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    /// Which token, for a `TokenRequest`: pods share a service account, but not its tokens.
    pub token: Option<TokenSpec>,
}

impl Dependency {
    pub(crate) fn new(kind: &'static str, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            token: None,
        }
    }

    /// A token, or the reason why there is none.
    pub(crate) fn token(wanted: &TokenSpec) -> Self {
        Self {
            token: Some(wanted.clone()),
            ..Self::new("TokenRequest", &wanted.namespace, &wanted.service_account)
        }
    }
}

/// A volume that is ready to be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedVolume {
    pub volume: Volume,
    /// When it has to be resolved again though no object changed: a token is to be renewed.
    pub refresh_at: Option<Timestamp>,
    /// The objects that it was made from: a change of one resolves it again.
    pub uses: BTreeSet<Dependency>,
}

/// Why a volume cannot be mounted yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnresolvedVolume {
    /// The event's reason: `FailedMount`, `FailedAttachVolume`, ...
    pub reason: &'static str,
    /// The error's text, as upstream words it.
    pub message: String,
    pub step: ResolveStep,
    /// When it may be resolved.
    pub until: RetryWhen,
    /// The objects that it waits for, if it waits for objects.
    pub uses: BTreeSet<Dependency>,
    /// The volume, where a controller is to attach it: it is reported in use before it is mounted.
    pub attachable: Option<VolumeId>,
}

/// How far upstream comes with such a volume, and so where the message belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResolveStep {
    /// It is one of the `failed to process volumes`; the message is the cause at the end of the pod's `Unable to
    /// attach or mount volumes`, reported at once.
    Processing,
    /// It is one of the `unattached volumes`; the message is an event of its own, and complete.
    Attaching,
    /// The message is an event of its own, and complete.
    Mounting,
}

/// What an unresolved volume waits for before it is resolved again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetryWhen {
    /// An object that appears or changes, a driver that registers, or another pod that releases a volume.
    Changed,
    /// Another definition of the pod.
    Never,
}

/// The volumes, by the pod's names of them, that containers mount or map and that a storage plugin provides.
///
/// Upstream's `GetPodVolumeNames`; images are left to the runtime.
pub fn pod_volume_names(pod: &Pod) -> BTreeSet<String> {
    let volumes = pod.spec().and_then(|spec| spec.volumes.as_deref());
    let images: BTreeSet<&str> = volumes
        .unwrap_or_default()
        .iter()
        .filter(|volume| volume.image.is_some())
        .map(|volume| volume.name.as_str())
        .collect();
    let used = pod.all_containers().flat_map(|(_, container)| {
        let mounts = container.volume_mounts.iter().flatten();
        let devices = container.volume_devices.iter().flatten();
        let names = mounts
            .map(|mount| mount.name.clone())
            .chain(devices.map(|device| device.name.clone()));
        names.collect::<Vec<_>>()
    });
    used.filter(|name| !images.contains(name.as_str()))
        .collect()
}

/// A pod's mounted volumes by the pod's names of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountedVolumes {
    pub volumes: BTreeMap<String, MountedVolume>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedVolume {
    /// The volume's path on the node; for a raw block volume, the device.
    pub path: PathBuf,
    pub mode: VolumeMode,
    pub access: VolumeAccess,
    /// The runtime has to label the files for the container.
    pub relabel: Relabel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Relabel {
    No,
    Yes,
}

/// A path within a volume that one mount of a container starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subpath {
    /// The pod's name of the volume.
    pub volume: String,
    /// Which of the container's mounts.
    pub index: u32,
    /// Relative to the volume, without `..`.
    pub path: String,
    pub access: VolumeAccess,
}

/// A volume that a storage plugin found on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconstructedVolume {
    pub state: ReconstructedState,
    /// None where it is unknown.
    pub id: Option<VolumeId>,
    /// Upstream's plugin name without `kubernetes.io/`; it may be of no kind that this node has.
    pub kind: String,
    /// The name of its folder below the pod's.
    pub folder: String,
    /// None for what is staged.
    pub pod: Option<logic_api::types::PodUid>,
    pub path: PathBuf,
    /// Empty for kinds without one.
    pub driver: String,
    /// The driver's own id of the volume.
    pub volume_handle: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReconstructedState {
    Mounted,
    Staged,
    StagedBlock,
    Mapped,
    /// Traces, and nothing mounted where something should be.
    LeftOver,
}

/// A CSI driver as it registered on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisteredDriver {
    pub name: String,
    /// What the driver calls this node.
    pub node_id: String,
    /// None: the driver knows no limit.
    pub max_volumes: Option<u64>,
    pub topology: BTreeMap<String, String>,
    /// The driver's socket.
    pub endpoint: String,
    /// Of the registration API.
    pub versions: Vec<String>,
    /// CSI's words, such as `STAGE_UNSTAGE_VOLUME`.
    pub abilities: BTreeSet<String>,
}
