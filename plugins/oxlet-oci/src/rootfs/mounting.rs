//! Mounts are made detached, get their attributes, and are moved onto a descriptor inside the container's root: at no time
//! is a path of the container's resolved by the machine.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use container_syscalls::{MountAttributes, Propagation, set_mount_attributes};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
    mount_change, mount_remount, move_mount, open_tree,
};

use super::mounts::{Planned, Source};
use super::proc::{self, Mounted};
use super::{Root, is_folder};

/// Why a mount cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MountError {
    #[error("{0}")]
    Refused(String),
    #[error("mount {target}: cannot {doing}", target = .target.display())]
    Failed {
        target: PathBuf,
        doing: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "this kernel has no {0}, which containers need (Linux 5.6), or a seccomp filter of the node hides it"
    )]
    Kernel(&'static str),
    #[error("mount {}: its options need mount_setattr(2) (Linux 5.12)", .0.display())]
    Attributes(PathBuf),
}

impl MountError {
    pub(crate) fn failed(
        target: &Path,
        doing: impl Into<String>,
    ) -> impl FnOnce(io::Error) -> Self {
        let (target, doing) = (target.to_owned(), doing.into());
        move |source| MountError::Failed {
            target,
            doing,
            source,
        }
    }
}

/// The group of a cgroup namespace's container: what is bound where cgroup2 cannot be mounted.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnGroup(pub(crate) Option<PathBuf>);

/// Copies the mount that a descriptor or path of the node is on, detached.
pub(crate) fn copy(path: &Path, recursive: bool) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    Ok(open_tree(CWD, path, flags)?)
}

/// Copies what a descriptor names, detached.
pub(crate) fn copy_of(descriptor: impl AsFd, recursive: bool) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    Ok(open_tree(descriptor, "", flags)?)
}

/// Moves a detached mount onto what a descriptor names.
pub(crate) fn attach(mount: impl AsFd, target: impl AsFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(mount, "", target, "", flags)?)
}

/// Makes a file system, detached.
pub(crate) fn make(
    kind: &str,
    source: &str,
    settings: &[(String, Option<String>)],
    attributes: MountAttrFlags,
) -> io::Result<OwnedFd> {
    let system = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    if !source.is_empty() {
        fsconfig_set_string(system.as_fd(), "source", source)?;
    }
    for (name, value) in settings {
        match value {
            Some(value) => fsconfig_set_string(system.as_fd(), name.as_str(), value.as_str())?,
            None => fsconfig_set_flag(system.as_fd(), name.as_str())?,
        }
    }
    fsconfig_create(system.as_fd())?;
    Ok(fsmount(
        system.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

/// Changes a mount that is attached; by mount(2) where there is no mount_setattr(2).
pub(crate) fn change(
    mount: impl AsFd,
    attributes: MountAttributes,
    recursive: bool,
) -> io::Result<()> {
    if attributes == MountAttributes::default() {
        return Ok(());
    }
    let mount = mount.as_fd();
    match set_mount_attributes(mount, attributes, recursive) {
        Err(error) if error.raw_os_error() == Some(Errno::NOSYS.raw_os_error()) => {}
        set => return set,
    }
    if recursive && (attributes.set | attributes.clear) != 0 {
        return Err(Errno::NOSYS.into());
    }
    let path = format!("/proc/self/fd/{}", mount.as_raw_fd());
    if let Some(propagation) = attributes.propagation {
        mount_change(&path, classic_propagation(propagation, recursive))?;
    }
    if attributes.set | attributes.clear != 0 {
        let flags = classic(attributes, rustix::fs::fstatvfs(mount)?.f_flag);
        mount_remount(&path, MountFlags::BIND | flags, "")?;
    }
    Ok(())
}

pub(crate) fn classic_propagation(
    propagation: Propagation,
    recursive: bool,
) -> MountPropagationFlags {
    let plain = match propagation {
        Propagation::Private => MountPropagationFlags::PRIVATE,
        Propagation::Slave => MountPropagationFlags::DOWNSTREAM,
        Propagation::Shared => MountPropagationFlags::SHARED,
        Propagation::Unbindable => MountPropagationFlags::UNBINDABLE,
    };
    if recursive {
        plain | MountPropagationFlags::REC
    } else {
        plain
    }
}

/// mount(2) sets all flags of a mount at once: those that it has, with what changes.
fn classic(attributes: MountAttributes, now: rustix::fs::StatVfsMountFlags) -> MountFlags {
    use rustix::fs::StatVfsMountFlags as Now;
    let table = [
        (
            MountAttrFlags::MOUNT_ATTR_RDONLY,
            MountFlags::RDONLY,
            Now::RDONLY,
        ),
        (
            MountAttrFlags::MOUNT_ATTR_NOSUID,
            MountFlags::NOSUID,
            Now::NOSUID,
        ),
        (
            MountAttrFlags::MOUNT_ATTR_NODEV,
            MountFlags::NODEV,
            Now::NODEV,
        ),
        (
            MountAttrFlags::MOUNT_ATTR_NOEXEC,
            MountFlags::NOEXEC,
            Now::NOEXEC,
        ),
        (
            MountAttrFlags::MOUNT_ATTR_NODIRATIME,
            MountFlags::NODIRATIME,
            Now::NODIRATIME,
        ),
        (
            MountAttrFlags::MOUNT_ATTR_NOATIME,
            MountFlags::NOATIME,
            Now::NOATIME,
        ),
    ];
    let mut flags = MountFlags::empty();
    for (attribute, flag, had) in table {
        let bit = u64::from(attribute.bits());
        let is_set = attributes.set & bit != 0;
        if is_set || (now.contains(had) && attributes.clear & bit == 0) {
            flags |= flag;
        }
    }
    if attributes.set & u64::from(MountAttrFlags::MOUNT_ATTR_STRICTATIME.bits()) != 0 {
        flags |= MountFlags::STRICTATIME;
    }
    flags
}

/// A mount that was made, and how it spreads, which is said again if the root's propagation is set over all.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) mount: OwnedFd,
    pub(crate) propagation: Option<(Propagation, bool)>,
    pub(crate) is_closed_last: bool,
    pub(crate) destination: PathBuf,
}

/// Whether the kernel has mount_setattr(2), without which only attached mounts can be changed.
pub(crate) fn has_mount_setattr(any: impl AsFd) -> bool {
    // Nothing is changed, and what is no mount's root is refused for that.
    let asked = set_mount_attributes(any, MountAttributes::default(), false);
    asked.err().and_then(|error| error.raw_os_error()) != Some(Errno::NOSYS.raw_os_error())
}

/// Copies what a mount takes of the node, detached; `None` if it takes nothing.
pub(crate) fn copy_source(
    planned: &Planned,
    group: &OwnGroup,
) -> Result<Option<OwnedFd>, MountError> {
    match &planned.source {
        Source::Bind { path, recursive } => copy_bound(planned, path, *recursive).map(Some),
        // A group that cannot be bound is told where it would be.
        Source::New { kind, .. } if is_group(kind) => {
            Ok(group.0.as_deref().and_then(|path| copy(path, false).ok()))
        }
        Source::New { .. } | Source::Remount => Ok(None),
    }
}

fn copy_bound(planned: &Planned, path: &Path, recursive: bool) -> Result<OwnedFd, MountError> {
    copy(path, recursive).map_err(|error| {
        if error.raw_os_error() == Some(Errno::NOSYS.raw_os_error()) {
            return MountError::Kernel("open_tree(2)");
        }
        let doing = format!("open its source {}", path.display());
        MountError::failed(&planned.destination, doing)(error)
    })
}

fn is_group(kind: &str) -> bool {
    matches!(kind, "cgroup" | "cgroup2")
}

/// Makes the mounts of a spec, in its order. `sources` are what [`copy_source`] has of each; empty if they are still to be
/// looked for.
pub(crate) fn make_all(
    root: &Root,
    mounts: &[Planned],
    sources: Vec<Option<OwnedFd>>,
    group: &OwnGroup,
) -> Result<Vec<Made>, MountError> {
    let mut made = Vec::new();
    let sources = sources.into_iter().chain(std::iter::repeat_with(|| None));
    for (planned, source) in mounts.iter().zip(sources) {
        made.extend(make_one(root, planned, source, group)?);
    }
    Ok(made)
}

/// Makes read-only what could not be while something was mounted in it.
pub(crate) fn close_last(made: &[Made]) -> Result<(), MountError> {
    let read_only = read_only();
    for one in made.iter().filter(|one| one.is_closed_last) {
        change(&one.mount, read_only, false)
            .map_err(MountError::failed(&one.destination, "make it read-only"))?;
    }
    Ok(())
}

pub(crate) fn read_only() -> MountAttributes {
    MountAttributes {
        set: u64::from(MountAttrFlags::MOUNT_ATTR_RDONLY.bits()),
        ..MountAttributes::default()
    }
}

fn make_one(
    root: &Root,
    planned: &Planned,
    copied: Option<OwnedFd>,
    group: &OwnGroup,
) -> Result<Option<Made>, MountError> {
    let destination = planned.destination.as_path();
    let failed = |doing: &str| MountError::failed(destination, doing.to_owned());
    let mount = match &planned.source {
        Source::Remount => {
            let mount = root
                .open(destination, OFlags::PATH)
                .map_err(failed("find it"))?;
            change(&mount, planned.attributes, false).map_err(failed("remount it"))?;
            return Ok(None);
        }
        Source::Bind { path, recursive } => match copied {
            Some(copied) => copied,
            None => copy_bound(planned, path, *recursive)?,
        },
        Source::New {
            kind,
            source,
            settings,
        } if kind == "tmpfs" => {
            // As with runc a tmpfs has the permissions of the folder that it covers, if it names none.
            let covered = root.open(destination, OFlags::PATH).ok();
            let mode = covered.and_then(|folder| fstat(folder).ok());
            let mode = mode.map(|found| format!("{:04o}", found.st_mode & 0o7777));
            let mut all: Vec<_> = mode
                .map(|mode| ("mode".to_owned(), Some(mode)))
                .into_iter()
                .collect();
            all.extend(settings.iter().cloned());
            made_new(kind, source, &all, planned, (copied, group))?
        }
        Source::New {
            kind,
            source,
            settings,
        } => made_new(kind, source, settings, planned, (copied, group))?,
    };
    let is_tree = is_folder(&mount).map_err(failed("look at its source"))?;
    let target = match &planned.source {
        Source::New { kind, .. } if matches!(kind.as_str(), "proc" | "sysfs") => {
            ordinary_folder(root, destination, kind)?
        }
        Source::New { .. } | Source::Bind { .. } | Source::Remount => {
            let made = if is_tree {
                root.make_folder(destination)
            } else {
                root.make_file(destination)
            };
            made.map_err(failed("make its mount point"))?
        }
    };
    check_proc(root, &mount, &target, destination)?;
    attach_planned(&mount, &target, planned)?;
    Ok(Some(Made {
        mount,
        propagation: planned.propagation,
        is_closed_last: planned.is_closed_last,
        destination: destination.to_owned(),
    }))
}

/// Sets what a detached mount is to be and attaches it. Without mount_setattr(2) it is attached first: mount(2) knows
/// attached mounts alone.
fn attach_planned(mount: &OwnedFd, target: &OwnedFd, planned: &Planned) -> Result<(), MountError> {
    let destination = planned.destination.as_path();
    let failed = |doing: &str| MountError::failed(destination, doing.to_owned());
    let all = MountAttributes {
        propagation: planned
            .propagation
            .filter(|(_, recursive)| *recursive)
            .map(|(kind, _)| kind),
        ..planned.recursive
    };
    let one = MountAttributes {
        propagation: planned
            .propagation
            .filter(|(_, recursive)| !*recursive)
            .map(|(kind, _)| kind),
        // A new file system got its attributes when it was made.
        ..match planned.source {
            Source::Bind { .. } => planned.attributes,
            Source::New { .. } | Source::Remount => MountAttributes::default(),
        }
    };
    let has_call = set_mount_attributes(mount, MountAttributes::default(), false)
        .err()
        .and_then(|error| error.raw_os_error())
        != Some(Errno::NOSYS.raw_os_error());
    if !has_call {
        if (all.set | all.clear) != 0 {
            return Err(MountError::Attributes(destination.to_owned()));
        }
        attach(mount, target).map_err(failed("attach it"))?;
    }
    change(mount, one, false).map_err(failed("set its options"))?;
    change(mount, all, true).map_err(failed("set its options"))?;
    if has_call {
        attach(mount, target).map_err(failed("attach it"))?;
    }
    Ok(())
}

fn made_new(
    kind: &str,
    source: &str,
    settings: &[(String, Option<String>)],
    planned: &Planned,
    (copied, group): (Option<OwnedFd>, &OwnGroup),
) -> Result<OwnedFd, MountError> {
    let destination = planned.destination.as_path();
    let bits = u32::try_from(planned.attributes.set).unwrap_or_default();
    let attributes = MountAttrFlags::from_bits_retain(bits);
    // The name of the one hierarchy's file system; a spec calls both versions "cgroup".
    let name = if kind == "cgroup" { "cgroup2" } else { kind };
    match make(name, source, settings, attributes) {
        // In a user namespace without a cgroup namespace of its own, and where the hierarchy is mounted with other
        // options: the container's own group is bound, as runc does it.
        Err(error)
            if name == "cgroup2"
                && matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::PERM | Errno::BUSY)
                ) =>
        {
            let path = group.0.as_deref().ok_or_else(|| {
                MountError::failed(destination, "mount cgroup2")(io::Error::from(error.kind()))
            })?;
            let mount = match copied {
                Some(copied) => copied,
                None => copy(path, false).map_err(MountError::failed(
                    destination,
                    "bind the container's cgroup",
                ))?,
            };
            change(&mount, planned.attributes, false)
                .map_err(MountError::failed(destination, "set its options"))?;
            Ok(mount)
        }
        Err(error) if error.raw_os_error() == Some(Errno::NOSYS.raw_os_error()) => {
            Err(MountError::Kernel("fsopen(2)"))
        }
        made => made.map_err(MountError::failed(destination, format!("mount {kind}"))),
    }
}

/// Opens the folder that procfs or sysfs is mounted on: none of its path may be a link, as with runc.
fn ordinary_folder(root: &Root, destination: &Path, kind: &str) -> Result<OwnedFd, MountError> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat2(root, destination, flags, Mode::empty(), resolve);
    match opened {
        Ok(folder) => Ok(folder),
        Err(Errno::NOENT) => {
            let made = root.make_folder(destination);
            made.map_err(MountError::failed(destination, "make its mount point"))
        }
        Err(Errno::LOOP | Errno::NOTDIR) => Err(MountError::Refused(format!(
            "filesystem {kind:?} must be mounted on ordinary directory"
        ))),
        Err(Errno::NOSYS) => Err(MountError::Kernel("openat2(2)")),
        Err(error) => Err(MountError::failed(destination, "find its mount point")(
            error.into(),
        )),
    }
}

fn check_proc(
    root: &Root,
    mount: &OwnedFd,
    target: &OwnedFd,
    destination: &Path,
) -> Result<(), MountError> {
    let failed = |doing: &str| MountError::failed(destination, doing.to_owned());
    let mounted = if proc::is_on_procfs(mount).map_err(failed("look at its source"))? {
        Mounted::Procfs
    } else {
        Mounted::Other
    };
    let below = proc::path_below(root, target).map_err(failed("find its mount point"))?;
    proc::check(&below, destination, mounted).map_err(MountError::Refused)
}

/// Checks that programs find procfs where the spec mounts it.
pub(crate) fn verify_proc(root: &Root, mounts: &[Planned]) -> Result<(), MountError> {
    const PROC: &str = "/proc";
    let is_asked = mounts.iter().any(|mount| {
        mount.destination == Path::new(PROC)
            && matches!(&mount.source, Source::New { kind, .. } if kind == "proc")
    });
    if !is_asked {
        return Ok(());
    }
    let failed = |doing: &str| MountError::failed(Path::new(PROC), doing.to_owned());
    let found = root
        .open(Path::new(PROC), OFlags::PATH | OFlags::DIRECTORY)
        .map_err(failed("find it"))?;
    let is_root = fstat(&found).map_err(|error| failed("look at it")(error.into()))?;
    // The root of a procfs has this inode (PROC_ROOT_INO).
    if proc::is_on_procfs(&found).map_err(failed("look at it"))? && is_root.st_ino == 1 {
        return Ok(());
    }
    Err(MountError::Refused(
        "/proc of the container is not a procfs".to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use rustix::fs::StatVfsMountFlags as Now;

    use super::*;

    #[test]
    fn without_mount_setattr_a_mount_keeps_the_flags_that_nothing_is_said_of() {
        let attributes = |set: MountAttrFlags, clear: MountAttrFlags| MountAttributes {
            set: set.bits().into(),
            clear: clear.bits().into(),
            propagation: None,
        };
        let changed = classic(
            attributes(
                MountAttrFlags::MOUNT_ATTR_RDONLY,
                MountAttrFlags::MOUNT_ATTR_NOSUID,
            ),
            Now::NOSUID | Now::NODEV,
        );
        assert_eq!(changed, MountFlags::RDONLY | MountFlags::NODEV);
    }
}
