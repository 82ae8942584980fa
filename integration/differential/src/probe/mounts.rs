//! The mount table, and what the cgroup mounts say.

use std::collections::BTreeMap;
use std::fs;

use super::process::text;
use super::report::Report;

/// Values of the container's own group, by their names in cgroup v1 and v2.
const CGROUP_FILES: [&str; 24] = [
    "memory/memory.limit_in_bytes",
    "memory/memory.memsw.limit_in_bytes",
    "memory/memory.soft_limit_in_bytes",
    "memory/memory.oom_control",
    "cpu/cpu.shares",
    "cpu/cpu.cfs_quota_us",
    "cpu/cpu.cfs_period_us",
    "cpuset/cpuset.cpus",
    "cpuset/cpuset.mems",
    "pids/pids.max",
    "devices/devices.list",
    "hugetlb/hugetlb.2MB.limit_in_bytes",
    "blkio/blkio.weight",
    "net_cls/net_cls.classid",
    "memory.max",
    "memory.high",
    "memory.swap.max",
    "memory.oom.group",
    "cpu.weight",
    "cpu.max",
    "cpuset.cpus",
    "pids.max",
    "cgroup.controllers",
    "cgroup.subtree_control",
];

pub(super) fn report(report: &mut Report) {
    // A mount point may be mounted on several times: its lower mounts are the first ones.
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for line in text("/proc/self/mountinfo").lines() {
        let Some((mount, super_block)) = line.split_once(" - ") else {
            continue;
        };
        // man 5 proc: id, parent, device, root, point, options, optional fields; type, source, super options.
        let mount: Vec<&str> = mount.split(' ').collect();
        let super_block: Vec<&str> = super_block.split(' ').collect();
        let field =
            |fields: &[&str], at: usize| fields.get(at).copied().unwrap_or_default().to_owned();
        let point = field(&mount, 4);
        let times = seen.entry(point.clone()).or_default();
        let key = if *times == 0 {
            format!("mounts.{point}")
        } else {
            format!("mounts.{point}#{times}")
        };
        *times += 1;
        let propagation: Vec<&str> = mount
            .iter()
            .skip(6)
            .map(|field| field.split(':').next().unwrap_or_default())
            .filter(|field| *field != "propagate_from")
            .collect();
        report.put(format!("{key}.type"), field(&super_block, 0));
        report.put(format!("{key}.root"), field(&mount, 3));
        report.put(format!("{key}.options"), sorted(&field(&mount, 5)));
        report.put(format!("{key}.super"), sorted(&field(&super_block, 2)));
        report.put(format!("{key}.propagation"), propagation.join(" "));
    }
    for name in CGROUP_FILES {
        let value = text(&format!("/sys/fs/cgroup/{name}"));
        let mut lines: Vec<&str> = value.lines().collect();
        lines.sort_unstable();
        report.put(format!("group.{name}"), lines.join("; "));
    }
    let entries = fs::read_dir("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .flatten();
    let mut names: Vec<String> = entries
        // Those of cgroup v2 are the kernel's choice.
        .filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_file()))
        .map(|entry| {
            let link = fs::read_link(entry.path()).map(|to| format!("->{}", to.display()));
            format!(
                "{}{}",
                entry.file_name().display(),
                link.unwrap_or_default()
            )
        })
        .collect();
    names.sort_unstable();
    report.put("group.entries", names.join(" "));
}

fn sorted(options: &str) -> String {
    let mut options: Vec<&str> = options.split(',').collect();
    options.sort_unstable();
    options.join(",")
}
