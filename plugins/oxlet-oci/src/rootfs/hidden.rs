//! Paths that a container must not see or not write.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{OFlags, fstat};
use rustix::mount::MountAttrFlags;

use super::mounting::{MountError, attach, change, copy, copy_of, make, read_only};
use super::{Root, devices, is_folder};

/// Opens a path to be hidden; `None` if there is nothing.
fn find(root: &Root, path: &str) -> Result<Option<OwnedFd>, MountError> {
    match root.open(Path::new(path), OFlags::PATH) {
        Ok(found) => Ok(Some(found)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(MountError::failed(Path::new(path), "find it")(error)),
    }
}

/// Makes paths read-only, with what is mounted on them.
pub(crate) fn close<'a>(
    root: &Root,
    paths: impl Iterator<Item = &'a str>,
) -> Result<(), MountError> {
    for path in paths {
        let Some(target) = find(root, path)? else {
            continue;
        };
        let failed = || MountError::failed(Path::new(path), "make it read-only");
        let copy = copy_of(&target, true).map_err(failed())?;
        // Attached first: mount(2), where there is no mount_setattr(2), knows attached mounts alone.
        attach(&copy, &target).map_err(failed())?;
        change(&copy, read_only(), false).map_err(failed())?;
    }
    Ok(())
}

/// Covers files by `/dev/null` and folders by an empty folder that nobody can write.
pub(crate) fn mask<'a>(
    root: &Root,
    paths: impl Iterator<Item = &'a str>,
) -> Result<(), MountError> {
    // Folders share one tmpfs, as with runc; it can be copied once it is attached.
    let mut empty: Option<OwnedFd> = None;
    for path in paths {
        let Some(target) = find(root, path)? else {
            continue;
        };
        let failed = || MountError::failed(Path::new(path), "mask it");
        if !is_folder(&target).map_err(failed())? {
            attach(null(root).map_err(failed())?, &target).map_err(failed())?;
            continue;
        }
        match &empty {
            Some(first) => {
                let copy = copy_of(first, false).map_err(failed())?;
                attach(copy, &target).map_err(failed())?;
            }
            None => {
                let made = empty_folder().map_err(failed())?;
                attach(&made, &target).map_err(failed())?;
                empty = Some(made);
            }
        }
    }
    Ok(())
}

/// The container's `/dev/null`, as with runc: of the node's, root in the container could change mode and owner. Where the
/// container's is another file, the node's, read-only.
fn null(root: &Root) -> io::Result<OwnedFd> {
    let null = Path::new("/dev/null");
    if let Ok(own) = root.open(null, OFlags::PATH | OFlags::NOFOLLOW)
        && devices::is_null(&fstat(&own)?)
    {
        return copy_of(&own, false);
    }
    let of_node = copy(null, false)?;
    if !devices::is_null(&fstat(&of_node)?) {
        return Err(io::Error::other("/dev/null of the node is another file"));
    }
    change(&of_node, read_only(), false)?;
    Ok(of_node)
}

fn empty_folder() -> io::Result<OwnedFd> {
    let setting = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
    // The root folder is one of the inodes.
    let settings = [setting("nr_blocks", "1"), setting("nr_inodes", "1")];
    make(
        "tmpfs",
        "tmpfs",
        &settings,
        MountAttrFlags::MOUNT_ATTR_RDONLY,
    )
}
