//! Which value goes into which file, for both versions of cgroups.

use serde::Serialize;

use super::{CONTROLLERS, CgroupLimits, Hierarchy, burst};

/// A value for a file of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CgroupWrite {
    /// The controller of cgroup version 1; with version 2 all are one.
    pub controller: &'static str,
    /// In the group's folder.
    pub file: String,
    pub value: String,
}

impl CgroupWrite {
    /// Whether a kernel may lack the file: controllers that no limit needs, and what is newer than the rest.
    pub fn is_optional(&self) -> bool {
        !matches!(self.controller, "cpu" | "memory") || self.file == burst::FILE
    }
}

/// Everything to be written for the limits, in its order; `page_sizes` are the bytes of each size of huge page that the
/// machine has: of a size that is not among the limits the group gets none.
pub fn writes(
    limits: &CgroupLimits,
    hierarchy: &Hierarchy,
    page_sizes: &[i64],
) -> Vec<CgroupWrite> {
    let mut list = match hierarchy {
        Hierarchy::V1(_) => version_1(limits),
        Hierarchy::V2(_) => version_2(limits),
    };
    if let Some(pids) = limits.pids {
        list.push(write("pids", "pids.max", pids.to_string()));
    }
    if let Some(cpus) = limits.cpus.as_ref().filter(|cpus| !cpus.is_empty()) {
        list.push(write("cpuset", "cpuset.cpus", cpus.clone()));
    }
    let last = match hierarchy {
        Hierarchy::V1(_) => "limit_in_bytes",
        Hierarchy::V2(_) => "max",
    };
    for size in page_sizes {
        let bytes = limits.huge_pages.get(size).copied().unwrap_or(0);
        for kind in ["", "rsvd."] {
            let file = format!("hugetlb.{}.{kind}{last}", page_size(*size));
            list.push(write("hugetlb", &file, bytes.to_string()));
        }
    }
    list
}

fn version_1(limits: &CgroupLimits) -> Vec<CgroupWrite> {
    let mut list = Vec::new();
    if let Some(shares) = limits.cpu_shares {
        list.push(write("cpu", "cpu.shares", shares.to_string()));
    }
    if let Some(cpu) = limits.cpu.filter(|cpu| cpu.quota != 0) {
        list.push(write("cpu", "cpu.cfs_period_us", cpu.period.to_string()));
        list.push(write("cpu", "cpu.cfs_quota_us", cpu.quota.to_string()));
    }
    if let Some(memory) = limits.memory.filter(|memory| *memory != 0) {
        list.push(write("memory", "memory.limit_in_bytes", memory.to_string()));
    }
    list
}

fn version_2(limits: &CgroupLimits) -> Vec<CgroupWrite> {
    let mut list = Vec::new();
    if let Some(shares) = limits.cpu_shares {
        let weight = cpu_weight(shares).to_string();
        list.push(write("cpu", "cpu.weight", weight));
    }
    if let Some(cpu) = limits.cpu.filter(|cpu| cpu.quota != 0) {
        let quota = match cpu.quota {
            ..0 => "max".to_owned(),
            quota => quota.to_string(),
        };
        // The kernel refuses a quota below the burst that is still there.
        list.push(write("cpu", burst::FILE, "0".to_owned()));
        list.push(write("cpu", "cpu.max", format!("{quota} {}", cpu.period)));
        if let Some(burst) = limits.cpu_burst {
            list.push(write("cpu", burst::FILE, burst.to_string()));
        }
    }
    if let Some(memory) = limits.memory.filter(|memory| *memory != 0) {
        list.push(write("memory", "memory.max", memory.to_string()));
    }
    for (file, value) in &limits.unified {
        let controller = file.split('.').next().unwrap_or_default();
        let known = CONTROLLERS.into_iter().find(|name| *name == controller);
        if let Some(controller) = known {
            list.push(write(controller, file, value.clone()));
        }
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
pub(super) fn cpu_weight(shares: i64) -> i64 {
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

    /// Upstream's TestCpuSharesToCPUWeight (its values at the ends and in the middle) and TestGetCpuWeight.
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
            (1_000_000_000, 10_000),
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
