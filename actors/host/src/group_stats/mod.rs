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
mod v1;
mod v2;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;
use logic_resources::cgroups::Hierarchy;
use logic_resources::group_stats::{GroupDetail, GroupStats, container_id};
use logic_resources::summary::PsiStats;

use self::files::{FileReader, field};
pub use self::interfaces::interfaces;

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
    /// Ids of containers: their groups' processes are counted.
    pub containers: BTreeSet<String>,
}

/// Reads groups.
#[derive(Debug, Clone)]
pub struct GroupReader {
    /// `/proc`
    pub proc: PathBuf,
    pub hierarchy: Hierarchy,
}

/// A group to be read: its name, and what is read of it beside the controllers' files.
#[derive(Debug, Clone, Copy)]
struct GroupTarget<'a> {
    name: &'a str,
    detail: GroupDetail,
    role: GroupRole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupRole {
    Machine,
    Sandbox,
    Container,
    /// A group above the containers, or of the system.
    Other,
}

impl GroupReader {
    /// Reads the machine and each group whose name begins with one of the prefixes, ordered by name.
    pub fn read_all(&self, query: &GroupQuery, at: SystemTime) -> Vec<GroupStats> {
        let at = Timestamp::try_from(at).ok();
        let boot = self.boot_time();
        let mut files = FileReader::default();
        let mut names = BTreeSet::from([MACHINE.to_owned()]);
        for top in self.walked() {
            find(top, "", query, 0, &mut names);
        }
        let stats = names.iter().filter_map(|name| {
            let target = query.target(name);
            self.stats(&mut files, target, (at, boot))
        });
        stats.collect()
    }

    /// Reads one group; none where there is no such group.
    pub fn read(&self, name: &str, detail: GroupDetail, at: SystemTime) -> Option<GroupStats> {
        let at = Timestamp::try_from(at).ok();
        let role = match name.trim_matches('/').is_empty() {
            true => GroupRole::Machine,
            false => GroupRole::Other,
        };
        let target = GroupTarget { name, detail, role };
        self.stats(&mut FileReader::default(), target, (at, self.boot_time()))
    }

    /// Whether the kernel reports stalls of groups: only version 2 does. Upstream: `IsPsiEnabled`.
    pub fn has_psi(&self) -> bool {
        match &self.hierarchy {
            Hierarchy::V1(_) => false,
            Hierarchy::V2(top) => fs::File::open(top.join("cpu.pressure")).is_ok(),
        }
    }

    fn stats(
        &self,
        files: &mut FileReader,
        target: GroupTarget<'_>,
        (at, boot): (Option<Timestamp>, Option<Timestamp>),
    ) -> Option<GroupStats> {
        let folder = self.folders(target.name).find(|folder| folder.is_dir())?;
        let mut stats = match &self.hierarchy {
            Hierarchy::V1(trees) => v1::read(files, trees, target),
            Hierarchy::V2(top) => v2::read(files, &self.proc, top, target),
        };
        stats.name = target.name.to_owned();
        stats.at = at;
        stats.created = created(&folder).map(|made| boot.map_or(made, |boot| made.max(boot)));
        self.add_processes(files, target, &mut stats);
        Some(stats)
    }

    fn add_processes(
        &self,
        files: &mut FileReader,
        target: GroupTarget<'_>,
        stats: &mut GroupStats,
    ) {
        let counted = match target.detail {
            GroupDetail::CpuAndMemory => return,
            GroupDetail::Summary => target.role != GroupRole::Other,
            GroupDetail::Everything => true,
        };
        if !counted {
            return;
        }
        let pids = self
            .folders(target.name)
            .map(|folder| processes::pids(files, &folder));
        let pids = pids.max_by_key(Vec::len).unwrap_or_default();
        stats.tasks.processes = u64::try_from(pids.len()).unwrap_or(0);
        let first = match target.role {
            GroupRole::Machine => Some(self.proc.join("1")),
            GroupRole::Sandbox | GroupRole::Container => {
                pids.first().map(|pid| self.proc.join(pid))
            }
            GroupRole::Other => None,
        };
        stats.network = match target.role {
            GroupRole::Machine => Some(interfaces(files.text(&self.proc.join("net/dev")))),
            GroupRole::Sandbox => first
                .as_ref()
                .map(|first| interfaces(files.text(&first.join("net/dev")))),
            GroupRole::Container | GroupRole::Other => None,
        };
        if target.detail == GroupDetail::Everything {
            processes::count(&self.proc, &pids, &mut stats.tasks);
            stats.tasks.open_files =
                first.and_then(|first| processes::open_files(files.text(&first.join("limits"))));
        }
    }

    /// The tops of the trees that are walked: the union of those that containers have groups in.
    fn walked(&self) -> BTreeSet<&Path> {
        let controllers = ["cpu", "memory"];
        controllers
            .iter()
            .filter_map(|name| self.hierarchy.top(name))
            .collect()
    }

    fn folders<'a>(&'a self, name: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
        let below = name.trim_start_matches('/');
        self.walked().into_iter().map(move |top| top.join(below))
    }

    /// When the machine booted, as cAdvisor rounds it: to the minute.
    fn boot_time(&self) -> Option<Timestamp> {
        let stat = fs::read_to_string(self.proc.join("stat")).ok()?;
        let seconds = i64::try_from(field(&stat, "btime")?).ok()?;
        Timestamp::from_second(seconds - seconds % 60).ok()
    }
}

impl GroupQuery {
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

    fn target<'a>(&self, name: &'a str) -> GroupTarget<'a> {
        let id = container_id(name).unwrap_or_default();
        let role = match name {
            MACHINE => GroupRole::Machine,
            _ if self.sandboxes.contains(id) => GroupRole::Sandbox,
            _ if self.containers.contains(id) => GroupRole::Container,
            _ => GroupRole::Other,
        };
        GroupTarget {
            name,
            detail: self.detail,
            role,
        }
    }
}

/// Adds the names of the groups in a folder that are covered; a folder that vanishes meanwhile has none.
fn find(top: &Path, name: &str, query: &GroupQuery, depth: usize, names: &mut BTreeSet<String>) {
    let Ok(entries) = fs::read_dir(top.join(name.trim_start_matches('/'))) else {
        return;
    };
    for entry in entries.flatten() {
        if names.len() >= MAX_GROUPS || depth >= MAX_DEPTH {
            return;
        }
        let is_group = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let Some(part) = entry
            .file_name()
            .to_str()
            .map(str::to_owned)
            .filter(|_| is_group)
        else {
            continue;
        };
        let child = format!("{name}/{part}");
        let covered = query.covers(&child);
        if covered || query.leads_to(&child) {
            find(top, &child, query, depth + 1, names);
        }
        if covered {
            names.insert(child);
        }
    }
}

/// When a group was made. Groups made in it change the folder's time, not the file's.
fn created(folder: &Path) -> Option<Timestamp> {
    let modified = |path: &Path| fs::metadata(path).ok()?.modified().ok();
    let files = ["cgroup.clone_children", "cgroup.events"].map(|file| modified(&folder.join(file)));
    let times = files.into_iter().chain([modified(folder)]).flatten();
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
