//! Paths within a mounted volume, bound to a path of the pod's own so that no container can exchange them: upstream's
//! rules (pkg/volume/util/subpath/subpath_linux.go, 1.36), with openat2 for its walk.

mod release;
#[cfg(test)]
mod tests;

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use proto::storage::{Access, BindSubpathRequest};
use rustix::fs::{FileType, Mode, OFlags, fstat};
use tonic::Status;

pub use self::release::release;
use crate::mount::{self, Bound, Depth};
use crate::safe::{Root, SafeError};
use crate::{answer, requests};

/// The folder in a pod's folder.
pub(crate) const FOLDER: &str = "volume-subpaths";

const FOLDER_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;
const PERMISSIONS: u32 = 0o7777;

/// Binds what the request names, within the volume and nowhere else; answers with where it is.
///
/// Links are followed as long as they stay below the volume's root; an absolute one as upstream, by where it ends. What is bound is what was opened: it
/// cannot be exchanged in between. Bound already, it stays; a binding of something else is replaced. A failure to make
/// missing folders is reported as `mkdir PATH: ...`.
pub fn bind(request: &BindSubpathRequest) -> Result<PathBuf, Status> {
    let root = requests::absolute("root", &request.root)?;
    let subpath = requests::relative("subpath", &request.subpath)?;
    let target = target(request)?;
    let root = Root::open(&root)?;
    let opened = open(&root, &subpath, request.access())?;
    match mount::bound(&opened, &target)? {
        Bound::Same => return Ok(target),
        Bound::Other => mount::unmount(&target)?,
        Bound::Nothing => {}
    }
    let bound = place(&opened, &target)
        .and_then(|()| mount::bind_fd(&opened, &target, Access::ReadWrite, Depth::Single));
    match bound {
        Ok(()) => Ok(target),
        Err(status) => {
            release::take_back(&target);
            Err(status)
        }
    }
}

/// `.../pods/UID/volume-subpaths/VOLUME/CONTAINER/INDEX`
fn target(request: &BindSubpathRequest) -> Result<PathBuf, Status> {
    let target = requests::absolute("target", &request.target)?;
    let pod = requests::name("pod_uid", &request.pod_uid)?;
    let container = requests::name("container", &request.container)?;
    let index = request.index.to_string();
    let from_the_end = [
        Some(index.as_str()),
        Some(container),
        None,
        Some(FOLDER),
        Some(pod),
    ];
    let mut names = target.components().rev();
    let fits = from_the_end.into_iter().all(|expected| {
        let name = names.next();
        name.is_some_and(|name| expected.is_none_or(|word| name.as_os_str() == word))
    });
    if !fits {
        return Err(requests::invalid(format!(
            "target {:?} does not end with {pod}/{FOLDER}/VOLUME/{container}/{index}",
            request.target
        )));
    }
    Ok(target)
}

/// Opens the path in the volume, and makes folders that are missing, with the permissions of the volume's root.
fn open(root: &Root, subpath: &Path, access: Access) -> Result<OwnedFd, Status> {
    let opened = match open_beneath(root, subpath) {
        Err(SafeError::Escapes { path, root: folder }) => match resolved(root, subpath) {
            Some(within) => open_beneath(root, &within),
            None => Err(SafeError::Escapes { path, root: folder }),
        },
        result => result,
    };
    match opened {
        Err(error) if error.not_found() && access == Access::ReadWrite => {}
        Err(error) if error.not_found() => {
            let path = root.path().join(subpath);
            return Err(Status::failed_precondition(format!(
                "mkdir {}: read-only file system",
                path.display()
            )));
        }
        Err(SafeError::Escapes { .. }) => {
            let (path, root) = (root.path().join(subpath), root.path());
            return Err(requests::invalid(format!(
                "subpath {path:?} not within volume path {root:?}"
            )));
        }
        result => return Ok(result?),
    }
    let failed = |error| answer::failed(format!("stat {} failed", root.path().display()), error);
    let mode = fstat(root).map_err(failed)?.st_mode & PERMISSIONS;
    Ok(root.make_dirs(subpath, Mode::from_raw_mode(mode))?)
}

fn open_beneath(root: &Root, subpath: &Path) -> Result<OwnedFd, SafeError> {
    // As a folder first: that makes the kernel mount what is to be mounted on demand.
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    match root.open_with(subpath, flags, Mode::empty()) {
        Err(error) if error.is(io::ErrorKind::NotADirectory) => root.open_path(subpath),
        result => result,
    }
}

/// Resolves all links of the path, the absolute ones as the host sees them; none where that leads out. It may be
/// exchanged meanwhile, so the result is a path to open below the root and nothing more.
fn resolved(root: &Root, subpath: &Path) -> Option<PathBuf> {
    let path = fs::canonicalize(root.path().join(subpath)).ok()?;
    let root = fs::canonicalize(root.path()).ok()?;
    path.strip_prefix(root).map(Path::to_owned).ok()
}

/// Makes the folder or the file to bind to, whichever fits.
fn place(opened: &OwnedFd, target: &Path) -> Result<(), Status> {
    let failed = |what, path: &Path, error| {
        answer::failed(format!("error creating {what} {}", path.display()), error)
    };
    let stat = fstat(opened)
        .map_err(|error| answer::failed("cannot look at the subpath", io::Error::from(error)))?;
    let folder = FileType::from_raw_mode(stat.st_mode).is_dir();
    let parent = target.parent().unwrap_or(Path::new("/"));
    let mut builder = DirBuilder::new();
    builder.mode(FOLDER_MODE);
    let made = builder.recursive(true).create(parent);
    made.map_err(|error| failed("directory", parent, error))?;
    match fs::symlink_metadata(target) {
        Ok(found) if found.is_dir() == folder && (folder || found.is_file()) => return Ok(()),
        // Left over from another kind of thing.
        Ok(_) => mount::clean_up(target)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("path", target, error)),
    }
    if folder {
        let made = builder.recursive(false).create(target);
        return made.map_err(|error| failed("directory", target, error));
    }
    // A file is enough to bind whatever is no folder to it.
    let mut options = OpenOptions::new();
    let made = options
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(target);
    made.map(drop)
        .map_err(|error| failed("file", target, error))
}
