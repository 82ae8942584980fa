//! Cgroups of both versions: the monitor moves into one, and reads what was killed for memory in another.

mod kill;
mod removal;
mod tree;

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

pub(crate) use kill::GroupKill;
pub(crate) use removal::GroupRemoval;
use rustix::fs::statfs;

/// The shortest id, in bytes, by which a group is searched for: runtime plugins make ids of 64.
const MIN_UNIQUE_ID: usize = 32;
/// How deep a container's group is searched for: pods of a systemd slice in a container are at 6.
const MAX_SEARCH_DEPTH: usize = 10;
/// How many groups are looked at for it.
const MAX_SEARCHED_GROUPS: usize = 100_000;

/// As in linux/magic.h.
const CGROUP_SUPER_MAGIC: i64 = 0x0027_e0eb;
const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;

/// One mounted hierarchy.
#[derive(Debug)]
struct Hierarchy {
    mount: PathBuf,
    /// The controllers of a v1 hierarchy as mount options have them; none is v2.
    controllers: Option<Vec<String>>,
}

impl Hierarchy {
    /// Whether it is of version 1 and has the controller.
    fn has(&self, controller: &str) -> bool {
        self.controllers
            .as_ref()
            .is_some_and(|names| names.iter().any(|name| name == controller))
    }
}

/// Moves this process into a cgroup, which is made if it is missing, in every hierarchy but those of version 1 in which
/// the pod could end the monitor or hold it up: with its process ids all taken the monitor could start no program, and
/// with its memory full the kernel would kill it, unless it is spared (`oom_score_adj`).
pub(crate) fn enter(cgroup: &Path, is_spared: bool) -> io::Result<()> {
    let cgroup = cgroup.strip_prefix("/").unwrap_or(cgroup);
    for hierarchy in hierarchies()? {
        if hierarchy.has("pids") || (hierarchy.has("memory") && !is_spared) {
            continue;
        }
        let folder = hierarchy.mount.join(cgroup);
        let enter = || {
            make(&hierarchy, cgroup)?;
            fs::write(folder.join("cgroup.procs"), std::process::id().to_string())
        };
        enter().map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", folder.display()))
        })?;
    }
    Ok(())
}

/// Makes a cgroup and its parents. A v1 cpuset takes no process before it has its parent's CPUs and memory nodes.
fn make(hierarchy: &Hierarchy, cgroup: &Path) -> io::Result<()> {
    let cpuset = hierarchy.has("cpuset");
    let mut folder = hierarchy.mount.clone();
    for part in cgroup.components() {
        let parent = folder.clone();
        folder.push(part);
        match fs::create_dir(&folder) {
            // As an OCI runtime makes them: a container in a user namespace passes through to its own.
            Ok(()) => fs::set_permissions(&folder, Permissions::from_mode(0o755))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        for file in ["cpuset.cpus", "cpuset.mems"]
            .into_iter()
            .filter(|_| cpuset)
        {
            if fs::read_to_string(folder.join(file))?.trim().is_empty() {
                fs::write(folder.join(file), fs::read(parent.join(file))?)?;
            }
        }
    }
    Ok(())
}

/// Returns the file that counts the kernel's memory kills in a process's cgroup; none where memory isn't counted.
pub(crate) fn oom_counter(pid: i32) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let hierarchies = hierarchies().ok()?;
    let v1 = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers
            .split(',')
            .any(|name| name == "memory")
            .then(|| path.to_owned())
    };
    let (path, mount, file) = match groups.lines().find_map(v1) {
        Some(path) => {
            let found = hierarchies.iter().find(|one| one.has("memory"));
            (path, &found?.mount, "memory.oom_control")
        }
        None => {
            let path = groups
                .lines()
                .find_map(|line| line.strip_prefix("0::"))?
                .to_owned();
            let found = hierarchies.iter().find(|one| one.controllers.is_none());
            (path, &found?.mount, "memory.events")
        }
    };
    Some(mount.join(path.trim_start_matches('/')).join(file))
}

/// Whether the kernel has killed a process for memory, by `memory.oom_control` or `memory.events`.
pub(crate) fn oom_killed(counter: &Path) -> bool {
    let text = fs::read_to_string(counter).unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.is_some_and(|count| count.trim() != "0")
}

/// Where hierarchies are mounted, in one folder each on v1 (systemd's CGROUP_DELEGATION, "Controller Support").
const ROOT: &str = "/sys/fs/cgroup";

/// Returns the groups of a container, one a hierarchy. `counter` is the [`oom_counter`] of container `id`, whose groups are
/// named by it; a runtime that has put it into a group of others' has none of its own.
pub(crate) fn groups_of(counter: &Path, id: &str) -> Vec<PathBuf> {
    let group = counter.parent().and_then(|it| it.strip_prefix(ROOT).ok());
    let is_its = |group: &&Path| {
        let name = group.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| name.contains(id))
            && group
                .components()
                .all(|it| matches!(it, Component::Normal(_)))
    };
    let Some(group) = group.filter(is_its) else {
        return Vec::new();
    };
    if counter.ends_with("memory.events") {
        return vec![Path::new(ROOT).join(group)];
    }
    let mut parts = group.components();
    parts.next();
    let below = parts.as_path();
    if below.as_os_str().is_empty() {
        return Vec::new();
    }
    folders(Path::new(ROOT))
        .map(|hierarchy| hierarchy.join(below))
        .filter(|group| group.is_dir())
        .collect()
}

/// Finds the groups of a container of which nothing but the id is known, in every hierarchy: those that OCI runtimes name
/// by it (`ID`, `PREFIX-ID.scope`). An id that is too short to be nobody else's finds nothing.
pub(crate) fn find_groups(id: &str) -> Vec<PathBuf> {
    if id.len() < MIN_UNIQUE_ID {
        return Vec::new();
    }
    let is_its = |group: &Path| {
        let name = group.file_name().and_then(OsStr::to_str).unwrap_or("");
        let scope = name.strip_suffix(".scope").unwrap_or(name);
        scope
            .strip_suffix(id)
            .is_some_and(|before| before.is_empty() || before.ends_with('-'))
    };
    let roots = hierarchies().unwrap_or_default().into_iter();
    let mut level: Vec<PathBuf> = roots.map(|hierarchy| hierarchy.mount).collect();
    let (mut found, mut seen) = (Vec::new(), 0);
    for _ in 0..MAX_SEARCH_DEPTH {
        let mut next = Vec::new();
        for group in level.iter().flat_map(|group| folders(group)) {
            seen += 1;
            if seen > MAX_SEARCHED_GROUPS {
                return found;
            }
            if is_its(&group) {
                found.push(group);
            } else {
                next.push(group);
            }
        }
        level = next;
    }
    found
}

/// The folders in a folder, without links.
fn folders(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let real = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    real.map(|entry| entry.path())
}

/// Every cgroup hierarchy, each once: the one of v2, or on v1 the folders below [`ROOT`], named by their controllers.
///
/// The mount table has the same, but grows with the pods of the node: it is read where nothing is mounted at the usual place.
fn hierarchies() -> io::Result<Vec<Hierarchy>> {
    let found = usual_hierarchies(Path::new(ROOT));
    if found.is_empty() {
        return Ok(mounted_hierarchies(&fs::read_to_string(
            "/proc/self/mountinfo",
        )?));
    }
    Ok(found)
}

fn usual_hierarchies(root: &Path) -> Vec<Hierarchy> {
    if let Some(Version::Two) = version(root) {
        return vec![Hierarchy {
            mount: root.to_owned(),
            controllers: None,
        }];
    }
    let mut seen: Vec<u64> = Vec::new();
    let mut found = Vec::new();
    for mount in folders(root) {
        let Some(version) = version(&mount) else {
            continue;
        };
        // The one of v2 may be mounted a second time for a controller of its own.
        let Ok(device) = fs::metadata(&mount).map(|found| found.dev()) else {
            continue;
        };
        if seen.contains(&device) {
            continue;
        }
        seen.push(device);
        let name = mount.file_name().and_then(OsStr::to_str);
        let controllers = match version {
            Version::Two => None,
            Version::One => name.map(|name| name.split(',').map(str::to_owned).collect()),
        };
        found.push(Hierarchy { mount, controllers });
    }
    found
}

/// The version of a cgroup file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The version of the hierarchy that a folder is in; `None` if it is in none.
fn version(folder: &Path) -> Option<Version> {
    match statfs(folder).ok()?.f_type {
        CGROUP_SUPER_MAGIC => Some(Version::One),
        CGROUP2_SUPER_MAGIC => Some(Version::Two),
        _ => None,
    }
}

/// The hierarchies of a mount table.
fn mounted_hierarchies(mountinfo: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let (left, right): (Vec<_>, Vec<_>) =
            (left.split(' ').collect(), right.split(' ').collect());
        let ([_, _, device, root, mount, ..], [kind, _, options, ..]) =
            (left.as_slice(), right.as_slice())
        else {
            continue;
        };
        let controllers = match *kind {
            "cgroup" => Some(options.split(',').map(str::to_owned).collect()),
            "cgroup2" => None,
            _ => continue,
        };
        if *root == "/" && !seen.iter().any(|one| one == device) {
            seen.push((*device).to_owned());
            let mount = PathBuf::from(mount);
            found.push(Hierarchy { mount, controllers });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(hierarchies: &[Hierarchy]) -> Vec<(PathBuf, Option<Vec<String>>)> {
        let mut all: Vec<_> = hierarchies
            .iter()
            .map(|one| (one.mount.clone(), one.controllers.clone()))
            .collect();
        all.sort();
        all
    }

    #[test]
    fn the_usual_folders_are_what_the_mount_table_has() {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let is_usual = |one: &Hierarchy| one.mount.starts_with(ROOT);
        let mut mounted = mounted_hierarchies(&table);
        mounted.retain(is_usual);
        for one in &mut mounted {
            // "rw" and the like are options of a mount, and no controllers.
            if let Some(names) = &mut one.controllers {
                let folder = one.mount.file_name().unwrap().to_str().unwrap();
                names.retain(|name| folder.split(',').any(|own| own == name));
                if folder == "systemd" {
                    *names = vec![folder.to_owned()];
                }
            }
        }
        assert_eq!(named(&usual_hierarchies(Path::new(ROOT))), named(&mounted));
    }

    #[test]
    fn a_folder_without_hierarchies_has_none() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("memory")).unwrap();
        assert!(usual_hierarchies(folder.path()).is_empty());
        assert!(usual_hierarchies(Path::new("/no/such")).is_empty());
    }
}
