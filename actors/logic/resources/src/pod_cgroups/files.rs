//! Which value goes into which file, for both versions of cgroups.

use serde::Serialize;

use super::{Hierarchy, PodLimits};

/// A value for a file of the pod's cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CgroupWrite {
    /// The controller of cgroup version 1; with version 2 all are one.
    pub controller: &'static str,
    /// Below the pod's group.
    pub file: String,
    pub value: String,
}

/// Everything to be written for the limits; `page_sizes` are the bytes of each size of huge page that the
/// machine has: of a size that the pod does not ask for it gets none.
pub fn writes(limits: &PodLimits, hierarchy: &Hierarchy, page_sizes: &[i64]) -> Vec<CgroupWrite> {
    let mut list = match hierarchy {
        Hierarchy::V1(_) => version_1(limits),
        Hierarchy::V2(_) => version_2(limits),
    };
    if let Some(pids) = limits.pids {
        list.push(write("pids", "pids.max", pids.to_string()));
    }
    let last = match hierarchy {
        Hierarchy::V1(_) => "limit_in_bytes",
        Hierarchy::V2(_) => "max",
    };
    for size in page_sizes {
        let bytes = limits.huge_pages.get(size).copied().unwrap_or(0);
        let file = format!("hugetlb.{}.{last}", page_size(*size));
        list.push(write("hugetlb", &file, bytes.to_string()));
    }
    list
}

fn version_1(limits: &PodLimits) -> Vec<CgroupWrite> {
    let mut list = vec![write("cpu", "cpu.shares", limits.cpu_shares.to_string())];
    if let Some(cpu) = limits.cpu.filter(|cpu| cpu.quota != 0) {
        list.push(write("cpu", "cpu.cfs_period_us", cpu.period.to_string()));
        list.push(write("cpu", "cpu.cfs_quota_us", cpu.quota.to_string()));
    }
    if let Some(memory) = limits.memory.filter(|memory| *memory != 0) {
        list.push(write("memory", "memory.limit_in_bytes", memory.to_string()));
    }
    list
}

fn version_2(limits: &PodLimits) -> Vec<CgroupWrite> {
    let weight = cpu_weight(limits.cpu_shares).to_string();
    let mut list = vec![write("cpu", "cpu.weight", weight)];
    if let Some(cpu) = limits.cpu.filter(|cpu| cpu.quota != 0) {
        let quota = match cpu.quota {
            ..0 => "max".to_owned(),
            quota => quota.to_string(),
        };
        list.push(write("cpu", "cpu.max", format!("{quota} {}", cpu.period)));
    }
    if let Some(memory) = limits.memory.filter(|memory| *memory != 0) {
        list.push(write("memory", "memory.max", memory.to_string()));
    }
    list
}

fn write(controller: &'static str, file: &str, value: String) -> CgroupWrite {
    CgroupWrite {
        controller,
        file: file.to_owned(),
        value,
    }
}

/// From version 1's [2, 262144] to version 2's [1, 10000].
fn cpu_weight(shares: i64) -> i64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

/// As the kernel's files name it: `2MB`.
fn page_size(bytes: i64) -> String {
    const UNITS: [(i64, &str); 3] = [(1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")];
    let fits = UNITS.iter().find(|(unit, _)| bytes >= *unit);
    let (unit, name) = fits.unwrap_or(&(1, "B"));
    format!("{}{name}", bytes / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestCpuSharesToCPUWeight (its values at the ends and in the middle).
    #[test]
    fn shares_become_weights() {
        let cases = [
            (0, 1),
            (2, 1),
            (3, 1),
            (1024, 39),
            (2048, 79),
            (102, 4),
            (262_144, 10_000),
            (300_000, 10_000),
        ];
        for (shares, weight) in cases {
            assert_eq!(cpu_weight(shares), weight, "{shares}");
        }
    }

    /// Upstream's TestHugePageUnitSizeFromByteSize.
    #[test]
    fn pages_are_named_as_the_kernel_does() {
        let sizes = [64 << 10, 2 << 20, 512 << 20, 1 << 30, 16 << 30];
        assert_eq!(
            sizes.map(page_size),
            ["64KB", "2MB", "512MB", "1GB", "16GB"]
        );
    }
}
