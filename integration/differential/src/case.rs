//! One seed's image, pod and container, as data: what is at its default is absent from the text.

use serde::Serialize;

/// Everything that one seed decides.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Case {
    pub seed: u64,
    pub image: ImageCase,
    pub pod: PodCase,
    pub container: ContainerCase,
    #[serde(skip_serializing_if = "is_default")]
    pub newer: NewerCase,
    pub end: End,
}

/// What containerd 1.6 does not have. A case with any of it is compared with runc as the native runtime's handler.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NewerCase {
    /// The node's id that the pod's 65,536 ids begin at.
    #[serde(skip_serializing_if = "is_default")]
    pub user_namespace: Option<u32>,
    /// `supplementalGroupsPolicy: Strict`.
    #[serde(skip_serializing_if = "is_default")]
    pub strict_groups: bool,
    /// Read-only mounts are read-only with everything that is mounted in them.
    #[serde(skip_serializing_if = "is_default")]
    pub recursive_readonly: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub image_volumes: Vec<ImageVolume>,
}

/// The case's own image as a volume.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImageVolume {
    pub at: String,
    /// A path in the image; all of it if empty.
    #[serde(skip_serializing_if = "is_default")]
    pub sub_path: String,
}

impl Case {
    /// Whether containerd 1.6 can run it.
    pub fn runs_on_containerd(&self) -> bool {
        self.newer == NewerCase::default()
    }
}

/// The image: its configuration, and the files of its second layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ImageCase {
    #[serde(skip_serializing_if = "is_default")]
    pub user: String,
    #[serde(skip_serializing_if = "is_default")]
    pub working_dir: String,
    #[serde(skip_serializing_if = "is_default")]
    pub env: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub entrypoint: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub command: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub volumes: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub stop_signal: String,
    /// What is different from the usual files of every image.
    #[serde(skip_serializing_if = "is_default")]
    pub files: Vec<File>,
}

/// An entry of a layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct File {
    /// Without a leading slash.
    pub path: String,
    pub content: Content,
    pub mode: u32,
    pub owner: (u64, u64),
}

/// What an entry of a layer is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Content {
    Folder,
    Text(String),
    Link(String),
    /// Removes what a lower layer has.
    Whiteout,
}

/// The pod's sandbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PodCase {
    #[serde(skip_serializing_if = "is_default")]
    pub hostname: String,
    #[serde(skip_serializing_if = "is_default")]
    pub node_network: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub node_ipc: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub pids: Pids,
    #[serde(skip_serializing_if = "is_default")]
    pub privileged: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub sysctls: Vec<(String, String)>,
    #[serde(skip_serializing_if = "is_default")]
    pub dns: Option<Dns>,
    #[serde(skip_serializing_if = "is_default")]
    pub run_as_user: Option<i64>,
    #[serde(skip_serializing_if = "is_default")]
    pub supplemental_groups: Vec<i64>,
    /// A second container of the same image runs the probe after the first one has started.
    #[serde(skip_serializing_if = "is_default")]
    pub second_container: bool,
    /// The second container joins the process namespace of the first one, as an ephemeral container does.
    #[serde(skip_serializing_if = "is_default")]
    pub second_joins_first: bool,
}

/// Whose processes the containers see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub enum Pids {
    #[default]
    Own,
    Pod,
    Node,
}

/// The resolver's configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Dns {
    pub servers: Vec<String>,
    pub searches: Vec<String>,
    pub options: Vec<String>,
}

/// The container.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ContainerCase {
    #[serde(skip_serializing_if = "is_default")]
    pub command: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub args: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub working_dir: String,
    #[serde(skip_serializing_if = "is_default")]
    pub env: Vec<(String, String)>,
    #[serde(skip_serializing_if = "is_default")]
    pub mounts: Vec<MountCase>,
    #[serde(skip_serializing_if = "is_default")]
    pub devices: Vec<DeviceCase>,
    #[serde(skip_serializing_if = "is_default")]
    pub privileged: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub capabilities_add: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub capabilities_drop: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub run_as_user: Option<i64>,
    #[serde(skip_serializing_if = "is_default")]
    pub run_as_username: String,
    #[serde(skip_serializing_if = "is_default")]
    pub run_as_group: Option<i64>,
    #[serde(skip_serializing_if = "is_default")]
    pub supplemental_groups: Vec<i64>,
    #[serde(skip_serializing_if = "is_default")]
    pub readonly_root: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub no_new_privs: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub seccomp: SeccompCase,
    #[serde(skip_serializing_if = "is_default")]
    pub hidden: HiddenPaths,
    #[serde(skip_serializing_if = "is_default")]
    pub tty: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub stdin: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub stdin_once: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub resources: Resources,
    /// Further arguments of the exec.
    #[serde(skip_serializing_if = "is_default")]
    pub exec_args: Vec<String>,
}

/// One mount of the container.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MountCase {
    pub at: String,
    pub source: Source,
    #[serde(skip_serializing_if = "is_default")]
    pub readonly: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub propagation: Propagation,
}

/// A path in the folder that a runtime's fixtures are in, or of the node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Source {
    Folder,
    /// Root's alone.
    Private,
    SubFolder,
    File,
    /// A link to the folder.
    Link,
    /// Not there.
    Missing,
    /// A file system of its own, with another one mounted in it.
    Tree,
    Null,
    NodeDev,
}

/// How mounts spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub enum Propagation {
    #[default]
    Private,
    FromNode,
    Both,
}

/// One device of the node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceCase {
    pub node: String,
    pub at: String,
    pub permissions: String,
}

/// The container's seccomp profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub enum SeccompCase {
    /// The request has none.
    #[default]
    Absent,
    Unconfined,
    RuntimeDefault,
    /// A file that refuses some calls by several error numbers.
    Errors,
    /// A file that allows by default, and conditions on arguments.
    Arguments,
    /// A file that is no profile.
    Malformed,
    /// A file that is not there.
    NoFile,
}

/// Masked and read-only paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub enum HiddenPaths {
    /// What the kubelet sends for `procMount: Default`.
    #[default]
    Default,
    /// `procMount: Unmasked`.
    None,
    /// The default ones, and paths of the image: folders, files, links, missing ones.
    More,
}

/// Limits; 0 is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Resources {
    #[serde(skip_serializing_if = "is_default")]
    pub memory: i64,
    #[serde(skip_serializing_if = "is_default")]
    pub cpu_shares: i64,
    #[serde(skip_serializing_if = "is_default")]
    pub cpu_quota: i64,
    #[serde(skip_serializing_if = "is_default")]
    pub cpu_period: i64,
    #[serde(skip_serializing_if = "is_default")]
    pub cpuset: String,
    #[serde(skip_serializing_if = "is_default")]
    pub oom_score_adj: i64,
}

/// How the container ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub enum End {
    /// It is stopped with this many seconds of grace, after an exec.
    Stop(i64),
    /// It ends by itself with this status.
    Exit(u8),
    /// Whatever its arguments make it do: nothing is sent but at the end.
    #[default]
    Removal,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
