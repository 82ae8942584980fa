//! What the machine itself tells: its kernel, its memory, its mounts, and the pods' cgroups.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use logic_resources::cgroups::Hierarchy;

use super::files::{Finder, Unwanted, entries, head, is_folder, name};

/// Bytes of one file of the kernel: the mounts of a thousand pods are about one MiB.
const MAX_TEXT_BYTES: u64 = 4 << 20;
/// Folders of a hierarchy that are looked at: a full node has about a thousand of pods.
const MAX_GROUPS: usize = 8192;
/// How far below the root the pods' group is looked for.
const MAX_DEPTH: usize = 5;
/// Processes whose variables are looked at.
const MAX_PROCESSES: usize = 4096;

/// Files of the kernel that tell of the machine, by their names in the archive. Its command line may hold secrets.
const KERNEL: [(&str, &str); 8] = [
    ("machine/kernel.txt", "version"),
    ("machine/meminfo.txt", "meminfo"),
    ("machine/loadavg.txt", "loadavg"),
    ("machine/uptime.txt", "uptime"),
    ("machine/swaps.txt", "swaps"),
    ("machine/pressure-cpu.txt", "pressure/cpu"),
    ("machine/pressure-memory.txt", "pressure/memory"),
    ("machine/pressure-io.txt", "pressure/io"),
];
/// Files of a process that tell what it may use.
const PROCESS: [&str; 3] = ["status", "limits", "cgroup"];
/// Controllers of cgroup v1 whose limits pods have.
const CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "hugetlb", "memory", "pids"];
/// Files of a group, of both versions: limits, use, and what the limits have done.
const GROUP_FILES: [&str; 33] = [
    "cgroup.freeze",
    "cgroup.events",
    "cpu.max",
    "cpu.max.burst",
    "cpu.pressure",
    "cpu.stat",
    "cpu.weight",
    "cpuset.cpus",
    "cpuset.cpus.effective",
    "cpuset.mems",
    "cpuset.mems.effective",
    "io.pressure",
    "memory.current",
    "memory.events",
    "memory.high",
    "memory.low",
    "memory.max",
    "memory.min",
    "memory.oom.group",
    "memory.peak",
    "memory.pressure",
    "memory.swap.current",
    "memory.swap.max",
    "pids.current",
    "pids.events",
    "pids.max",
    "cpu.cfs_period_us",
    "cpu.cfs_quota_us",
    "cpu.shares",
    "memory.failcnt",
    "memory.limit_in_bytes",
    "memory.oom_control",
    "memory.usage_in_bytes",
];

/// Kernel, system, and the agent's process where it runs.
pub(super) fn facts(finder: &Finder, agent: Option<u32>) -> Result<(), Unwanted> {
    let proc = Path::new("/proc");
    for (file, source) in KERNEL {
        text(finder, file, &proc.join(source))?;
    }
    // It is a link everywhere, made by the distribution.
    let release = fs::canonicalize("/etc/os-release").unwrap_or_else(|_| "/etc/os-release".into());
    text(finder, "machine/os-release.txt", &release)?;
    if let Some(pid) = agent {
        for file in PROCESS {
            let source = proc.join(format!("{pid}/{file}"));
            text(finder, &format!("agent/{file}.txt"), &source)?;
        }
    }
    Ok(())
}

/// The mounts that the agent sees; without an agent those that this program sees.
pub(super) fn mounts(finder: &Finder, agent: Option<u32>) -> Result<(), Unwanted> {
    let whose = agent.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let source = PathBuf::from(format!("/proc/{whose}/mountinfo"));
    text(finder, "mounts.txt", &source)
}

fn text(finder: &Finder, file: &str, source: &Path) -> Result<(), Unwanted> {
    match head(source, MAX_TEXT_BYTES) {
        Ok(text) => finder.file(file, text),
        Err(error) => finder.missing(source.display().to_string(), &error),
    }
}

/// The pods' groups with their limits and use: a file a hierarchy.
pub(super) fn cgroups(finder: &Finder, root: &str) -> Result<(), Unwanted> {
    let trees = trees(root);
    if trees.is_empty() {
        return finder.missing("cgroups", &ErrorKind::NotFound.into());
    }
    for (tree, top) in trees {
        let groups = groups(&top);
        if groups.is_empty() {
            finder.missing(top.display().to_string(), &ErrorKind::NotFound.into())?;
        }
        let mut text = String::new();
        for group in &groups {
            text.push_str(&described(&top, group));
        }
        finder.file(format!("cgroups/{tree}.txt"), text)?;
    }
    Ok(())
}

/// The variables of the pods' processes: what their manifests take from elsewhere, and set while no agent runs.
pub(super) fn variables(finder: &Finder, root: &str) -> Result<(), Unwanted> {
    let mut seen = BTreeSet::new();
    let mut refused = None;
    for (_, top) in trees(root) {
        for group in groups(&top) {
            let processes = head(&group.join("cgroup.procs"), MAX_TEXT_BYTES).unwrap_or_default();
            for pid in processes.lines() {
                if seen.len() < MAX_PROCESSES && seen.insert(pid.to_owned()) {
                    refused = process_variables(finder, pid)?.or(refused);
                }
            }
        }
    }
    match refused {
        Some(error) => finder.missing("variables of processes", &error),
        None => Ok(()),
    }
}

/// Returns why they cannot be read, if not because the process has ended.
fn process_variables(finder: &Finder, pid: &str) -> Result<Option<io::Error>, Unwanted> {
    let path = PathBuf::from(format!("/proc/{pid}/environ"));
    let text = match head(&path, MAX_TEXT_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Ok(Some(error)),
    };
    for variable in text.split('\0') {
        if let Some((name, value)) = variable.split_once('=')
            && !is_public(name)
        {
            finder.variable(name, value)?;
        }
    }
    Ok(None)
}

/// Of services, and the pod's own name.
fn is_public(name: &str) -> bool {
    name == "HOSTNAME" || name.ends_with("_HOST") || name.contains("_PORT")
}

/// The hierarchies that pods have groups in, each with the folder below which they are.
fn trees(root: &str) -> Vec<(String, PathBuf)> {
    let below = |tree: &Path| tree.join(root.trim_start_matches('/'));
    match host::cgroups::hierarchy(Path::new("/proc")) {
        Some(Hierarchy::V2(tree)) => vec![("v2".to_owned(), below(&tree))],
        Some(Hierarchy::V1(trees)) => trees
            .into_iter()
            .filter(|(name, _)| CONTROLLERS.contains(&name.as_str()))
            .map(|(name, tree)| (name, below(&tree)))
            .collect(),
        None => Vec::new(),
    }
}

/// The pods' groups below this folder, each before those in it.
fn groups(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut seen = 0;
    let mut open = vec![(top.to_owned(), 0_usize, false)];
    while let Some((folder, depth, is_pods)) = open.pop() {
        seen += 1;
        if seen > MAX_GROUPS {
            break;
        }
        if is_pods {
            found.push(folder.clone());
        } else if depth > MAX_DEPTH {
            continue;
        }
        // A group that ended meanwhile has no children.
        let children = entries(&folder, MAX_GROUPS).unwrap_or_default();
        for child in children.into_iter().rev().filter(|child| is_folder(child)) {
            let is_pods = is_pods || name(&child).starts_with("kubepods");
            open.push((child, depth + 1, is_pods));
        }
    }
    found
}

fn described(top: &Path, group: &Path) -> String {
    let shown = group.strip_prefix(top).unwrap_or(group);
    let mut text = format!("{}\n", shown.display());
    for file in GROUP_FILES {
        let Ok(value) = head(&group.join(file), MAX_TEXT_BYTES) else {
            continue;
        };
        let value: Vec<&str> = value.lines().map(str::trim).collect();
        text.push_str(&format!("  {file}: {}\n", value.join("; ")));
    }
    let processes = head(&group.join("cgroup.procs"), MAX_TEXT_BYTES).unwrap_or_default();
    let processes: Vec<&str> = processes.lines().collect();
    if !processes.is_empty() {
        text.push_str(&format!("  cgroup.procs: {}\n", processes.join(" ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_pods_are_shown_with_their_limits_wherever_they_lie() {
        let folder = tempfile::tempdir().unwrap();
        let pod = folder.path().join("node/kubepods.slice/burstable/podu1");
        fs::create_dir_all(&pod).unwrap();
        fs::create_dir_all(folder.path().join("system.slice/ssh")).unwrap();
        fs::write(pod.join("memory.max"), "4096\n").unwrap();
        fs::write(pod.join("cpu.stat"), "usage_usec 5\nuser_usec 1\n").unwrap();
        fs::write(pod.join("cgroup.procs"), "7\n8\n").unwrap();
        let groups = groups(folder.path());
        let names: Vec<String> = groups.iter().map(|group| name(group)).collect();
        assert_eq!(names, ["kubepods.slice", "burstable", "podu1"]);
        assert_eq!(
            described(folder.path(), &pod),
            "node/kubepods.slice/burstable/podu1\n  cpu.stat: usage_usec 5; user_usec 1\n  memory.max: 4096\n  cgroup.procs: 7 8\n"
        );
    }
}
