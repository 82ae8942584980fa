//! Mounting and unmounting.
//!
//! A target is opened before it is mounted on, without following a link at its end; a source likewise. What the
//! kernel is given are the open files, so that no process can exchange a path in between.

mod options;
#[cfg(test)]
mod tests;
mod unmount;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::{fs, io};

use proto::storage::Access;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use tonic::Status;

pub use self::unmount::{How, clean_up, unmount, unmount_with};
use crate::answer;
use crate::table::{self, MountInfo, MountTable};

/// Mount options of a tmpfs; the default has the kernel's own limits.
#[derive(Clone, Debug, Default)]
pub struct TmpfsOptions {
    /// Bytes; 0 means the kernel's default, half of the memory.
    pub size: u64,
    /// Inodes; 0 means the kernel's default.
    pub inodes: u64,
    /// Permissions of the root; 0 means 01777.
    pub mode: u32,
    /// The SELinux label, as "system_u:object_r:container_file_t:s0:c1,c2"; empty means none.
    pub label: String,
    /// Whether its pages may be swapped out.
    pub swap: Swap,
}

/// Whether a tmpfs may be swapped out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Swap {
    /// `noswap`, where the kernel knows it (6.4 and later).
    #[default]
    Refused,
    /// The kernel's default.
    Allowed,
}

/// What a bind mount includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Only the source's own mount.
    Single,
    /// With the mounts below it (MS_REC).
    Recursive,
}

/// What is mounted at a target already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Nothing is mounted there.
    Nothing,
    /// The source that was to be bound.
    Same,
    /// Another file or folder.
    Other,
}

/// Mounts a tmpfs on a folder.
pub fn tmpfs(target: &Path, options: &TmpfsOptions) -> Result<(), Status> {
    let mut words = Vec::new();
    if options.size > 0 {
        words.push(format!("size={}", options.size));
    }
    if options.inodes > 0 {
        words.push(format!("nr_inodes={}", options.inodes));
    }
    if options.mode > 0 {
        words.push(format!("mode={:o}", options.mode));
    }
    if !options.label.is_empty() {
        words.push(format!("context=\"{}\"", options.label));
    }
    if options.swap == Swap::Allowed {
        return file_system("tmpfs", target, "tmpfs", &words);
    }
    let without = words.clone();
    words.push("noswap".to_owned());
    match try_file_system("tmpfs", target, "tmpfs", &words)? {
        // A kernel that does not know the word says no more than this.
        Err(Errno::INVAL) => file_system("tmpfs", target, "tmpfs", &without),
        result => result.map_err(|error| refused("tmpfs", target, "tmpfs", error)),
    }
}

/// Mounts a file system; options are those of mount(8).
pub fn file_system(
    source: &str,
    target: &Path,
    fs_type: &str,
    options: &[String],
) -> Result<(), Status> {
    try_file_system(source, target, fs_type, options)?
        .map_err(|error| refused(source, target, fs_type, error))
}

fn try_file_system(
    source: &str,
    target: &Path,
    fs_type: &str,
    options: &[String],
) -> Result<Result<(), Errno>, Status> {
    let read = options::read(options.iter().map(String::as_str))?;
    let place = open(target).map_err(|error| refused(source, target, fs_type, error))?;
    let flags = read.flags;
    let mounted = rustix::mount::mount(
        source,
        by_number(&place),
        fs_type,
        flags,
        read.data.as_c_str(),
    );
    match (mounted, read.propagation) {
        (Ok(()), Some(how)) => Ok(propagate(target, how)),
        (result, _) => Ok(result),
    }
}

fn refused(source: &str, target: &Path, fs_type: &str, error: Errno) -> Status {
    let target = target.display();
    answer::failed(
        format!("mount failed: cannot mount {source} of type {fs_type} at {target}"),
        error,
    )
}

/// Binds one path to another that exists. Links are followed in `source`, not at the end of `target`.
///
/// Where the same is bound already, only the access is made right; where something else is mounted, it fails.
pub fn bind(source: &Path, target: &Path, access: Access, depth: Depth) -> Result<(), Status> {
    let opened = rustix::fs::open(source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let opened = opened.map_err(|error| not_bound(&source.display(), target, error))?;
    bind_fd(opened, target, access, depth)
}

/// Binds what is open, as O_PATH at least, to a path that exists; otherwise as [`bind`].
pub fn bind_fd(
    source: impl AsFd,
    target: &Path,
    access: Access,
    depth: Depth,
) -> Result<(), Status> {
    let source = source.as_fd();
    let failed = |error: Errno| not_bound(&name_of(source), target, error);
    match bound(source, target)? {
        Bound::Same => return limit(target, access, depth),
        Bound::Other => {
            let target = target.display();
            return Err(Status::failed_precondition(format!(
                "something else is mounted at {target}"
            )));
        }
        Bound::Nothing => {}
    }
    let place = open(target).map_err(failed)?;
    let (from, to) = (by_number(source), by_number(&place));
    match depth {
        Depth::Single => rustix::mount::mount_bind(from, to),
        Depth::Recursive => rustix::mount::mount_bind_recursive(from, to),
    }
    .map_err(failed)?;
    limit(target, access, depth).inspect_err(|_| {
        // The mount must not stay with more access than was requested.
        drop(unmount_with(target, How::Detach));
    })
}

fn not_bound(source: &dyn std::fmt::Display, target: &Path, error: Errno) -> Status {
    let target = target.display();
    answer::failed(
        format!("mount failed: cannot bind {source} to {target}"),
        error,
    )
}

/// Tells what is mounted at `target`, compared with what is open.
pub fn bound(source: impl AsFd, target: &Path) -> Result<Bound, Status> {
    let failed = |error| answer::failed(format!("error checking path {target:?} for mount"), error);
    match table::is_mount_point(target) {
        Ok(true) => {}
        Ok(false) => return Ok(Bound::Nothing),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Bound::Nothing),
        Err(error) => return Err(failed(error)),
    }
    let there = open(target).and_then(identity);
    let here = identity(source);
    match (here, there) {
        (Ok(here), Ok(there)) if here == there => Ok(Bound::Same),
        // Also what can no longer be looked at: a mount whose server is gone is another one.
        (Ok(_), _) => Ok(Bound::Other),
        (Err(error), _) => Err(failed(error.into())),
    }
}

/// Device and inode of what is open, from what the kernel knows already.
pub(crate) fn identity(opened: impl AsFd) -> Result<(u32, u32, u64), Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(opened, c"", flags, StatxFlags::INO | StatxFlags::TYPE)?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino))
}

/// Makes the topmost mount at `target`, and those below it, read-only if asked to. Read-write is left as it is: the
/// source may be read-only itself.
fn limit(target: &Path, access: Access, depth: Depth) -> Result<(), Status> {
    if access == Access::ReadWrite {
        return Ok(());
    }
    let failed = |error| {
        let target = target.display();
        answer::failed(format!("cannot make {target} read-only"), error)
    };
    let real = table::real(target).map_err(failed)?;
    let table = MountTable::read().map_err(failed)?;
    let own = table.at(&real).into_iter();
    let below = match depth {
        Depth::Single => Vec::new(),
        Depth::Recursive => table.below(&real),
    };
    let writable = |entry: &&MountInfo| entry.options.iter().all(|option| option != "ro");
    for entry in own.chain(below).filter(writable) {
        make_read_only(entry).map_err(|error| failed(error.into()))?;
    }
    Ok(())
}

fn make_read_only(entry: &MountInfo) -> Result<(), Errno> {
    let words = entry.options.iter();
    // Flags that are not named again would be cleared, and in a user namespace that is refused.
    let kept = words.filter_map(|word| options::flag(word));
    let kept = kept.filter(|(_, set)| *set);
    let flags = kept.fold(MountFlags::BIND | MountFlags::RDONLY, |all, (flag, _)| {
        all | flag
    });
    let top = open(&entry.mount_point)?;
    rustix::mount::mount_remount(by_number(&top), flags, c"")
}

fn propagate(target: &Path, how: MountPropagationFlags) -> Result<(), Errno> {
    let top = open(target)?;
    rustix::mount::mount_change(by_number(&top), how)
}

/// Opens a path for mounting; a link at its end is not followed.
pub(crate) fn open(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty())?;
    Ok(opened)
}

/// The path by which the kernel finds an open file, whatever has become of its name.
pub(crate) fn by_number(opened: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", opened.as_fd().as_raw_fd()))
}

fn name_of(opened: impl AsFd) -> String {
    let link = by_number(opened);
    let name = fs::read_link(&link).unwrap_or(link);
    name.display().to_string()
}
