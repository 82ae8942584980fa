//! A container's cgroups taken away, with whatever still lives in them.
//!
//! libcgroups reads the machine's mounts once for each of twelve controllers, three times over; a node of a hundred
//! pods has six hundred mounts. The folders are where they always are.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use files::walk::{self, Crossing, Spot, Visitor};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

use crate::mount_table::points;

/// How long killed processes may take to leave.
const LEAVING_TIMEOUT: Duration = Duration::from_secs(5);
const PROCESSES: &CStr = c"cgroup.procs";
const POLL_INTERVAL: Duration = Duration::from_millis(1);
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(20);

/// Kills what is in a container's groups and removes them, with the groups that the container made in them. `path` is
/// below each hierarchy's root, `root` is `/sys/fs/cgroup`. Groups that are gone are no error.
pub(crate) fn remove(root: &Path, path: &Path) -> io::Result<()> {
    let Some(below) = path.strip_prefix("/").ok().filter(|path| is_below(path)) else {
        let message = format!("{} is no container's cgroup", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    };
    for group in hierarchies(root)?.into_iter().map(|root| root.join(below)) {
        remove_group(&group)?;
    }
    Ok(())
}

/// Whether a path leads to a folder below, and to no other.
fn is_below(path: &Path) -> bool {
    let mut components = path.components().peekable();
    components.peek().is_some() && components.all(|part| matches!(part, Component::Normal(_)))
}

/// The folder of each hierarchy: the root itself on v2, one for each controller on v1, where some are links to another.
fn hierarchies(root: &Path) -> io::Result<Vec<PathBuf>> {
    if root.join("cgroup.controllers").exists() {
        return Ok(vec![root.to_owned()]);
    }
    let mut folders = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            folders.push(entry.path());
        }
    }
    // What is frozen does not die before it is thawed.
    folders.sort_by_key(|folder| !folder.ends_with("freezer"));
    Ok(folders)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a program of one thread, whose time is no actor's"
)]
fn remove_group(group: &Path) -> io::Result<()> {
    let deadline = Instant::now() + LEAVING_TIMEOUT;
    let mut pause = POLL_INTERVAL;
    loop {
        let error = match remove_tree(group) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        // Processes that were killed and not reaped yet keep it busy.
        if error.kind() != io::ErrorKind::ResourceBusy || Instant::now() >= deadline {
            let holders = holders(group);
            let message = format!("cannot remove cgroup {}: {error}{holders}", group.display());
            return Err(io::Error::new(error.kind(), message));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(POLL_INTERVAL_MAX);
    }
}

/// Names what keeps a group: groups below it, processes with the letter of their state, as `/proc/PID/stat` has it, and
/// mounts over it or over a group below.
fn holders(group: &Path) -> String {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut held: Vec<String> = folders
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    held.extend(processes.lines().map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        format!("{pid} ({})", after_name.get(..1).unwrap_or("?"))
    }));
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mounts = points(&table)
        .into_iter()
        .filter(|point| point.starts_with(group));
    held.extend(mounts.map(|point| format!("a mount at {}", point.display())));
    if held.is_empty() {
        return String::new();
    }
    format!(": held by {}", held.join(", "))
}

/// Removes a group with all below it, whatever their number and depth: a container may make them as it likes. From group to
/// group by descriptors, so neither the stack nor a path grows with the depth.
fn remove_tree(group: &Path) -> io::Result<()> {
    match fs::remove_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(()) => return Ok(()),
        Err(_) => {}
    }
    let Some(top) = open_group(CWD, group.as_os_str())? else {
        return Ok(());
    };
    kill_all(&top)?;
    let mut names: Vec<OsString> = Vec::new();
    let mut current = top;
    loop {
        match next_busy(&current)? {
            Some((below, name)) => {
                kill_all(&below)?;
                names.push(name);
                current = below;
            }
            // All below is gone: this one can go.
            None => {
                let Some(name) = names.pop() else { break };
                let Some(above) = open_group(current.as_fd(), OsStr::new(".."))? else {
                    break;
                };
                unlinkat(&above, name.as_os_str(), AtFlags::REMOVEDIR).or_else(absent)?;
                current = above;
            }
        }
    }
    match fs::remove_dir(group) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn absent(error: Errno) -> Result<(), Errno> {
    if error == Errno::NOENT {
        Ok(())
    } else {
        Err(error)
    }
}

/// Opens a group; `None` if it is gone.
fn open_group(above: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(above, name, flags, Mode::empty()) {
        Ok(group) => Ok(Some(group)),
        Err(Errno::NOENT | Errno::NODEV) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Removes the groups directly in a group that can be removed, and returns the first one that can't for what is in it.
fn next_busy(group: &OwnedFd) -> io::Result<Option<(OwnedFd, OsString)>> {
    for entry in Dir::read_from(group)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if entry.file_type() != FileType::Directory || name == "." || name == ".." {
            continue;
        }
        if unlinkat(group, name, AtFlags::REMOVEDIR).is_ok() {
            continue;
        }
        if let Some(below) = open_group(group.as_fd(), name)? {
            // Groups in it, or processes: the first are found below, the second are killed and waited for.
            if has_groups(&below)? {
                return Ok(Some((below, name.to_owned())));
            }
            kill_all(&below)?;
            unlinkat(group, name, AtFlags::REMOVEDIR).or_else(absent)?;
        }
    }
    Ok(None)
}

fn has_groups(group: &OwnedFd) -> io::Result<bool> {
    for entry in Dir::read_from(group)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if entry.file_type() == FileType::Directory && name != b"." && name != b".." {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Kills what is in a group and in those below it. `path` is below the root; a group that is gone is no error.
pub(super) fn kill(root: &Path, path: &Path) -> io::Result<()> {
    let group = root.join(path.strip_prefix("/").unwrap_or(path));
    match fs::write(group.join("cgroup.kill"), "1") {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !group.exists() => Ok(()),
        // Before Linux 5.14 one by one.
        Err(_) => {
            processes(&group)?.into_iter().for_each(kill_process);
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Thaws a v1 freezer cgroup and its descendants. Unlike on v2, a frozen process does not act on SIGKILL. `path` is relative
/// to the root of the hierarchy. A missing cgroup is ignored.
pub(crate) fn thaw(root: &Path, path: &Path) -> io::Result<()> {
    // systemd's form of a path, which is used on v2 only, is not below it.
    let Some(below) = path.strip_prefix("/").ok().filter(|path| is_below(path)) else {
        return Ok(());
    };
    let group = root.join("freezer").join(below);
    let top = match walk::open(&group) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let mut freezers = Files {
        name: c"freezer.state",
        access: OFlags::WRONLY,
        // The cgroup may have been removed meanwhile.
        found: |mut state: File| drop(state.write_all(b"THAWED")),
    };
    Ok(walk::walk(top, &group, Crossing::Refused, &mut freezers)?)
}

/// The processes of a group and of all below it, whatever their depth.
pub(super) fn processes(group: &Path) -> io::Result<Vec<i32>> {
    let mut text = String::new();
    let mut lists = Files {
        name: PROCESSES,
        access: OFlags::RDONLY,
        // A threaded group refuses it: its processes are listed above it.
        found: |mut list: File| drop(list.read_to_string(&mut text)),
    };
    walk::walk(walk::open(group)?, group, Crossing::Refused, &mut lists)?;
    let pids = text.lines().filter_map(|line| line.parse().ok());
    Ok(pids.collect())
}

/// The files of one name in a group and in those below it. A group that has gone meanwhile has none.
struct Files<F> {
    name: &'static CStr,
    access: OFlags,
    found: F,
}

impl<F: FnMut(File)> Visitor for Files<F> {
    type Error = Errno;

    fn check(&mut self) -> Result<(), Errno> {
        Ok(())
    }

    fn thing(&mut self, spot: &Spot<'_>) -> Result<(), Errno> {
        let flags = self.access | OFlags::CLOEXEC;
        if spot.name == self.name
            && let Ok(file) = openat(spot.folder, spot.name, flags, Mode::empty())
        {
            (self.found)(file.into());
        }
        Ok(())
    }

    fn leave(&mut self, _: &Spot<'_>) -> Result<(), Errno> {
        Ok(())
    }

    fn failed(&mut self, _: &Path, _: Errno) -> Result<(), Errno> {
        Ok(())
    }

    fn lost(&mut self, _: &Path, error: Errno) -> Errno {
        error
    }
}

/// Kills a group's processes: all at once where the kernel can (v2 since 5.14), also frozen ones.
fn kill_all(group: &OwnedFd) -> io::Result<()> {
    let open =
        |name: &str, flags: OFlags| openat(group, name, flags | OFlags::CLOEXEC, Mode::empty());
    let at_once = open("cgroup.kill", OFlags::WRONLY).map(File::from);
    if at_once.is_ok_and(|mut file| file.write_all(b"1").is_ok()) {
        return Ok(());
    }
    let mut processes = String::new();
    match open("cgroup.procs", OFlags::RDONLY) {
        Err(Errno::NOENT | Errno::NODEV) => return Ok(()),
        opened => File::from(opened?).read_to_string(&mut processes)?,
    };
    processes
        .lines()
        .filter_map(|line| line.parse().ok())
        .for_each(kill_process);
    if let Ok(state) = open("freezer.state", OFlags::WRONLY) {
        File::from(state).write_all(b"THAWED")?;
    }
    Ok(())
}

fn kill_process(pid: i32) {
    // Zero is a process of another PID namespace; a signal to it would be one to our own group.
    if pid > 0 {
        // It may have ended by itself, which is what is wanted.
        let _ = signal::kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    #[test]
    fn a_group_is_removed_in_every_hierarchy_with_the_groups_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["cpu/pod/a/deep/er", "memory/pod/a", "pids/other"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        remove(root, Path::new("/pod/a")).unwrap();
        assert!(!root.join("cpu/pod/a").exists() && !root.join("memory/pod/a").exists());
        assert!(root.join("cpu/pod").exists() && root.join("pids/other").exists());
        remove(root, Path::new("/pod/a")).unwrap();
    }

    #[test]
    fn groups_are_removed_whatever_their_depth_and_number() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let group = root.join("memory/pod/a");
        fs::create_dir_all(&group).unwrap();
        // Deeper than a path can be.
        let mut current = openat(CWD, &group, OFlags::RDONLY, Mode::empty()).unwrap();
        for _ in 0..700 {
            rustix::fs::mkdirat(&current, "nested", Mode::RWXU).unwrap();
            rustix::fs::mkdirat(&current, "beside", Mode::RWXU).unwrap();
            current = openat(&current, "nested", OFlags::RDONLY, Mode::empty()).unwrap();
        }
        remove(root, Path::new("/pod/a")).unwrap();
        assert!(!group.exists() && root.join("memory/pod").exists());
    }

    #[test]
    fn the_root_is_no_containers_group() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["/", "", "pod", "/..", "/pod/../.."] {
            let error = remove(folder.path(), Path::new(path)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
    }

    /// A process in the groups of the machine of this name, everywhere or in a group below.
    fn inhabited(name: &str) -> Child {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        for root in hierarchies(Path::new("/sys/fs/cgroup")).unwrap() {
            let group = root.join(name).join("below");
            if fs::create_dir_all(&group).is_ok() {
                // A cpuset without processors takes none.
                drop(fs::write(
                    group.join("cgroup.procs"),
                    child.id().to_string(),
                ));
            }
        }
        child
    }

    #[test]
    fn what_lives_in_a_group_is_killed_before_it_is_removed() {
        let name = format!("oxlet-oci-test-{}", std::process::id());
        let mut child = inhabited(&name);
        let reaped = thread::spawn(move || child.wait().unwrap());
        remove(Path::new("/sys/fs/cgroup"), Path::new(&format!("/{name}"))).unwrap();
        assert!(!reaped.join().unwrap().success());
        for root in hierarchies(Path::new("/sys/fs/cgroup")).unwrap() {
            assert!(!root.join(&name).exists(), "{}", root.display());
        }
    }

    #[test]
    fn what_is_frozen_in_a_group_is_killed_too() {
        let name = format!("oxlet-oci-frozen-{}", std::process::id());
        let mut child = inhabited(&name);
        for root in hierarchies(Path::new("/sys/fs/cgroup")).unwrap() {
            let group = root.join(&name).join("below");
            for (file, state) in [("freezer.state", "FROZEN"), ("cgroup.freeze", "1")] {
                if group.join(file).exists() {
                    fs::write(group.join(file), state).unwrap();
                }
            }
        }
        let reaped = thread::spawn(move || child.wait().unwrap());
        remove(Path::new("/sys/fs/cgroup"), Path::new(&format!("/{name}"))).unwrap();
        assert!(!reaped.join().unwrap().success());
    }

    #[test]
    fn what_holds_a_group_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("below")).unwrap();
        assert_eq!(holders(folder.path()), ": held by below");
        fs::remove_dir(folder.path().join("below")).unwrap();
        assert_eq!(holders(folder.path()), "");
        let own = std::process::id();
        fs::write(folder.path().join("cgroup.procs"), format!("{own}\n0\n")).unwrap();
        let held = holders(folder.path());
        assert!(held.starts_with(&format!(": held by {own} (")), "{held}");
        assert!(held.ends_with(", 0 (?)"), "{held}");
        let held = holders(Path::new("/proc"));
        assert!(held.contains("a mount at /proc"), "{held}");
    }
}
