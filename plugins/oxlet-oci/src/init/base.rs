//! The mount namespace that containers' own are copied from.
//!
//! The kernel copies a mount namespace whole: a container that begins with the node's has the mounts of all other pods copied,
//! changed and taken away again, and its start takes longer with every pod that runs (30 ms at 6,000 mounts). So the first
//! container of a state folder makes a namespace with next to nothing in it, which is pinned there, and is gone with the last
//! container. What a container mounts of the node is opened as a detached copy before its init leaves the node's namespace.
//!
//! The pin lies on a tmpfs of its own, which is private: a mount of a mount namespace cannot spread.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use container_syscalls::{ChildFlags, Forked, fork};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstatfs, mkdirat, openat};
use rustix::io::Errno;
use rustix::mount::{
    MountAttrFlags, MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount,
};
use rustix::process::{Pid, WaitOptions, chdir, fchdir, pivot_root, waitpid};

use super::channel::{Channel, InitMessage};
use crate::rootfs::mounting::{attach, copy, make};

/// In the folder of all containers' states; no container's id begins with a dot.
const FOLDER: &str = ".mounts";
const PIN: &str = "base";
/// `f_type` of the file system of namespaces.
const NSFS_MAGIC: i64 = 0x6e73_6673;
const MODE: Mode = Mode::from_raw_mode(0o700);
/// Where a container's root is attached before it becomes the root.
pub(super) const ROOT: &str = "/root";
/// What an init still needs of the node, each a single mount: its own process, and devices that it may not make.
const OF_NODE: [&str; 2] = ["proc", "dev"];

/// Opens the base of a state folder; made where there is none.
pub(crate) fn open(states: &Path) -> io::Result<File> {
    let folder = states.join(FOLDER);
    if let Some(pinned) = pinned(&folder)? {
        return Ok(pinned);
    }
    let _lock = lock(states)?;
    // Another container's command was first.
    if let Some(pinned) = pinned(&folder)? {
        return Ok(pinned);
    }
    clear(&folder)?;
    pin(&folder)?;
    pinned(&folder)?.ok_or_else(|| io::Error::other("base namespace is not where it was pinned"))
}

/// Removes the base, if no container is left.
pub(crate) fn remove(states: &Path) -> io::Result<()> {
    let _lock = match lock(states) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        locked => locked?,
    };
    let is_last = fs::read_dir(states)?
        .flatten()
        .all(|entry| entry.file_name() == FOLDER);
    if is_last {
        clear(&states.join(FOLDER))?;
    }
    Ok(())
}

/// A command that makes or removes the base holds this; it ends with the process.
fn lock(states: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(states, flags, Mode::empty())?;
    flock(&folder, FlockOperation::LockExclusive)?;
    Ok(folder)
}

fn pinned(folder: &Path) -> io::Result<Option<File>> {
    let file = match File::open(folder.join(PIN)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    Ok((fstatfs(&file)?.f_type == NSFS_MAGIC).then_some(file))
}

/// Takes away what is there of a base, also of one that was half made.
fn clear(folder: &Path) -> io::Result<()> {
    for path in [folder.join(PIN), folder.to_owned()] {
        match unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn pin(folder: &Path) -> io::Result<()> {
    fs::create_dir(folder)?;
    let place = rustix::fs::open(folder, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    attach(tmpfs()?, &place)?;
    mount_change(folder, MountPropagationFlags::PRIVATE)?;
    File::create(folder.join(PIN))?;
    let (command, child) = Channel::pair()?;
    match fork(ChildFlags::default())? {
        Forked::Child => {
            drop(command);
            hold(folder, &child)
        }
        Forked::Parent(pid) => {
            drop(child);
            let pinned = match command.next() {
                Ok(InitMessage::Ready) => {
                    mount_bind(format!("/proc/{pid}/ns/mnt"), folder.join(PIN)).map_err(Into::into)
                }
                Ok(InitMessage::Error(text)) => Err(io::Error::other(text)),
                Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) => Err(error),
            };
            // The child ends with this end.
            drop(command);
            waitpid(Pid::from_raw(pid), WaitOptions::empty())?;
            pinned
        }
    }
}

/// Makes the namespace and stays in it until the command has pinned it.
fn hold(folder: &Path, channel: &Channel) -> ! {
    match become_base(folder) {
        Ok(()) => {
            if channel.tell_ready().is_ok() {
                // Ends with the command, whether it pinned the namespace or died.
                drop(channel.wait_go());
            }
        }
        Err(error) => channel.tell_error(&format!("base namespace: {error}")),
    }
    std::process::exit(0)
}

fn become_base(folder: &Path) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )?;
    let base = tmpfs()?;
    mkdirat(&base, ROOT.trim_start_matches('/'), MODE)?;
    // Before the base is attached over a folder of the node, by whose path these may be reached.
    let of_node = OF_NODE.map(|name| (name, copy(&PathBuf::from("/").join(name), false)));
    let place = rustix::fs::open(folder, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    attach(&base, &place)?;
    for (name, tree) in of_node {
        mkdirat(&base, name, MODE)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        attach(tree?, openat(&base, name, flags, Mode::empty())?)?;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let node = rustix::fs::open("/", flags, Mode::empty())?;
    fchdir(&base)?;
    // The node's root lies on the new one then, and is taken away there.
    pivot_root(".", ".")?;
    fchdir(&node)?;
    unmount(".", UnmountFlags::DETACH)?;
    Ok(chdir("/")?)
}

fn tmpfs() -> io::Result<OwnedFd> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let settings = [("mode".to_owned(), Some("0700".to_owned()))];
    make("tmpfs", "oxlet-oci", &settings, attributes)
}
