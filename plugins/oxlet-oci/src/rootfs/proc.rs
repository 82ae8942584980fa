//! What may be mounted at `/proc` and below it, by runc's rules (`checkProcMount`): a volume there would have masked
//! paths act on the volume's files, and programs read a pod's files for the kernel's.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::fstatfs;

/// As in linux/magic.h.
const PROC_SUPER_MAGIC: i64 = 0x9fa0;

/// The only paths below `/proc` that something may be mounted on; lxcfs emulates them.
const ALLOWED: [&str; 11] = [
    "cpuinfo",
    "diskstats",
    "meminfo",
    "stat",
    "swaps",
    "uptime",
    "loadavg",
    "slabinfo",
    "net/dev",
    "sys/kernel/ns_last_pid",
    "sys/crypto/fips_enabled",
];

/// What is to be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mounted {
    /// A new procfs, or a bind of one.
    Procfs,
    Other,
}

/// Whether a descriptor is on a procfs.
pub(crate) fn is_on_procfs(descriptor: impl AsFd) -> io::Result<bool> {
    Ok(fstatfs(descriptor)?.f_type == PROC_SUPER_MAGIC)
}

/// Returns where a descriptor below a root is, relative to the root. Needs the machine's `/proc`.
pub(crate) fn path_below(root: impl AsFd, descriptor: impl AsFd) -> io::Result<PathBuf> {
    let path = |fd: i32| fs::read_link(format!("/proc/self/fd/{fd}"));
    let (root, path) = (
        path(root.as_fd().as_raw_fd())?,
        path(descriptor.as_fd().as_raw_fd())?,
    );
    path.strip_prefix(&root)
        .map(Path::to_owned)
        .map_err(|_| io::Error::other(format!("{} is outside of the root", path.display())))
}

/// Checks a mount's destination, which is `relative` to the root, without links; `named` is what the spec calls it.
pub(crate) fn check(relative: &Path, named: &Path, mounted: Mounted) -> Result<(), String> {
    let mut names = relative.components().map(|part| part.as_os_str());
    match names.next() {
        None => {
            return Err(format!("mountpoint {named:?} is on the top of rootfs"));
        }
        Some(first) if first == "proc" => {}
        Some(_) => return Ok(()),
    }
    let below = names.map(OsStr::as_bytes).collect::<Vec<_>>().join(&b'/');
    if below.is_empty() {
        return match mounted {
            Mounted::Procfs => Ok(()),
            Mounted::Other => Err(format!(
                "{named:?} cannot be mounted because it is not of type proc"
            )),
        };
    }
    if ALLOWED.iter().any(|allowed| allowed.as_bytes() == below) {
        return Ok(());
    }
    Err(format!(
        "{named:?} cannot be mounted because it is inside /proc"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_procfs_is_mounted_at_proc_and_little_below_it() {
        let checked =
            |path: &str, mounted| check(Path::new(path), Path::new("/named"), mounted).err();
        let inside = || Some("\"/named\" cannot be mounted because it is inside /proc".to_owned());
        let other =
            || Some("\"/named\" cannot be mounted because it is not of type proc".to_owned());
        for (path, mounted, expected) in [
            ("proc", Mounted::Procfs, None),
            ("proc", Mounted::Other, other()),
            ("proc/uptime", Mounted::Other, None),
            ("proc/net/dev", Mounted::Other, None),
            ("proc/sys/kernel/ns_last_pid", Mounted::Other, None),
            ("proc/sys", Mounted::Other, inside()),
            ("proc/x", Mounted::Procfs, inside()),
            ("proc/uptime/x", Mounted::Other, inside()),
            ("process", Mounted::Other, None),
            ("data/proc", Mounted::Other, None),
        ] {
            assert_eq!(checked(path, mounted), expected, "{path}");
        }
        assert!(checked("", Mounted::Other).is_some());
    }
}
