//! The folder of a pod that is gone, as upstream cleans an orphan's (pkg/kubelet/kubelet_volumes.go, 1.36).
//!
//! Volumes first. What may be a user's data is never removed here, only by Unmount. If any of it is left, so is the
//! rest of the pod's folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use tonic::Status;

use super::tree::{self, Kept};
use super::{MOUNT_POINT, NOT_EMPTY, failed, is_remains, mount_points};
use crate::requests;

/// Volumes whose files come from the API: the next Mount makes them again.
const MADE_OF_OBJECTS: &[&str] = &[
    "kubernetes.io~configmap",
    "kubernetes.io~secret",
    "kubernetes.io~projected",
    "kubernetes.io~downward-api",
];

const PODS: &str = "pods";
const VOLUMES: &str = "volumes";
const SUBPATHS: &str = "volume-subpaths";

/// Removes what is left below a pod's folder, and the folder; answers with what was kept, and why.
///
/// Where anything is mounted below it, nothing is removed at all.
pub fn pod(folder: &Path) -> Result<Vec<String>, Status> {
    let in_pods = folder.parent().is_some_and(|parent| parent.ends_with(PODS));
    if !in_pods || folder.file_name().is_none() {
        // Only the path tells what is a pod's data: elsewhere a removal would not be safe.
        return Err(requests::invalid(format!(
            "folder {folder:?} is not ROOT/{PODS}/UID"
        )));
    }
    match fs::symlink_metadata(folder) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => {
            let folder = folder.display();
            return Err(Status::failed_precondition(format!(
                "{folder} is not a folder"
            )));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(folder, error)),
    }
    let mut kept = Kept::default();
    for point in mount_points(folder).map_err(|error| failed(folder, error))? {
        kept.note(&point, MOUNT_POINT);
    }
    if kept.is_empty() {
        volumes(&folder.join(VOLUMES), &mut kept)?;
        subpaths(&folder.join(SUBPATHS), &mut kept)?;
    }
    if kept.is_empty() {
        tree::remove(folder, &mut kept)?;
    }
    Ok(kept.into_lines())
}

/// volumes/KIND/NAME
fn volumes(folder: &Path, kept: &mut Kept) -> Result<(), Status> {
    for kind in names(folder)? {
        let made_of_objects = MADE_OF_OBJECTS.iter().any(|word| kind == **word);
        let kind = folder.join(kind);
        if !is_folder(&kind) {
            leftover(&kind, kept)?;
            continue;
        }
        for name in names(&kind)? {
            let volume = kind.join(&name);
            let remains = name.to_str().is_some_and(is_remains);
            match made_of_objects || remains {
                true => tree::remove(&volume, kept)?,
                false => leftover(&volume, kept)?,
            }
        }
        if kept.is_empty() {
            tree::remove_empty(&kind, kept)?;
        }
    }
    if kept.is_empty() {
        tree::remove_empty(folder, kept)?;
    }
    Ok(())
}

/// volume-subpaths/VOLUME/CONTAINER/INDEX, each an empty folder or an empty file.
fn subpaths(folder: &Path, kept: &mut Kept) -> Result<(), Status> {
    for volume in paths(folder)? {
        for container in paths(&volume)? {
            for index in paths(&container)? {
                leftover(&index, kept)?;
            }
        }
    }
    Ok(())
}

/// Removes an empty folder, or the empty file that something was mounted on.
fn leftover(path: &Path, kept: &mut Kept) -> Result<(), Status> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => tree::remove_empty(path, kept),
        Ok(found) if found.is_file() && found.len() == 0 => tree::remove(path, kept),
        Ok(found) if found.is_file() => {
            kept.note(path, NOT_EMPTY);
            Ok(())
        }
        Ok(_) => {
            kept.note(path, "not a folder");
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(path, error)),
    }
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

fn paths(folder: &Path) -> Result<Vec<PathBuf>, Status> {
    let names = names(folder)?.into_iter();
    Ok(names.map(|name| folder.join(name)).collect())
}

/// Returns the names in a folder, sorted; none if the path is no folder.
fn names(folder: &Path) -> Result<Vec<OsString>, Status> {
    if !is_folder(folder) {
        return Ok(Vec::new());
    }
    let read = || -> io::Result<Vec<_>> {
        fs::read_dir(folder)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect()
    };
    let mut names = read().map_err(|error| failed(folder, error))?;
    names.sort();
    Ok(names)
}
