//! Id-mapped mounts: a second mount of a path, whose files belong to other users than on disk (`mount_setattr(2)`,
//! Linux 5.12 and later). The user namespace says who: what is its root's on the disk is mapped root's in the mount.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

/// What a copy of a mount includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Only the mount that the path lies on.
    Single,
    /// With the mounts below the path.
    Recursive,
}

/// Copies the mount of a path; it is placed nowhere, and goes with its descriptor. Fails as `open_tree(2)` fails.
pub fn copy(source: &Path, depth: Depth) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let flags = match depth {
        Depth::Single => flags,
        Depth::Recursive => flags | OpenTreeFlags::AT_RECURSIVE,
    };
    Ok(open_tree(CWD, source, flags)?)
}

/// Maps the ids of a mount that [`copy`] has made, and of those below it, as the user namespace maps them. EINVAL means
/// that a file system among them has no such mounts, EPERM that one of them is mapped already.
pub fn map_ids(mount: impl AsFd, user_namespace: impl AsFd) -> io::Result<()> {
    let namespace = user_namespace.as_fd().as_raw_fd();
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::try_from(namespace).map_err(io::Error::other)?,
    };
    // SAFETY: both descriptors are borrowed over the call, the path is a constant, and the kernel only reads the
    // attributes, whose size is told.
    let set = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if set == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Places a mount that was copied at a path that exists.
pub fn place(mount: impl AsFd, target: &Path) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(move_mount(mount, "", CWD, target, flags)?)
}
