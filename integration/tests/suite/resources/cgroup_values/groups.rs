//! The groups as they are on the machine, by names that no run changes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use integration::agent::Cri;
use integration::containerd::Containerd;
use logic_resources::cgroups::{CgroupDriver, CgroupName, Hierarchy};

use super::table::{Machine, OOM_SCORE, Values};

/// Files of version 1, by controller.
const VERSION_1: [(&str, &[&str]); 4] = [
    (
        "cpu",
        &["cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us"],
    ),
    (
        "memory",
        &[
            "memory.limit_in_bytes",
            "memory.soft_limit_in_bytes",
            "memory.oom_control",
        ],
    ),
    ("pids", &["pids.max"]),
    ("cpuset", &["cpuset.cpus"]),
];
const VERSION_2: &[&str] = &[
    "cpu.weight",
    "cpu.max",
    "cpu.max.burst",
    "cpu.idle",
    "cpuset.cpus",
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.max",
    "memory.swap.max",
    "memory.oom.group",
    "pids.max",
];

/// Reads every limit of every group of the rig's pods: `kubepods`, `kubepods/burstable`, `POD`, `POD/CONTAINER`. A group of
/// containerd's sandbox is `POD/sandbox`.
pub(super) async fn read(rig: &Containerd, machine: &Machine, driver: CgroupDriver) -> Values {
    let names = names(&Cri::over(rig.channel())).await;
    let trees: Vec<(&Path, &[&str], &str)> = match &machine.hierarchy {
        Hierarchy::V2(top) => vec![(top, VERSION_2, "hugetlb.")],
        Hierarchy::V1(trees) => {
            let known = VERSION_1.iter().filter_map(|(controller, files)| {
                Some((
                    trees.get(*controller)?.as_path(),
                    *files,
                    "memory.memsw.limit",
                ))
            });
            let huge = trees
                .get("hugetlb")
                .map(|top| (top.as_path(), &[] as &[&str], "hugetlb."));
            known.chain(huge).collect()
        }
    };
    let mut values = Values::new();
    for (top, files, prefix) in trees {
        let kubepods = CgroupName::parse(&rig.cgroup()).child("kubepods");
        let kubepods = top.join(kubepods.path(driver).trim_start_matches('/'));
        let mut folders = Vec::new();
        collect(&kubepods, 0, &mut folders);
        for folder in folders {
            let Some(group) = group_name(&folder, &kubepods, &names) else {
                continue;
            };
            for file in files
                .iter()
                .map(|file| (*file).to_owned())
                .chain(limits_of(&folder, prefix))
            {
                let Ok(text) = fs::read_to_string(folder.join(&file)) else {
                    continue;
                };
                // What follows is no limit: under_oom and oom_kill.
                let value = text.lines().next().unwrap_or_default().trim().to_owned();
                values.insert((group.clone(), file), value);
            }
            if let Hierarchy::V2(_) = machine.hierarchy {
                let score = score_within(&folder);
                values.extend(score.map(|score| ((group, OOM_SCORE.to_owned()), score)));
            }
        }
    }
    values
}

/// How soon the kernel ends the group's first process; none in a group without processes of its own.
fn score_within(folder: &Path) -> Option<String> {
    let processes = fs::read_to_string(folder.join("cgroup.procs")).ok()?;
    score(processes.lines().next()?)
}

/// The process's `oom_score_adj`.
pub(super) fn score(pid: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/{OOM_SCORE}")).ok()?;
    Some(text.trim().to_owned())
}

fn collect(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    if !folder.is_dir() || depth > 4 {
        return;
    }
    found.push(folder.to_owned());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        collect(&entry.path(), depth + 1, found);
    }
}

/// Files of limits whose names depend on the machine.
fn limits_of(folder: &Path, prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_limit = |name: &String| {
        // A page of 1 GiB is not every CPU's.
        name.starts_with(prefix)
            && !name.contains("1GB")
            && (name.ends_with(".max") || name.ends_with("limit_in_bytes"))
    };
    names.filter(is_limit).collect()
}

/// Pods by UID, containers and sandboxes by id.
async fn names(cri: &Cri) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for sandbox in cri.sandboxes().await.unwrap_or_default() {
        let metadata = sandbox.metadata.unwrap_or_default();
        let pod = metadata.name.trim_end_matches("-node").to_owned();
        names.insert(format!("pod{}", metadata.uid), pod.clone());
        names.insert(sandbox.id.clone(), format!("{pod}/sandbox"));
        for container in cri.containers().await.unwrap_or_default() {
            if container.pod_sandbox_id == sandbox.id {
                let name = container.metadata.unwrap_or_default().name;
                names.insert(container.id, format!("{pod}/{name}"));
            }
        }
    }
    names
}

/// None of groups that a container makes in its own.
fn group_name(folder: &Path, kubepods: &Path, names: &BTreeMap<String, String>) -> Option<String> {
    let below = folder
        .strip_prefix(kubepods)
        .ok()?
        .to_string_lossy()
        .into_owned();
    let last = below.rsplit('/').next().unwrap_or_default();
    // systemd's units have the names of those above in theirs, containers' the runtime's.
    let unit = last
        .strip_suffix(".slice")
        .or_else(|| last.strip_suffix(".scope"));
    let last = match unit.and_then(|unit| unit.rsplit('-').next()) {
        Some(part) => part.replace('_', "-"),
        None => last.to_owned(),
    };
    match last.as_str() {
        "" => Some("kubepods".to_owned()),
        "burstable" | "besteffort" => Some(format!("kubepods/{last}")),
        last => names.get(last).cloned(),
    }
}
