//! Upstream's directory layout for volumes (pkg/kubelet/kubelet_getters.go, pkg/volume/util, 1.36).

use std::path::{Path, PathBuf};

use logic_api::types::PodUid;

use super::{VolumeKind, VolumeMode};

/// `ROOT/pods/UID`. An unusual UID is escaped, so that it leads to a directory below `ROOT/pods` only.
pub fn pod(root: &Path, uid: &PodUid) -> PathBuf {
    root.join("pods").join(uid.as_str().replace('/', "_"))
}

/// A plugin's name as a directory: `kubernetes.io~csi`.
pub fn escaped(kind: VolumeKind) -> String {
    format!("kubernetes.io~{}", kind.as_str())
}

/// Where a pod finds a volume: `ROOT/pods/UID/volumes/KIND/NAME`, `.../mount` below it for CSI; the link to a raw
/// device lies in `volumeDevices`.
pub fn target(
    root: &Path,
    uid: &PodUid,
    kind: VolumeKind,
    folder: &str,
    mode: VolumeMode,
) -> PathBuf {
    let base = match mode {
        VolumeMode::FileSystem => "volumes",
        VolumeMode::Block => "volumeDevices",
    };
    let folder = folder.replace('/', "~");
    let path = pod(root, uid).join(base).join(escaped(kind)).join(folder);
    if kind == VolumeKind::Csi && mode == VolumeMode::FileSystem {
        return path.join("mount");
    }
    path
}

/// The directory of a pod's subpath mounts: `ROOT/pods/UID/volume-subpaths`.
pub fn subpaths(root: &Path, uid: &PodUid) -> PathBuf {
    pod(root, uid).join("volume-subpaths")
}

/// `ROOT/pods/UID/volume-subpaths/VOLUME/CONTAINER/INDEX`; VOLUME is the name of the volume's directory.
pub fn subpath(root: &Path, uid: &PodUid, folder: &str, container: &str, index: u32) -> PathBuf {
    subpaths(root, uid)
        .join(folder.replace('/', "~"))
        .join(container)
        .join(index.to_string())
}
