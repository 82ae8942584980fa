//! mount_setattr(2).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::checked;

/// How a mount shares later mounts with its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Private,
    Slave,
    Shared,
    Unbindable,
}

impl Propagation {
    fn flag(self) -> u64 {
        match self {
            Propagation::Private => libc::MS_PRIVATE,
            Propagation::Slave => libc::MS_SLAVE,
            Propagation::Shared => libc::MS_SHARED,
            Propagation::Unbindable => libc::MS_UNBINDABLE,
        }
    }
}

/// What changes at a mount; `MOUNT_ATTR_*` of linux/mount.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountAttributes {
    pub set: u64,
    pub clear: u64,
    pub propagation: Option<Propagation>,
}

/// Changes the mount whose root `mount` is, with all mounts below it if `recursive`. Linux 5.12 and later.
///
/// # Errors
/// The kernel's, mount_setattr(2): ENOSYS where the kernel or a filter has no such call, EPERM for attributes that a
/// user namespace must keep, EINVAL for a descriptor that is not a mount's root.
pub fn set_mount_attributes(
    mount: impl AsFd,
    attributes: MountAttributes,
    recursive: bool,
) -> io::Result<()> {
    let argument = libc::mount_attr {
        attr_set: attributes.set,
        attr_clr: attributes.clear,
        propagation: attributes.propagation.map_or(0, Propagation::flag),
        userns_fd: 0,
    };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the descriptor is borrowed over the call, the path is a constant, and the kernel only reads the
    // structure, whose size is passed.
    checked(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const argument,
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, fstatvfs};
    use rustix::mount::{OpenTreeFlags, open_tree};

    use super::*;

    #[test]
    fn attributes_of_a_detached_mount_are_set_and_cleared() {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let Ok(copy) = open_tree(CWD, "/proc", flags) else {
            eprintln!("skipped: no mount can be cloned without CAP_SYS_ADMIN");
            return;
        };
        let is_read_only = || {
            fstatvfs(&copy)
                .unwrap()
                .f_flag
                .contains(rustix::fs::StatVfsMountFlags::RDONLY)
        };
        let set = MountAttributes {
            set: libc::MOUNT_ATTR_RDONLY,
            propagation: Some(Propagation::Private),
            ..MountAttributes::default()
        };
        set_mount_attributes(&copy, set, true).unwrap();
        assert!(is_read_only());
        let clear = MountAttributes {
            clear: libc::MOUNT_ATTR_RDONLY,
            ..MountAttributes::default()
        };
        set_mount_attributes(&copy, clear, false).unwrap();
        assert!(!is_read_only());
    }
}
