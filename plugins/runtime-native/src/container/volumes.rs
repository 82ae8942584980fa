//! The volumes of an image: folders of each container of its own, filled with what the image has at their paths.
//!
//! As containerd's CRI has them (`internal/cri/server/container_create.go`, `internal/cri/opts/container.go`): a path at
//! which the container mounts something is left out, the copy keeps owners, modes and attributes, and all of it goes with
//! the container.

use std::fs::{self, DirBuilder};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proto::cri::Mount;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::copy_tree;
use crate::error::CallError;
use crate::image::ContainerImage;
use crate::node::Node;
use crate::record::ContainerRecord;
use crate::spec::{self, HostPropagation, MountSource, UserNamespacePath};

/// Volumes of one image; none comes near.
const MAX_VOLUMES: usize = 256;
/// The longest that the content of an image's volumes may be copied: a call of CRI has no more.
const COPY_TIMEOUT: Duration = Duration::from_secs(120);
/// What a volume is to its container where the image has nothing at its path.
const FOLDER_MODE: u32 = 0o755;

/// The folder of a container's volumes in its own.
pub(crate) const VOLUMES: &str = "volumes";
/// Where the process file system is mounted.
const PROC: &str = "/proc";

/// A mount of an image's volume, as the configuration would have it.
pub(super) type VolumeMount = (Mount, MountSource);

impl Node {
    /// Makes the volumes of a container's image, whose root is mounted at `rootfs`.
    pub(super) async fn make_volumes(
        self: &Arc<Node>,
        record: &ContainerRecord,
        image: &ContainerImage,
        rootfs: &Path,
        users: Option<&UserNamespacePath>,
    ) -> Result<Vec<VolumeMount>, CallError> {
        let mut paths = self.volumes_left(record, image)?;
        paths.retain(|path| !path.starts_with(PROC));
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let folder = self.parts.layout.container(&record.id).join(VOLUMES);
        let rootfs = rootfs.to_owned();
        let what = "copying the volumes of an image";
        let pool = &self.parts.pool;
        let owner = users.map(|users| users.ids.root());
        let made = pool.run(what, COPY_TIMEOUT, move || {
            Ok(make_all(&folder, &rootfs, paths, owner))
        });
        made.await.map_err(CallError::Other)?
    }

    /// Why a container cannot be made with its image's volumes; `None` if it can.
    pub(super) fn refused_volume(
        &self,
        record: &ContainerRecord,
        image: &ContainerImage,
    ) -> Result<Option<String>, CallError> {
        Ok(over_proc(&self.volumes_left(record, image)?))
    }

    fn volumes_left(
        &self,
        record: &ContainerRecord,
        image: &ContainerImage,
    ) -> Result<Vec<PathBuf>, CallError> {
        match self.parts.ignore_image_volumes {
            true => Ok(Vec::new()),
            false => left(&image.volumes, &record.config.0.mounts),
        }
    }
}

/// Why no container with volumes at these paths can be made, in runc's words (`checkProcMount` of its
/// `libcontainer/rootfs_linux.go`); `None` if one can. Masked paths would act on the volume's files in place of the kernel's.
fn over_proc(paths: &[PathBuf]) -> Option<String> {
    let path = paths.iter().find(|path| path.starts_with(PROC))?;
    Some(if path == Path::new(PROC) {
        format!("{path:?} cannot be mounted because it is not of type proc")
    } else {
        format!("{path:?} cannot be mounted because it is inside /proc")
    })
}

/// Returns the paths of volumes where the container mounts nothing, each once.
fn left(volumes: &[String], mounts: &[Mount]) -> Result<Vec<PathBuf>, CallError> {
    if volumes.len() > MAX_VOLUMES {
        return Err(CallError::Invalid {
            field: "the image's volumes",
            found: volumes.len().to_string(),
            expected: "at most 256",
        });
    }
    // A mount that is wrong is refused where mounts are read.
    let taken = mounts
        .iter()
        .filter_map(|mount| clean(&mount.container_path).ok());
    let mut taken: Vec<_> = taken.collect();
    let mut paths = Vec::new();
    for volume in volumes {
        let path = clean(volume)?;
        if !taken.contains(&path) {
            taken.push(path.clone());
            paths.push(path);
        }
    }
    Ok(paths)
}

/// Returns an absolute path without dots, as Go's `filepath.Clean` would below `/`.
fn clean(path: &str) -> Result<PathBuf, CallError> {
    let normal = spec::normal(path);
    match normal == "/" || path.contains('\0') {
        true => Err(CallError::Invalid {
            field: "the image's volumes",
            found: path.to_owned(),
            expected: "paths below the root",
        }),
        false => Ok(PathBuf::from(normal)),
    }
}

fn make_all(
    folder: &Path,
    rootfs: &Path,
    paths: Vec<PathBuf>,
    owner: Option<(u32, u32)>,
) -> Result<Vec<VolumeMount>, CallError> {
    fs::create_dir(folder).map_err(CallError::file("make", folder))?;
    let mut budget = copy_tree::Budget::new();
    let mut mounts = Vec::with_capacity(paths.len());
    for (number, path) in paths.into_iter().enumerate() {
        let volume = folder.join(number.to_string());
        let made = DirBuilder::new().mode(FOLDER_MODE).create(&volume);
        // What the image has there belongs to whom it belongs to in the root already.
        made.and_then(|()| match owner {
            Some((user, group)) => chown(&volume, Some(user), Some(group)),
            None => Ok(()),
        })
        .map_err(CallError::file("make", &volume))?;
        if let Some(content) = in_image(rootfs, &path)? {
            copy_tree::copy(&content, &volume, &mut budget)
                .map_err(CallError::file("copy an image's volume to", &volume))?;
        }
        let source = volume.to_str().map(str::to_owned);
        let source = source.ok_or_else(|| CallError::Invalid {
            field: "root",
            found: volume.display().to_string(),
            expected: "UTF-8",
        })?;
        let mount = Mount {
            container_path: path.display().to_string(),
            host_path: source.clone(),
            ..Mount::default()
        };
        let source = MountSource {
            path: source,
            propagation: HostPropagation::Private,
            kept: Vec::new(),
        };
        mounts.push((mount, source));
    }
    Ok(mounts)
}

/// Opens the folder of an image at a path, with links resolved as its processes would; none if the image has none.
fn in_image(rootfs: &Path, path: &Path) -> Result<Option<OwnedFd>, CallError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let failed = |error: Errno| CallError::file("open the image's volume", path)(error.into());
    let root = openat2(CWD, rootfs, flags, Mode::empty(), ResolveFlags::empty());
    let root = root.map_err(failed)?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    match openat2(&root, path, flags, Mode::empty(), resolve) {
        Ok(folder) => Ok(Some(folder)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(path: &str) -> Mount {
        Mount {
            container_path: path.to_owned(),
            ..Mount::default()
        }
    }

    #[test]
    fn a_volume_where_the_container_mounts_something_is_left_out() {
        let volumes = ["/data", "/data/", "log", "/a/../b/.", "/c"].map(str::to_owned);
        let paths = left(&volumes, &[mount("/b/"), mount("//c")]).unwrap();
        assert_eq!(paths, [Path::new("/data"), Path::new("/log")]);
        for bad in ["/", "..", ""] {
            assert!(left(&[bad.to_owned()], &[]).is_err(), "{bad:?}");
        }
        assert!(left(&vec!["/a".to_owned(); MAX_VOLUMES + 1], &[]).is_err());
    }

    #[test]
    fn a_volume_over_proc_is_refused_in_runcs_words() {
        let refused = |path: &str| {
            let volumes = ["/data".to_owned(), path.to_owned()];
            over_proc(&left(&volumes, &[mount("/proc/own")]).unwrap())
        };
        for (path, expected) in [
            (
                "/proc",
                Some("\"/proc\" cannot be mounted because it is not of type proc"),
            ),
            (
                "/a/../proc/",
                Some("\"/proc\" cannot be mounted because it is not of type proc"),
            ),
            (
                "/proc/sys",
                Some("\"/proc/sys\" cannot be mounted because it is inside /proc"),
            ),
            ("/proc/own", None),
            ("/process", None),
            ("/data/proc", None),
        ] {
            assert_eq!(refused(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn a_link_in_an_image_leads_nowhere_but_into_the_image() {
        let home = tempfile::tempdir().unwrap();
        let image = home.path().join("image");
        fs::create_dir_all(image.join("etc/own")).unwrap();
        for (name, target) in [("a", "/etc"), ("b", "../../etc")] {
            std::os::unix::fs::symlink(target, image.join(name)).unwrap();
        }
        let found = |path: &str| in_image(&image, Path::new(path)).unwrap().is_some();
        assert!(found("/a/own") && found("/b/own"));
        assert!(!found("/a/ssl") && !found("/none"));
        fs::write(image.join("file"), "").unwrap();
        assert!(in_image(&image, Path::new("/file")).is_err());
    }
}
