//! Taking bindings away. Their names are read, but nothing that may still be bound is looked at.

use std::path::{Path, PathBuf};
use std::{fs, io};

use proto::storage::ReleaseSubpathsRequest;
use tonic::Status;

use super::FOLDER;
use crate::{answer, mount, requests};

/// Takes away the bindings of a container, or of all containers. One that refuses does not keep the others; the answer
/// is the first that did.
pub fn release(request: &ReleaseSubpathsRequest) -> Result<(), Status> {
    let folder = requests::absolute("folder", &request.folder)?;
    let pod = requests::name("pod_uid", &request.pod_uid)?;
    if !folder.ends_with(Path::new(pod).join(FOLDER)) {
        return Err(requests::invalid(format!(
            "folder {:?} does not end with {pod}/{FOLDER}",
            request.folder
        )));
    }
    let container = match request.container.as_str() {
        "" => None,
        name => Some(requests::name("container", name)?),
    };
    let mut first = Ok(());
    for volume in paths(&folder)? {
        let containers = match container {
            Some(name) => vec![volume.join(name)],
            None => paths(&volume)?,
        };
        for container in containers {
            first = first.and(all(&container));
        }
        remove_if_empty(&volume);
    }
    remove_if_empty(&folder);
    first
}

/// Takes away what is bound in the folder of one container, and the folder.
fn all(container: &Path) -> Result<(), Status> {
    let mut first = Ok(());
    for index in paths(container)? {
        let cleaned = mount::clean_up(&index).map_err(|status| {
            let what = format!("error cleaning subpath mount {}", index.display());
            Status::new(status.code(), format!("{what}: {}", status.message()))
        });
        first = first.and(cleaned);
    }
    remove_if_empty(container);
    first
}

/// Undoes the beginnings of a binding that failed.
pub(super) fn take_back(target: &Path) {
    // What refuses is found again by the next call, or by the release.
    drop(mount::clean_up(target));
    for folder in target.ancestors().skip(1).take(3) {
        remove_if_empty(folder);
    }
}

fn remove_if_empty(folder: &Path) {
    drop(fs::remove_dir(folder));
}

/// Returns the names in a folder; none if the path is no folder.
fn paths(folder: &Path) -> Result<Vec<PathBuf>, Status> {
    let read = || -> io::Result<Vec<_>> {
        fs::read_dir(folder)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect()
    };
    match read() {
        Ok(paths) => Ok(paths),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(Vec::new())
        }
        Err(error) => Err(answer::failed(
            format!("error reading {}", folder.display()),
            error,
        )),
    }
}
