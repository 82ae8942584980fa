//! Paths of a pod's volumes: upstream's folder layout (pkg/kubelet/kubelet_getters.go, 1.36).
//!
//! A target that lies anywhere else is refused: what is removed, is removed only there.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

use mounts::answer::failed;
use tonic::Status;

use crate::kind::LocalVolumeKind;

pub(crate) const VOLUMES: &str = "volumes";
pub(crate) const DEVICES: &str = "volumeDevices";

/// Upstream makes a pod's own folders so.
const POD_FOLDER: u32 = 0o750;
/// Upstream makes a kind's folder with 0777 and a umask of 022.
const KIND_FOLDER: u32 = 0o755;

/// A target path, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) target: PathBuf,
    /// `ROOT/pods/UID`
    pub(crate) pod: PathBuf,
    pub(crate) uid: String,
    pub(crate) name: String,
}

impl Place {
    /// Takes `ROOT/pods/UID/BASE/kubernetes.io~KIND/NAME` apart; BASE is [`VOLUMES`] or [`DEVICES`].
    pub(crate) fn new(root: &Path, base: &str, kind: &str, target: &str) -> Result<Self, Status> {
        let wrong = || {
            Status::invalid_argument(format!(
                "target {target:?} is not {}/pods/UID/{base}/{}/NAME",
                root.display(),
                folder(kind)
            ))
        };
        let target = Path::new(target);
        let below = target.strip_prefix(root).map_err(|_| wrong())?;
        let parts: Option<Vec<&str>> = below.components().map(plain).collect();
        match parts.as_deref() {
            Some(&["pods", uid, inner, of_kind, name])
                if inner == base && of_kind == folder(kind) =>
            {
                Ok(Self {
                    target: root.join(below),
                    pod: root.join("pods").join(uid),
                    uid: uid.to_owned(),
                    name: name.to_owned(),
                })
            }
            Some(_) | None => Err(wrong()),
        }
    }

    /// What concerns this is done by one call at a time.
    pub(crate) fn subject(&self, kind: LocalVolumeKind) -> String {
        match kind {
            // Pods share it, and its disk is mounted once.
            LocalVolumeKind::Local => format!("{} {}", kind.name(), self.name),
            LocalVolumeKind::EmptyDir
            | LocalVolumeKind::HostPath
            | LocalVolumeKind::ConfigMap
            | LocalVolumeKind::Secret
            | LocalVolumeKind::Projected
            | LocalVolumeKind::DownwardApi
            | LocalVolumeKind::Nfs => self.target.display().to_string(),
        }
    }

    /// Makes the folders above the target.
    pub(crate) fn make_parents(&self) -> Result<(), Status> {
        let kind = self.target.parent().unwrap_or(&self.pod);
        let base = kind.parent().unwrap_or(&self.pod);
        make(base, POD_FOLDER)?;
        make(kind, KIND_FOLDER)
    }
}

/// A kind as a folder.
pub(crate) fn folder(kind: &str) -> String {
    format!("kubernetes.io~{kind}")
}

/// Makes a folder and those above it, each with this mode less the umask, unless it is there.
pub(crate) fn make(path: &Path, mode: u32) -> Result<(), Status> {
    make_plain(path, mode).map_err(|error| failed(format!("mkdir {}", path.display()), error))
}

/// As [`make`], with the system's own error.
pub(crate) fn make_plain(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(path)
}

fn plain(component: Component<'_>) -> Option<&str> {
    match component {
        Component::Normal(name) => name.to_str(),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_taken_only_where_upstream_has_it() {
        let root = Path::new("/var/lib/kubelet");
        let place = Place::new(
            root,
            VOLUMES,
            "empty-dir",
            "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~empty-dir/cache",
        )
        .unwrap();
        assert_eq!((place.uid.as_str(), place.name.as_str()), ("u1", "cache"));
        assert_eq!(place.pod, Path::new("/var/lib/kubelet/pods/u1"));
        for wrong in [
            "",
            "/",
            "/etc",
            "pods/u1/volumes/kubernetes.io~empty-dir/cache",
            "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~secret/cache",
            "/var/lib/kubelet/pods/u1/volumeDevices/kubernetes.io~empty-dir/cache",
            "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~empty-dir",
            "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~empty-dir/cache/deeper",
            "/var/lib/kubelet/pods/../volumes/kubernetes.io~empty-dir/cache",
            "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~empty-dir/..",
            "/var/lib/kubelet2/pods/u1/volumes/kubernetes.io~empty-dir/cache",
        ] {
            let refused = Place::new(root, VOLUMES, "empty-dir", wrong).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{wrong}");
        }
    }
}
