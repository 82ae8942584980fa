//! What the node's kernel can enforce of containers' resources, and what its configuration makes of it.
//!
//! Upstream: kuberuntime_container_linux.go (`swapControllerAvailable`, `isCgroup2UnifiedMode`) and
//! pkg/securitycontext/util_linux.go (masked paths of CPUs), 1.36.

use std::fs;
use std::path::Path;

use config::NodeConfig;
use logic_resources::node::MachineFacts;
use logic_resources::resources::{
    MemoryQos, MemoryReservationPolicy, NodeCgroupVersion, OomKill, ResourceEnforcement,
    SwapBehaviour, SwapPolicy, huge_page_name,
};

/// More CPUs than any machine has.
const MAX_CPUS: usize = 8192;

pub(super) fn enforcement(config: &NodeConfig, machine: &MachineFacts) -> ResourceEnforcement {
    let kubelet = &config.kubelet;
    let cgroups = version(Path::new("/sys/fs/cgroup"));
    let behaviour = match kubelet.memory_swap.swap_behavior.as_str() {
        "LimitedSwap" => SwapBehaviour::LimitedSwap,
        _ => SwapBehaviour::NoSwap,
    };
    let swap = SwapPolicy {
        behaviour,
        capacity: machine.swap,
    };
    let memory_qos = || MemoryQos {
        throttling: kubelet.memory_throttling_factor.and_then(millionths),
        reservation: match kubelet.memory_reservation_policy.as_str() {
            "TieredReservation" => MemoryReservationPolicy::Tiered,
            _ => MemoryReservationPolicy::None,
        },
        page_size: page_size(Path::new("/")),
    };
    ResourceEnforcement {
        cgroups,
        huge_page_sizes: machine
            .huge_pages
            .keys()
            .copied()
            .filter_map(huge_page_name)
            .collect(),
        swap: limits_swap(Path::new("/"), cgroups).then_some(swap),
        oom: match kubelet.single_process_oom_kill {
            Some(false) => OomKill::WholeContainer,
            Some(true) | None => OomKill::SingleProcess,
        },
        memory_qos: config.gates.enabled("MemoryQoS").then(memory_qos),
    }
}

fn version(mount: &Path) -> NodeCgroupVersion {
    match mount.join("cgroup.controllers").exists() {
        true => NodeCgroupVersion::V2,
        false => NodeCgroupVersion::V1,
    }
}

/// Whether swap is limited by cgroup. The root of cgroup v2 has no such file, the agent's own cgroup has.
fn limits_swap(root: &Path, cgroups: NodeCgroupVersion) -> bool {
    let mount = root.join("sys/fs/cgroup");
    match cgroups {
        NodeCgroupVersion::V1 => mount.join("memory/memory.memsw.limit_in_bytes").exists(),
        NodeCgroupVersion::V2 => {
            let own = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
            let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
            own.is_some_and(|own| mount.join(own).join("memory.swap.max").exists())
        }
    }
}

/// Bytes, as the kernel says of this process' first mapping.
fn page_size(root: &Path) -> u32 {
    const DEFAULT_PAGE_SIZE: u32 = 4096;
    let maps = fs::read_to_string(root.join("proc/self/smaps")).unwrap_or_default();
    let size = maps
        .lines()
        .find_map(|line| line.strip_prefix("KernelPageSize:"));
    let kibibytes =
        size.and_then(|size| size.trim().strip_suffix("kB")?.trim().parse::<u32>().ok());
    kibibytes
        .and_then(|size| size.checked_mul(1024))
        .unwrap_or(DEFAULT_PAGE_SIZE)
}

/// A factor of the configuration, which its validation holds above nought and at most one.
fn millionths(factor: f64) -> Option<u32> {
    format!("{:.0}", factor * 1e6).parse().ok()
}

/// Files that tell how hot the machine's CPUs are, and so what runs on them.
pub(super) fn masked_paths() -> Vec<String> {
    cpu_thermal_files(Path::new("/"))
}

fn cpu_thermal_files(root: &Path) -> Vec<String> {
    let cpus = fs::read_dir(root.join("sys/devices/system/cpu"));
    let names = cpus
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix("cpu")?.parse::<u32>().ok();
    let mut numbers: Vec<u32> = names.filter_map(number).take(MAX_CPUS).collect();
    numbers.sort_unstable();
    let path = |cpu: u32| format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle");
    let there = |path: &String| root.join(path.trim_start_matches('/')).exists();
    numbers.into_iter().map(path).filter(there).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn swap_is_limited_where_the_kernel_has_the_file_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert!(!limits_swap(root, NodeCgroupVersion::V1));
        assert!(!limits_swap(root, NodeCgroupVersion::V2));
        write(
            root,
            "sys/fs/cgroup/memory/memory.memsw.limit_in_bytes",
            "0",
        );
        assert!(limits_swap(root, NodeCgroupVersion::V1));
        write(root, "proc/self/cgroup", "0::/system.slice/oxlet.service\n");
        assert!(!limits_swap(root, NodeCgroupVersion::V2));
        write(
            root,
            "sys/fs/cgroup/system.slice/oxlet.service/memory.swap.max",
            "max",
        );
        assert!(limits_swap(root, NodeCgroupVersion::V2));
    }

    #[test]
    fn the_version_is_told_by_the_file_of_controllers() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(version(folder.path()), NodeCgroupVersion::V1);
        write(folder.path(), "cgroup.controllers", "cpu memory");
        assert_eq!(version(folder.path()), NodeCgroupVersion::V2);
    }

    #[test]
    fn the_heat_of_each_cpu_that_tells_it_is_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert!(cpu_thermal_files(root).is_empty());
        for file in [
            "cpu10/thermal_throttle/count",
            "cpu2/thermal_throttle/count",
            "cpu3/online",
            "cpufreq/x",
        ] {
            write(root, &format!("sys/devices/system/cpu/{file}"), "");
        }
        let expected = [
            "/sys/devices/system/cpu/cpu2/thermal_throttle",
            "/sys/devices/system/cpu/cpu10/thermal_throttle",
        ];
        assert_eq!(cpu_thermal_files(root), expected);
    }

    #[test]
    fn a_page_is_as_long_as_the_kernel_says() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(page_size(folder.path()), 4096);
        let maps = "5581-5582 r--p 0000 08:01 1 /a\nSize:  4 kB\nKernelPageSize:       64 kB\n";
        write(folder.path(), "proc/self/smaps", maps);
        assert_eq!(page_size(folder.path()), 65_536);
    }

    #[test]
    fn a_factor_is_counted_in_millionths() {
        assert_eq!(
            [0.9, 1.0, 0.000_001].map(millionths),
            [Some(900_000), Some(1_000_000), Some(1)]
        );
    }
}
