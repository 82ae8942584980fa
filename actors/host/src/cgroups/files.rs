//! Groups as folders: made with their ancestors, written, searched for processes, and removed.
//!
//! All of it is file work that may block: callers do it in the blocking pool. Mirrors what upstream does by
//! opencontainers/cgroups (cm/cgroup_manager_linux.go at v1.36).

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use files::walk::{Crossing, Go, Spot, Visitor};
use logic_resources::cgroups::{CONTROLLERS, CgroupWrite, Hierarchy};
use rustix::fs::{AtFlags, Mode, OFlags, open, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;

/// The name of a monitor's group, as `plugins/runtime-native` gives it.
const MONITOR: &str = "oxlet-monitor";

/// Whom a killed group loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Killed {
    All,
    /// Who is in a monitor's group removes containers at the moment: killed, it begins anew, without an end.
    AllButMonitors,
}

/// Without these controllers a group limits nothing.
const REQUIRED_CONTROLLERS: [&str; 2] = ["cpu", "memory"];
/// The file of a group that lists its processes.
const PROCESSES: &str = "cgroup.procs";

/// Why an operation on a group failed.
#[derive(Debug, Error)]
pub enum CgroupError {
    #[error("cgroup {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("no cgroup controller {controller}")]
    Missing { controller: &'static str },
    #[error("no cgroups are mounted")]
    NotMounted,
}

impl CgroupError {
    pub fn transient(&self) -> bool {
        match self {
            Self::File { .. } => !self.is_node_wide(),
            Self::Missing { .. } | Self::NotMounted => false,
        }
    }

    /// Whether the operation would fail the same way for every group.
    pub fn is_node_wide(&self) -> bool {
        match self {
            Self::Missing { .. } | Self::NotMounted => true,
            Self::File { source, .. } => matches!(
                source.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
            ),
        }
    }

    /// Whether something is still in the group.
    pub fn is_busy(&self) -> bool {
        match self {
            Self::Missing { .. } | Self::NotMounted => false,
            Self::File { source, .. } => matches!(
                source.kind(),
                ErrorKind::ResourceBusy | ErrorKind::DirectoryNotEmpty
            ),
        }
    }
}

/// The machine's groups. Paths are those that the driver makes of a name, from the top.
#[derive(Debug, Clone)]
pub struct CgroupFiles {
    hierarchy: Option<Hierarchy>,
}

impl CgroupFiles {
    /// `hierarchy` is none where no cgroups are mounted; then every change fails.
    pub fn new(hierarchy: Option<Hierarchy>) -> Self {
        CgroupFiles { hierarchy }
    }

    pub fn hierarchy(&self) -> Option<&Hierarchy> {
        self.hierarchy.as_ref()
    }

    /// Makes a group and its ancestors; returns whether a tree that limits need had none of it.
    pub fn create(&self, path: &str) -> Result<bool, CgroupError> {
        let hierarchy = self.hierarchy.as_ref().ok_or(CgroupError::NotMounted)?;
        for controller in REQUIRED_CONTROLLERS {
            let here = hierarchy.top(controller);
            if !here.is_some_and(|top| has_controller(hierarchy, top, controller)) {
                return Err(CgroupError::Missing { controller });
            }
        }
        let mut fresh = false;
        for top in hierarchy.tops() {
            let needed = REQUIRED_CONTROLLERS
                .iter()
                .any(|name| hierarchy.top(name) == Some(top));
            match make(hierarchy, top, path) {
                Ok(made) => fresh |= made && needed,
                Err(error) if needed => return Err(error),
                // The runtime makes the groups of controllers that no limit needs.
                Err(_) => {}
            }
        }
        Ok(fresh)
    }

    /// Whether the group is in every tree that limits need.
    pub fn exists(&self, path: &str) -> bool {
        let needed = |hierarchy: &Hierarchy| {
            REQUIRED_CONTROLLERS.iter().all(|controller| {
                let top = hierarchy.top(controller);
                top.is_some_and(|top| below(top, path).is_dir())
            })
        };
        self.hierarchy.as_ref().is_some_and(needed)
    }

    /// Writes values into the files of a group; a file that the kernel does not have is left out, unless every limit
    /// needs its controller.
    pub fn write(&self, path: &str, writes: &[CgroupWrite]) -> Result<(), CgroupError> {
        let hierarchy = self.hierarchy.as_ref().ok_or(CgroupError::NotMounted)?;
        for write in writes {
            let Some(top) = hierarchy.top(write.controller) else {
                continue;
            };
            let file = below(top, path).join(&write.file);
            match fs::write(&file, &write.value) {
                // The kernel refuses to make the file (EACCES), rather than to find it.
                Err(_) if write.is_optional() && !file.exists() => {}
                written => written.map_err(failed(&file))?,
            }
        }
        Ok(())
    }

    /// Bytes of memory that the group uses now.
    pub fn memory_usage(&self, path: &str) -> Option<i64> {
        let hierarchy = self.hierarchy.as_ref()?;
        let file = match hierarchy {
            Hierarchy::V1(_) => "memory.usage_in_bytes",
            Hierarchy::V2(_) => "memory.current",
        };
        let text = fs::read_to_string(below(hierarchy.top("memory")?, path).join(file));
        text.ok()?.trim().parse().ok()
    }

    /// The paths of the groups right below this one, in any tree; none where it is missing.
    pub fn children(&self, path: &str) -> Result<BTreeSet<String>, CgroupError> {
        let mut found = BTreeSet::new();
        for top in self.hierarchy.iter().flat_map(Hierarchy::tops) {
            let group = below(top, path);
            let entries = match fs::read_dir(&group) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                entries => entries.map_err(failed(&group))?,
            };
            let folders = entries
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
            found.extend(names.map(|name| format!("{}/{name}", path.trim_end_matches('/'))));
        }
        Ok(found)
    }

    /// Kills the processes of a group and of those below it; returns those that there were.
    pub fn kill(&self, path: &str, whom: Killed) -> Result<Vec<u32>, CgroupError> {
        let mut found = self.processes(&[path.to_owned()])?;
        if whom == Killed::AllButMonitors {
            let below = self.children(path)?.into_iter();
            let monitors: Vec<String> = below.filter(|path| is_monitors(path)).collect();
            let spared = self.processes(&monitors)?;
            found.retain(|pid| !spared.contains(pid));
        }
        for pid in &found {
            // It may have ended meanwhile.
            let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw);
            pid.map(|pid| kill_process(pid, Signal::KILL));
        }
        Ok(found.into_iter().collect())
    }

    /// The processes of these groups and of those below them.
    pub fn processes(&self, paths: &[String]) -> Result<BTreeSet<u32>, CgroupError> {
        let mut found = BTreeSet::new();
        for top in self.hierarchy.iter().flat_map(Hierarchy::tops) {
            for path in paths {
                let group = below(top, path);
                processes(&group, &mut found).map_err(failed(&group))?;
            }
        }
        Ok(found)
    }

    /// The processes of this group alone; with version 1 those of the CPU's tree, in which nothing else than a node groups them.
    pub fn processes_of(&self, path: &str) -> Result<BTreeSet<u32>, CgroupError> {
        let hierarchy = self.hierarchy.as_ref().ok_or(CgroupError::NotMounted)?;
        let top = hierarchy.top("cpu").ok_or(CgroupError::NotMounted)?;
        let group = below(top, path);
        let mut found = BTreeSet::new();
        own_processes(&group, &mut found).map_err(failed(&group))?;
        Ok(found)
    }

    /// Puts a process into the group, in every tree.
    pub fn attach(&self, path: &str, pid: u32) -> Result<(), CgroupError> {
        for top in self.hierarchy.iter().flat_map(Hierarchy::tops) {
            let file = below(top, path).join("cgroup.procs");
            fs::write(&file, pid.to_string()).map_err(failed(&file))?;
        }
        Ok(())
    }

    /// Removes an empty group and those below it. What is busy stays, and is an error.
    pub fn remove(&self, path: &str) -> Result<(), CgroupError> {
        let tops = self.hierarchy.iter().flat_map(Hierarchy::tops);
        let mut result = Ok(());
        for top in tops {
            let group = below(top, path);
            let removed = remove(&group).map_err(failed(&group));
            result = result.and(removed);
        }
        result
    }
}

fn below(top: &Path, path: &str) -> PathBuf {
    top.join(path.trim_start_matches('/'))
}

/// Makes a group and its ancestors in one tree; returns whether it was missing. A slice that systemd has made lacks the
/// controllers that systemd does not know, such as hugetlb: version 2 has them enabled on the way to it as well.
fn make(hierarchy: &Hierarchy, top: &Path, path: &str) -> Result<bool, CgroupError> {
    let path = below(top, path);
    let fresh = !path.is_dir();
    match hierarchy {
        Hierarchy::V1(_) if !fresh => return Ok(false),
        Hierarchy::V1(_) | Hierarchy::V2(_) => {}
    }
    let mut above = top.to_owned();
    for part in path.strip_prefix(top).into_iter().flat_map(Path::iter) {
        let next = above.join(part);
        match hierarchy {
            Hierarchy::V2(_) => delegate(&above)?,
            Hierarchy::V1(_) => {}
        }
        match DirBuilder::new().mode(0o755).create(&next) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.map_err(failed(&next))?,
        }
        match hierarchy {
            // An empty list means all of the parent's there, the ones that it gets later included.
            Hierarchy::V2(_) => {}
            Hierarchy::V1(_) => inherit_cpus(&above, &next),
        }
        above = next;
    }
    Ok(fresh)
}

/// Enables a cgroup's controllers for its children.
fn delegate(group: &Path) -> Result<(), CgroupError> {
    let list = |file: &str| fs::read_to_string(group.join(file)).unwrap_or_default();
    let (there, handed) = (list("cgroup.controllers"), list("cgroup.subtree_control"));
    let file = group.join("cgroup.subtree_control");
    for name in there
        .split_whitespace()
        .filter(|name| CONTROLLERS.contains(name))
    {
        if handed.split_whitespace().any(|known| known == name) {
            continue;
        }
        let written = fs::write(&file, format!("+{name}"));
        if REQUIRED_CONTROLLERS.contains(&name) {
            written.map_err(failed(&file))?;
        }
    }
    Ok(())
}

/// Version 1 leaves a new `cpuset` cgroup without CPUs and memory nodes, and no process could run in it. Groups that are
/// made below it from now on are given theirs by the kernel: each write would make it compute all scheduling domains
/// again, which takes longer with every group on the node.
fn inherit_cpus(above: &Path, group: &Path) {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (from, to) = (above.join(file), group.join(file));
        if let (Ok(given), Ok(own)) = (fs::read_to_string(from), fs::read_to_string(&to))
            && own.trim().is_empty()
            && !given.trim().is_empty()
        {
            for (file, value) in [
                (to, given.trim()),
                (group.join("cgroup.clone_children"), "1"),
            ] {
                if let Err(error) = fs::write(&file, value) {
                    tracing::debug!("{}: {error}", file.display());
                }
            }
        }
    }
}

/// In version 2 the controllers are listed in a file; in version 1 the mount is enough.
fn has_controller(hierarchy: &Hierarchy, top: &Path, controller: &str) -> bool {
    match hierarchy {
        Hierarchy::V1(_) => true,
        Hierarchy::V2(_) => {
            let list = fs::read_to_string(top.join("cgroup.controllers")).unwrap_or_default();
            list.split_whitespace().any(|name| name == controller)
        }
    }
}

/// Whether a group is that of a pod's monitor, the native runtime's own process in the pod: a leaf, or a scope of systemd.
fn is_monitors(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let scope = name.strip_suffix(".scope").unwrap_or_default();
    name == MONITOR
        || scope
            .strip_prefix(MONITOR)
            .is_some_and(|rest| rest.starts_with('-'))
}

/// Adds the processes of a cgroup and of those below it.
fn processes(group: &Path, found: &mut BTreeSet<u32>) -> io::Result<()> {
    walk(group, &mut GroupProcesses { found })?;
    // A cgroup that is being removed has none.
    own_processes(group, found).or(Ok(()))
}

/// Goes through the groups below one, however deep: a container may nest as many as it likes.
fn walk<V: Visitor<Error = io::Error>>(group: &Path, visitor: &mut V) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match open(group, flags, Mode::empty()) {
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(folder) => files::walk::walk(folder, group, Crossing::Refused, visitor),
    }
}

struct GroupProcesses<'f> {
    found: &'f mut BTreeSet<u32>,
}

impl Visitor for GroupProcesses<'_> {
    type Error = io::Error;

    fn check(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn thing(&mut self, _spot: &Spot<'_>) -> io::Result<()> {
        Ok(())
    }

    fn enter(&mut self, spot: &Spot<'_>) -> io::Result<Go> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let list = openat(spot.folder, spot.name, flags, Mode::empty()).and_then(|group| {
            openat(
                &group,
                PROCESSES,
                OFlags::RDONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )
        });
        // A cgroup that is being removed has none.
        if let Ok(list) = list
            && let Ok(list) = io::read_to_string(fs::File::from(list))
        {
            add_processes(&list, self.found);
        }
        Ok(Go::In)
    }

    fn leave(&mut self, _spot: &Spot<'_>) -> io::Result<()> {
        Ok(())
    }

    fn failed(&mut self, _path: &Path, error: Errno) -> io::Result<()> {
        match error {
            Errno::NOENT | Errno::NODEV => Ok(()),
            error => Err(error.into()),
        }
    }

    fn lost(&mut self, _path: &Path, error: Errno) -> io::Error {
        error.into()
    }
}

fn own_processes(group: &Path, found: &mut BTreeSet<u32>) -> io::Result<()> {
    let list = fs::read_to_string(group.join(PROCESSES))?;
    add_processes(&list, found);
    Ok(())
}

fn add_processes(list: &str, found: &mut BTreeSet<u32>) {
    let pids = list.lines().filter_map(|line| line.parse::<u32>().ok());
    // 0 is a process of another pid namespace.
    found.extend(pids.filter(|pid| *pid != 0));
}

/// Removes a cgroup and those below it, the deepest first: only empty ones can be removed.
fn remove(group: &Path) -> io::Result<()> {
    walk(group, &mut GroupRemoval)?;
    match fs::remove_dir(group) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

struct GroupRemoval;

impl Visitor for GroupRemoval {
    type Error = io::Error;

    fn check(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn thing(&mut self, _spot: &Spot<'_>) -> io::Result<()> {
        Ok(())
    }

    fn leave(&mut self, spot: &Spot<'_>) -> io::Result<()> {
        match unlinkat(spot.folder, spot.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn failed(&mut self, _path: &Path, error: Errno) -> io::Result<()> {
        match error {
            Errno::NOENT | Errno::NODEV => Ok(()),
            error => Err(error.into()),
        }
    }

    fn lost(&mut self, _path: &Path, error: Errno) -> io::Error {
        error.into()
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> CgroupError + use<> {
    let path = path.to_owned();
    move |source| CgroupError::File { path, source }
}
