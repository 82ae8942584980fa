//! Statistics of cgroups, read from the kernel's files: one group, or all below some, in one pass.
//!
//! Upstream: cAdvisor's container/libcontainer and container/common, and the readers of opencontainers/cgroups, in the
//! versions that the kubelet 1.36 has. A file that has vanished, is empty or holds no number counts as zero, and as no limit
//! where it is the memory's.

mod files;
mod interfaces;
mod processes;
#[cfg(test)]
mod tests;
mod trees;
mod v1;
mod v2;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use logic_resources::cgroups::Hierarchy;
use logic_resources::group_stats::{GroupDetail, GroupStats, container_id};
use logic_resources::summary::PsiStats;

use self::files::{FileReader, Folder, field};
pub use self::interfaces::interfaces;
use self::trees::{Group, Trees};

/// Groups read in one pass; a node with 1,000 pods has some 4,000.
const MAX_GROUPS: usize = 20_000;
/// How deep a pass goes below the top.
const MAX_DEPTH: usize = 16;

/// The machine's name among the groups.
pub const MACHINE: &str = "/";

/// What is asked for in one pass.
#[derive(Debug, Clone)]
pub struct GroupQuery {
    pub detail: GroupDetail,
    /// Beginnings of groups' names, such as `/kubepods`; the machine itself is always read.
    pub prefixes: Vec<String>,
    /// Ids of sandboxes: their groups' interfaces are read.
    pub sandboxes: BTreeSet<String>,
    /// Ids of containers, with their sandboxes': their groups' processes are counted. Where a sandbox has no group (it has no
    /// process with the native runtime and CRI-O), one of its containers' groups has the interfaces.
    pub containers: BTreeMap<String, String>,
}

/// What earlier passes have found, each ordered by name: a group that is among them keeps those figures.
#[derive(Debug, Clone, Default)]
pub struct EarlierGroups {
    /// For CPU time and memory, and when those were read.
    pub usage: Arc<[GroupStats]>,
    /// For what processes have open, which takes longest to count, and for what groups and processes may have.
    pub descriptors: Arc<[GroupStats]>,
}

/// Reads groups.
#[derive(Debug, Clone)]
pub struct GroupReader {
    /// `/proc`
    pub proc: PathBuf,
    pub hierarchy: Hierarchy,
}

/// A group to be read: its name, what is read of it beside the controllers' files, and what is not read again.
#[derive(Debug, Clone, Copy)]
struct GroupTarget<'a> {
    name: &'a str,
    detail: GroupDetail,
    role: GroupRole,
    /// Its CPU time and memory.
    usage: Option<&'a GroupStats>,
    /// Its descriptors and limits; none of them is read again.
    descriptors: Option<&'a GroupStats>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupRole {
    Machine,
    /// A sandbox, or the container in its place.
    Sandbox,
    Container,
    /// A group above the containers, or of the system.
    Other,
}

impl GroupReader {
    /// Reads the machine and each group whose name begins with one of the prefixes, ordered by name.
    pub fn read_all(
        &self,
        query: &GroupQuery,
        earlier: &EarlierGroups,
        at: SystemTime,
    ) -> Vec<GroupStats> {
        let Some(pass) = self.pass(at) else {
            return Vec::new();
        };
        let mut files = FileReader::default();
        let mut names = BTreeSet::from([MACHINE.to_owned()]);
        for top in pass.trees.walked() {
            find(top, "", query, 0, &mut names);
        }
        let speaking = query.in_place_of_sandboxes(&names);
        let stats = names.iter().filter_map(|name| {
            let target = GroupTarget {
                usage: find_group(&earlier.usage, name),
                descriptors: find_group(&earlier.descriptors, name),
                ..query.target(name, &speaking)
            };
            pass.stats(&mut files, target)
        });
        stats.collect()
    }

    /// Reads one group; none where there is no such group.
    pub fn read(&self, name: &str, detail: GroupDetail, at: SystemTime) -> Option<GroupStats> {
        self.pass(at)?.read(name, detail)
    }

    /// Whether the kernel reports stalls of groups: only version 2 does. Upstream: `IsPsiEnabled`.
    pub fn has_psi(&self) -> bool {
        match &self.hierarchy {
            Hierarchy::V1(_) => false,
            Hierarchy::V2(top) => fs::File::open(top.join("cpu.pressure")).is_ok(),
        }
    }

    /// Opens what all groups are read from; none where there are no groups.
    pub fn pass(&self, at: SystemTime) -> Option<GroupPass<'_>> {
        Some(GroupPass {
            reader: self,
            trees: Trees::open(&self.hierarchy)?,
            proc: Folder::open(&self.proc),
            at: Timestamp::try_from(at).ok(),
            boot: self.boot_time(),
        })
    }

    /// When the machine booted, as cAdvisor rounds it: to the minute.
    fn boot_time(&self) -> Option<Timestamp> {
        let stat = fs::read_to_string(self.proc.join("stat")).ok()?;
        let seconds = i64::try_from(field(&stat, "btime")?).ok()?;
        Timestamp::from_second(seconds - seconds % 60).ok()
    }
}

/// One reading of some groups, at the same time.
#[derive(Debug)]
pub struct GroupPass<'a> {
    reader: &'a GroupReader,
    trees: Trees,
    /// `/proc`
    proc: Option<Folder>,
    at: Option<Timestamp>,
    boot: Option<Timestamp>,
}

impl GroupPass<'_> {
    /// Reads one group; none where there is no such group.
    pub fn read(&self, name: &str, detail: GroupDetail) -> Option<GroupStats> {
        let role = match name.trim_matches('/').is_empty() {
            true => GroupRole::Machine,
            false => GroupRole::Other,
        };
        let target = GroupTarget {
            name,
            detail,
            role,
            usage: None,
            descriptors: None,
        };
        self.stats(&mut FileReader::default(), target)
    }

    fn stats(&self, files: &mut FileReader, target: GroupTarget<'_>) -> Option<GroupStats> {
        let group = self.trees.group(target.name)?;
        let mut stats = match &group {
            Group::V1 {
                trees,
                name,
                cpu,
                memory,
            } => {
                let opened = (cpu.as_ref(), memory.as_ref());
                let folders = trees.folders(name, opened, target.detail);
                v1::read(files, &folders, target)
            }
            Group::V2(folder) => v2::read(files, &self.reader.proc, folder, target),
        };
        stats.name = target.name.to_owned();
        (stats.at, stats.created) = match target.usage {
            Some(known) => (known.at, known.created),
            None => {
                let created = group.folders().next().and_then(created);
                let made = created.map(|made| self.boot.map_or(made, |boot| made.max(boot)));
                (self.at, made)
            }
        };
        self.add_processes(files, &group, target, &mut stats);
        Some(stats)
    }

    fn add_processes(
        &self,
        files: &mut FileReader,
        group: &Group<'_>,
        target: GroupTarget<'_>,
        stats: &mut GroupStats,
    ) {
        let counted = match target.detail {
            GroupDetail::CpuAndMemory => return,
            GroupDetail::Summary => target.role != GroupRole::Other,
            GroupDetail::Everything => true,
        };
        let Some(proc) = self.proc.as_ref().filter(|_| counted) else {
            return;
        };
        let first = group.folders().next();
        let pids = first.map_or_else(Vec::new, |folder| processes::pids(files, folder));
        stats.tasks.processes = u64::try_from(pids.len()).unwrap_or(0);
        let first = match target.role {
            GroupRole::Machine => Some("1"),
            GroupRole::Sandbox | GroupRole::Container => pids.first().map(String::as_str),
            GroupRole::Other => None,
        };
        stats.network = match target.role {
            GroupRole::Machine => Some(interfaces(files.text(proc, "net/dev"))),
            GroupRole::Sandbox => {
                first.map(|first| interfaces(files.text(proc, &format!("{first}/net/dev"))))
            }
            GroupRole::Container | GroupRole::Other => None,
        };
        match target.descriptors {
            Some(earlier) => {
                let (tasks, earlier) = (&mut stats.tasks, &earlier.tasks);
                tasks.file_descriptors = earlier.file_descriptors;
                tasks.sockets = earlier.sockets;
                tasks.open_files = earlier.open_files;
            }
            None if target.detail == GroupDetail::Everything => {
                processes::count(proc, &pids, &mut stats.tasks);
                let limits = first.map(|first| files.text(proc, &format!("{first}/limits")));
                stats.tasks.open_files = limits.and_then(processes::open_files);
            }
            None => {}
        }
    }
}

impl GroupQuery {
    /// Whether what is read for this query answers the other one too.
    pub fn includes(&self, other: &GroupQuery) -> bool {
        self.detail >= other.detail
            && other.prefixes.iter().all(|prefix| self.covers(prefix))
            && self.sandboxes == other.sandboxes
            && self.containers == other.containers
    }

    fn covers(&self, name: &str) -> bool {
        self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }

    /// Whether a group that is covered may lie below this one.
    fn leads_to(&self, name: &str) -> bool {
        let below = |prefix: &String| {
            let rest = prefix.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        self.prefixes.iter().any(below)
    }

    /// Returns a container of each sandbox that has no group among these, by its id.
    fn in_place_of_sandboxes(&self, names: &BTreeSet<String>) -> BTreeSet<&str> {
        let ids: BTreeSet<&str> = names.iter().filter_map(|name| container_id(name)).collect();
        let absent = |(container, sandbox): &(&String, &String)| {
            ids.contains(container.as_str()) && !ids.contains(sandbox.as_str())
        };
        let found = self.containers.iter().filter(absent);
        let by_sandbox: BTreeMap<&str, &str> = found
            .map(|(container, sandbox)| (sandbox.as_str(), container.as_str()))
            .collect();
        by_sandbox.into_values().collect()
    }

    fn target<'a>(&self, name: &'a str, speaking: &BTreeSet<&str>) -> GroupTarget<'a> {
        let id = container_id(name).unwrap_or_default();
        let role = match name {
            MACHINE => GroupRole::Machine,
            _ if self.sandboxes.contains(id) || speaking.contains(id) => GroupRole::Sandbox,
            _ if self.containers.contains_key(id) => GroupRole::Container,
            _ => GroupRole::Other,
        };
        GroupTarget {
            name,
            detail: self.detail,
            role,
            usage: None,
            descriptors: None,
        }
    }
}

/// The group of this name among groups that are ordered by name.
fn find_group<'a>(groups: &'a [GroupStats], name: &str) -> Option<&'a GroupStats> {
    let found = groups.binary_search_by(|group| group.name.as_str().cmp(name));
    found.ok().and_then(|nth| groups.get(nth))
}

/// Adds the names of the groups in a folder that are covered; a folder that vanishes meanwhile has none.
fn find(
    folder: &Folder,
    name: &str,
    query: &GroupQuery,
    depth: usize,
    names: &mut BTreeSet<String>,
) {
    for part in folder.folders() {
        if names.len() >= MAX_GROUPS || depth >= MAX_DEPTH {
            return;
        }
        let child = format!("{name}/{part}");
        let covered = query.covers(&child);
        if (covered || query.leads_to(&child))
            && !folder.is_leaf(&part)
            && let Some(below) = folder.below(&part)
        {
            find(&below, &child, query, depth + 1, names);
        }
        if covered {
            names.insert(child);
        }
    }
}

/// When a group was made. Groups made in it change the folder's time, not the file's.
fn created(folder: &Folder) -> Option<Timestamp> {
    let files = ["cgroup.clone_children", "cgroup.events", "."];
    let times = files.into_iter().filter_map(|file| folder.modified(file));
    Timestamp::try_from(times.min()?).ok()
}

/// Reads a file of stalls such as `cpu.pressure`; zero where the kernel does not measure them.
fn pressure(text: &str) -> PsiStats {
    let mut stats = PsiStats::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let data = match words.next() {
            Some("some") => &mut stats.some,
            Some("full") => &mut stats.full,
            Some(_) | None => continue,
        };
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            let share = || value.parse::<f64>().ok().filter(|share| share.is_finite());
            match key {
                "total" => data.total = value.parse().unwrap_or(0),
                "avg10" => data.avg10 = share().unwrap_or(0.0),
                "avg60" => data.avg60 = share().unwrap_or(0.0),
                "avg300" => data.avg300 = share().unwrap_or(0.0),
                _ => {}
            }
        }
    }
    stats
}
