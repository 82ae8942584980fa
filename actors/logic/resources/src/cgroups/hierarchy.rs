//! Where the machine's cgroups are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The controllers that pods are limited by.
pub const CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "hugetlb", "memory", "pids"];

/// Where a machine has its unified hierarchy, if it has no other.
const UNIFIED: &str = "/sys/fs/cgroup";

/// All names that may stand among the options of a version 1 mount.
const KNOWN: [&str; 14] = [
    "blkio",
    "cpu",
    "cpuacct",
    "cpuset",
    "devices",
    "freezer",
    "hugetlb",
    "memory",
    "misc",
    "net_cls",
    "net_prio",
    "perf_event",
    "pids",
    "rdma",
];

/// How the machine's cgroups are mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hierarchy {
    /// A tree of each controller, or of some together; `systemd` and `unified` carry no limits.
    V1(BTreeMap<String, PathBuf>),
    /// The unified tree, by its mount point.
    V2(PathBuf),
}

impl Hierarchy {
    /// Reads `/proc/self/mountinfo`; none where no cgroups are mounted.
    pub fn parse(mountinfo: &str) -> Option<Self> {
        let mut trees: BTreeMap<String, PathBuf> = BTreeMap::new();
        for line in mountinfo.lines() {
            let Some((mount, file_system)) = line.split_once(" - ") else {
                continue;
            };
            let point = mount.split(' ').nth(4).map(Path::new);
            let mut words = file_system.split(' ');
            let (Some(point), Some(kind)) = (point, words.next()) else {
                continue;
            };
            match kind {
                "cgroup2" if point == Path::new(UNIFIED) => return Some(Self::V2(point.into())),
                "cgroup2" => keep(&mut trees, "unified", point),
                "cgroup" => {
                    for name in words.nth(1).unwrap_or_default().split(',') {
                        match name {
                            "name=systemd" => keep(&mut trees, "systemd", point),
                            name if KNOWN.contains(&name) => keep(&mut trees, name, point),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        (!trees.is_empty()).then_some(Self::V1(trees))
    }

    /// The tops of all trees, each once.
    pub fn tops(&self) -> Vec<&Path> {
        match self {
            Self::V2(top) => vec![top],
            Self::V1(trees) => {
                let mut tops: Vec<_> = trees.values().map(PathBuf::as_path).collect();
                tops.sort_unstable();
                tops.dedup();
                tops
            }
        }
    }

    /// The top of a controller's tree, where it is mounted.
    pub fn top(&self, controller: &str) -> Option<&Path> {
        match self {
            Self::V2(top) => Some(top),
            Self::V1(trees) => trees.get(controller).map(PathBuf::as_path),
        }
    }
}

/// Of several mounts the one with the shortest path is used.
fn keep(trees: &mut BTreeMap<String, PathBuf>, name: &str, point: &Path) {
    let shorter = |known: &PathBuf| point.as_os_str().len() < known.as_os_str().len();
    if trees.get(name).is_none_or(shorter) {
        trees.insert(name.to_owned(), point.to_owned());
    }
}
