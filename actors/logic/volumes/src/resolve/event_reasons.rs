//! Reasons and messages of a pod's events about its volumes.
//!
//! Upstream: pkg/volume/util/operationexecutor, pkg/kubelet/volumemanager/volume_manager.go, kubelet.go (1.36).

use crate::VolumeMode;

pub const FAILED_MOUNT: &str = "FailedMount";
pub const FAILED_MAP: &str = "FailedMapVolume";
pub const ALREADY_MOUNTED: &str = "AlreadyMountedVolume";
pub const MOUNTED: &str = "SuccessfulMountVolume";
pub const RESIZE_FAILED: &str = "VolumeResizeFailed";
pub const FILE_SYSTEM_RESIZED: &str = "FileSystemResizeSuccessful";
pub const FILE_SYSTEM_NOT_RESIZED: &str = "FileSystemResizeFailed";
/// Our own: of the node, a thread that is stuck over a volume; of a pod, a volume that its driver does not take away.
pub const VOLUME_STUCK: &str = "VolumeStuck";
/// The node has no room for another attachment: upstream rejects the pod with this reason.
pub const ATTACH_LIMIT: &str = "VolumeAttachmentLimitExceeded";

/// The error of upstream's wait when it times out. Upstream writes no event then: the operations' own events give the
/// reason.
pub const TIMED_OUT: &str = "context deadline exceeded";

/// An event: its reason and its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeEvent {
    /// One word, as in an event: `FailedMount`.
    pub reason: &'static str,
    /// In upstream's text.
    pub message: String,
}

/// A step on a volume's way to a pod, whose failure is an event of the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumIter)]
pub enum Operation {
    NodeAffinity,
    Initialization,
    MountOptions,
    WaitForAttach,
    StagePath,
    /// `Stage`, once for all pods.
    Stage,
    /// `Mount` or `MapBlock`, for one pod.
    Publish,
    /// `Expand` before the pod starts.
    ExpandAtMount,
    /// `Expand` under a running pod.
    Expand,
}

impl Operation {
    fn message(self, mode: VolumeMode) -> &'static str {
        match (self, mode) {
            (Self::NodeAffinity, VolumeMode::FileSystem) => "MountVolume.NodeAffinity check failed",
            (Self::NodeAffinity, VolumeMode::Block) => "MapVolume.NodeAffinity check failed",
            (Self::Initialization, VolumeMode::FileSystem) => {
                "MountVolume.NewMounter initialization failed"
            }
            (Self::Initialization, VolumeMode::Block) => {
                "MapVolume.NewBlockVolumeMapper initialization failed"
            }
            (Self::MountOptions, _) => "MountVolume.MountOptionSupport check failed",
            (Self::WaitForAttach, VolumeMode::FileSystem) => "MountVolume.WaitForAttach failed",
            (Self::WaitForAttach, VolumeMode::Block) => "MapVolume.WaitForAttach failed",
            (Self::StagePath, VolumeMode::FileSystem) => "MountVolume.GetDeviceMountPath failed",
            (Self::StagePath, VolumeMode::Block) => "MapVolume.GetGlobalMapPath failed",
            (Self::Stage, VolumeMode::FileSystem) => "MountVolume.MountDevice failed",
            (Self::Stage, VolumeMode::Block) => "MapVolume.SetUpDevice failed",
            (Self::Publish, VolumeMode::FileSystem) => "MountVolume.SetUp failed",
            (Self::Publish, VolumeMode::Block) => "MapVolume.MapPodDevice failed",
            (Self::ExpandAtMount, VolumeMode::FileSystem) => {
                "MountVolume.Setup failed while expanding volume"
            }
            (Self::ExpandAtMount, VolumeMode::Block) => {
                "MapVolume.MarkVolumeAsMounted failed while expanding volume"
            }
            (Self::Expand, _) => "NodeExpandVolume.NodeExpandVolume failed",
        }
    }

    fn reason(self, mode: VolumeMode) -> &'static str {
        match (self, mode) {
            (Self::Expand, _) => RESIZE_FAILED,
            (Self::NodeAffinity, _) | (_, VolumeMode::FileSystem) => FAILED_MOUNT,
            (_, VolumeMode::Block) => FAILED_MAP,
        }
    }
}

/// The event of an operation that failed. `volume` is the name of its directory: the persistent volume's, or the
/// pod's.
pub fn failed(operation: Operation, mode: VolumeMode, volume: &str, cause: &str) -> VolumeEvent {
    let words = operation.message(mode);
    VolumeEvent {
        reason: operation.reason(mode),
        message: format!("{words} for volume {volume:?} : {cause}"),
    }
}

/// The event that a driver does not take a volume away from a pod. Upstream records none, for its log alone tells.
pub fn not_unpublished(mode: VolumeMode, volume: &str, cause: &str) -> VolumeEvent {
    let words = match mode {
        VolumeMode::FileSystem => "UnmountVolume.TearDown failed",
        VolumeMode::Block => "UnmapVolume.UnmapPodDevice failed",
    };
    VolumeEvent {
        reason: VOLUME_STUCK,
        message: format!("{words} for volume {volume:?} : {cause}"),
    }
}

/// The event that a volume was expanded, for the pod and the claim.
pub fn expanded(volume: &str, node_name: &str) -> VolumeEvent {
    VolumeEvent {
        reason: FILE_SYSTEM_RESIZED,
        message: format!(
            "MountVolume.NodeExpandVolume succeeded for volume {volume:?} {node_name}"
        ),
    }
}

/// The event that a volume was not expanded for a pod that may only read it, for the pod and the claim.
pub fn read_only_not_expanded(volume: &str) -> VolumeEvent {
    VolumeEvent {
        reason: FILE_SYSTEM_NOT_RESIZED,
        message: format!(
            "MountVolume.NodeExpandVolume failed for volume {volume:?} requested read-only file system"
        ),
    }
}

/// The volumes that a pod does not have, each list by the pod's names of them.
#[derive(Clone, Copy, Debug)]
pub struct MissingVolumes<'a> {
    pub unmounted: &'a [String],
    /// Those that wait for their attachment.
    pub unattached: &'a [String],
    /// Those that are not resolved ([`super::super::ResolveStep::Processing`]).
    pub unprocessed: &'a [String],
}

/// `Unable to attach or mount volumes: ...`, the message of a `FailedMount`; `cause` is the causes of what is not
/// resolved, with `; ` between, or [`TIMED_OUT`].
pub fn not_mounted(missing: MissingVolumes<'_>, cause: &str) -> String {
    let list = |names: &[String]| {
        let mut names = names.to_vec();
        names.sort();
        names.join(" ")
    };
    format!(
        "Unable to attach or mount volumes: unmounted volumes=[{}], unattached volumes=[{}], failed to process volumes=[{}]: {cause}",
        list(missing.unmounted),
        list(missing.unattached),
        list(missing.unprocessed)
    )
}

/// The message of a release while volumes are still mounted.
pub fn not_unmounted(mounted: &[String]) -> String {
    let mut names = mounted.to_vec();
    names.sort();
    format!("mounted volumes=[{}]: {TIMED_OUT}", names.join(" "))
}

/// Two pods want one volume under different labels.
pub fn conflicting_labels(volume: &str, held: &str, wanted: &str) -> String {
    format!("conflicting SELinux labels of volume {volume}: {held:?} and {wanted:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operations_failure_names_the_operation_the_volume_and_the_cause() {
        let told = |operation, mode| {
            let VolumeEvent { reason, message } = failed(operation, mode, "data", "no");
            format!("{reason}: {message}")
        };
        let cases = [
            (
                told(Operation::Publish, VolumeMode::FileSystem),
                "FailedMount: MountVolume.SetUp failed for volume \"data\" : no",
            ),
            (
                told(Operation::Stage, VolumeMode::FileSystem),
                "FailedMount: MountVolume.MountDevice failed for volume \"data\" : no",
            ),
            (
                told(Operation::WaitForAttach, VolumeMode::Block),
                "FailedMapVolume: MapVolume.WaitForAttach failed for volume \"data\" : no",
            ),
            (
                told(Operation::NodeAffinity, VolumeMode::Block),
                "FailedMount: MapVolume.NodeAffinity check failed for volume \"data\" : no",
            ),
            (
                told(Operation::Expand, VolumeMode::Block),
                "VolumeResizeFailed: NodeExpandVolume.NodeExpandVolume failed for volume \"data\" : no",
            ),
        ];
        for (told, expected) in cases {
            assert_eq!(told, expected);
        }
    }

    /// Upstream's TestWaitForAttachAndMountError.
    #[test]
    fn what_a_pod_misses_is_listed_in_order() {
        let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let missing = MissingVolumes {
            unmounted: &names(&["vol3", "vol2", "vol03", "vol02"]),
            unattached: &names(&["vol2", "vol02"]),
            unprocessed: &names(&["vol3", "vol03"]),
        };
        assert_eq!(
            not_mounted(missing, TIMED_OUT),
            "Unable to attach or mount volumes: unmounted volumes=[vol02 vol03 vol2 vol3], unattached volumes=[vol02 vol2], failed to process volumes=[vol03 vol3]: context deadline exceeded"
        );
        assert_eq!(
            not_unmounted(missing.unattached),
            "mounted volumes=[vol02 vol2]: context deadline exceeded"
        );
    }

    #[test]
    fn growth_is_told_of_the_volume() {
        assert_eq!(
            expanded("pv1", "edge").message,
            "MountVolume.NodeExpandVolume succeeded for volume \"pv1\" edge"
        );
        assert_eq!(
            read_only_not_expanded("pv1").reason,
            "FileSystemResizeFailed"
        );
    }
}
