//! What this machine can enforce, read once at the start.

use std::fs;
use std::path::Path;

use crate::settings::NativeSettings;
use crate::spec::{HostFacts, capability_names};

/// The bit of CAP_SYS_RESOURCE in a capability mask.
const SYS_RESOURCE: u64 = 1 << 24;

/// Reads the machine. What cannot be read counts as not there.
pub(crate) fn facts(settings: &NativeSettings) -> HostFacts {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = mask(&status, "CapEff:");
    let own_adjustment = fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
    let own_adjustment = own_adjustment.trim().parse().unwrap_or(0);
    let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    let v1 = |file: &str| Path::new("/sys/fs/cgroup").join(file).exists();
    HostFacts {
        capabilities: capability_names(mask(&status, "CapBnd:")),
        apparmor: fs::read_to_string("/sys/module/apparmor/parameters/enabled")
            .is_ok_and(|text| text.trim() == "Y"),
        selinux: Path::new("/sys/fs/selinux/enforce").exists(),
        seccomp: status.lines().any(|line| line.starts_with("Seccomp:")),
        unified,
        hugetlb: match unified {
            true => controllers.split_whitespace().any(|name| name == "hugetlb"),
            false => v1("hugetlb/cgroup.procs"),
        },
        swap_limit: unified || v1("memory/memory.memsw.limit_in_bytes"),
        // Lower than one's own needs that capability.
        oom_score_adj_min: if effective & SYS_RESOURCE == 0 {
            own_adjustment
        } else {
            -1000
        },
        hostname: fs::read_to_string("/proc/sys/kernel/hostname")
            .unwrap_or_default()
            .trim()
            .to_owned(),
        architecture: std::env::consts::ARCH,
        rlimits: settings.rlimits.clone(),
    }
}

fn mask(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
        .unwrap_or(0)
}
