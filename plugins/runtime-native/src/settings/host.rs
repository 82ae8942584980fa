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
        apparmor_default: None,
        selinux: Path::new("/sys/fs/selinux/enforce").exists(),
        selinux_file: selinux_file(),
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

/// Returns the label of containers' files by the node's policy, as `libselinux` has it for container engines.
fn selinux_file() -> String {
    let config = fs::read_to_string("/etc/selinux/config").unwrap_or_default();
    let policy = value(&config, "SELINUXTYPE").unwrap_or_default();
    let own = Path::new("/etc/selinux")
        .join(policy)
        .join("contexts/lxc_contexts");
    let read = |path: &Path| fs::read_to_string(path).ok();
    let contexts = read(Path::new("/usr/share/containers/selinux/contexts")).or_else(|| read(&own));
    value(&contexts.unwrap_or_default(), "file").unwrap_or_default()
}

/// The value of a line `NAME = "VALUE"`.
fn value(text: &str, name: &str) -> Option<String> {
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#'));
    let mut pairs = lines.filter_map(|line| line.split_once('='));
    let found = pairs.find(|(key, _)| key.trim() == name);
    found.map(|(_, value)| value.trim().trim_matches('"').to_owned())
}

fn mask(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_of_containers_files_is_read_from_the_policys_list() {
        let text = "# file = \"x\"\nprocess = \"system_u:system_r:container_t:s0\"\nfile = \"system_u:object_r:container_file_t:s0\"\nro_file=\"y\"\n";
        let file = value(text, "file");
        assert_eq!(
            file.as_deref(),
            Some("system_u:object_r:container_file_t:s0")
        );
        assert_eq!(
            value("SELINUXTYPE=targeted\n", "SELINUXTYPE").as_deref(),
            Some("targeted")
        );
        assert_eq!(value(text, "none"), None);
    }
}
