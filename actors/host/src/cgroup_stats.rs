//! Usage of a cgroup, read from the kernel's files.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use logic_resources::cgroups::Hierarchy;
use logic_resources::summary::MemoryStats;

/// The names of groups in the summary; the empty one is the node itself.
pub const NAMES: [&str; 5] = ["", KUBELET, RUNTIME, MISC, PODS];
pub const KUBELET: &str = "kubelet";
pub const RUNTIME: &str = "runtime";
pub const MISC: &str = "misc";
pub const PODS: &str = "pods";

/// A limit from this value on (in bytes) means no limit.
const UNLIMITED: u64 = 1 << 62;

/// Usage of one cgroup; what the kernel does not report is none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CgroupStats {
    /// Used since the group was made.
    pub cpu_nanoseconds: Option<u64>,
    /// In bytes; the time of the sample is not set.
    pub memory: Option<MemoryStats>,
    /// When the group was made.
    pub made: Option<SystemTime>,
}

impl CgroupStats {
    /// Reads a group by its name below the tops; the empty name is the root.
    pub fn read(hierarchy: &Hierarchy, name: &str) -> CgroupStats {
        let below = |controller: &str| {
            let top = hierarchy.top(controller)?;
            Some(top.join(name.trim_start_matches('/')))
        };
        let (cpu, memory) = match hierarchy {
            Hierarchy::V1(_) => (below("cpuacct").or_else(|| below("cpu")), below("memory")),
            Hierarchy::V2(_) => (below("cpu"), below("memory")),
        };
        let folder = cpu.as_ref().or(memory.as_ref());
        let made = folder.and_then(|folder| fs::metadata(folder).ok()?.modified().ok());
        CgroupStats {
            made,
            cpu_nanoseconds: cpu.and_then(|group| cpu_of(hierarchy, &group)),
            memory: memory.and_then(|group| memory_of(hierarchy, &group)),
        }
    }
}

fn cpu_of(hierarchy: &Hierarchy, group: &Path) -> Option<u64> {
    match hierarchy {
        Hierarchy::V1(_) => number(&group.join("cpuacct.usage")),
        Hierarchy::V2(_) => {
            let text = fs::read_to_string(group.join("cpu.stat")).ok()?;
            field(&text, "usage_usec")?.checked_mul(1000)
        }
    }
}

fn memory_of(hierarchy: &Hierarchy, group: &Path) -> Option<MemoryStats> {
    let stat = fs::read_to_string(group.join("memory.stat")).ok()?;
    let (usage, limit, names) = match hierarchy {
        Hierarchy::V1(_) => (
            "memory.usage_in_bytes",
            "memory.limit_in_bytes",
            [
                "total_inactive_file",
                "total_rss",
                "total_pgfault",
                "total_pgmajfault",
            ],
        ),
        Hierarchy::V2(_) => (
            "memory.current",
            "memory.max",
            ["inactive_file", "anon", "pgfault", "pgmajfault"],
        ),
    };
    let [inactive, rss, faults, major] = names.map(|name| field(&stat, name));
    // The root of version 2 has no such file: `/proc/meminfo` has the figure instead.
    let usage = number(&group.join(usage));
    let working_set = usage.map(|usage| usage.saturating_sub(inactive.unwrap_or(0)));
    let limit = number(&group.join(limit)).filter(|limit| *limit < UNLIMITED);
    Some(MemoryStats {
        time: None,
        available_bytes: limit
            .zip(working_set)
            .map(|(l, used)| l.saturating_sub(used)),
        usage_bytes: usage,
        working_set_bytes: working_set,
        rss_bytes: rss,
        page_faults: faults,
        major_page_faults: major,
        psi: None,
    })
}

/// Bytes of inactive page cache, from the root memory cgroup; none where it has no such figure.
pub fn inactive_files(hierarchy: &Hierarchy) -> Option<u64> {
    let stat = hierarchy.top("memory")?.join("memory.stat");
    field(&fs::read_to_string(stat).ok()?, "inactive_file")
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| {
        let (first, rest) = line.split_once(' ')?;
        (first == name).then_some(rest)
    });
    line?.trim().parse().ok()
}
