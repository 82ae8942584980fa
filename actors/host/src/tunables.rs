//! The kernel's settings that a node depends on.
//!
//! Upstream: `setupKernelTunables` (pkg/kubelet/cm/container_manager_linux.go) and component-helpers' node/util/sysctl,
//! 1.36.

use std::fs;
use std::path::Path;

/// Each setting below `/proc/sys`, and its value on a node.
pub const TUNABLES: [(&str, i64); 6] = [
    // Memory is given though it may not be there: containers are limited by their cgroups.
    ("vm/overcommit_memory", 1),
    // A machine out of memory kills a process and goes on.
    ("vm/panic_on_oom", 0),
    // Seconds after which a machine that panicked starts again.
    ("kernel/panic", 10),
    ("kernel/panic_on_oops", 1),
    // Each container takes keys of root's.
    ("kernel/keys/root_maxkeys", 1_000_000),
    ("kernel/keys/root_maxbytes", 25_000_000),
];

/// What is done about a setting with another value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunablePolicy {
    /// The node's value is written.
    Set,
    /// It is an error (`protectKernelDefaults`).
    Expect,
}

/// Compares every setting below `root`, which is `/proc/sys`; returns what is wrong with each that does not have the
/// node's value afterwards.
pub fn apply(root: &Path, policy: TunablePolicy) -> Vec<String> {
    let wrong = TUNABLES.iter().filter_map(|(name, expected)| {
        let file = root.join(name);
        let found = match fs::read_to_string(&file) {
            Ok(text) => text.trim().parse::<i64>().ok(),
            Err(error) => return Some(format!("{}: {error}", file.display())),
        };
        if found == Some(*expected) {
            return None;
        }
        match policy {
            TunablePolicy::Expect => {
                let found = found.map_or_else(|| "none".to_owned(), |found| found.to_string());
                Some(format!(
                    "invalid kernel flag: {name}, expected value: {expected}, actual value: {found}"
                ))
            }
            TunablePolicy::Set => {
                let written = fs::write(&file, expected.to_string());
                written
                    .err()
                    .map(|error| format!("{}: {error}", file.display()))
            }
        }
    });
    wrong.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(settings: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let defaults = TUNABLES.map(|(name, value)| (name, value.to_string()));
        let given = settings
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        for (name, value) in defaults.into_iter().chain(given) {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{value}\n")).unwrap();
        }
        folder
    }

    #[test]
    fn a_setting_is_written_unless_the_kernels_own_are_protected() {
        let good = kernel(&[]);
        assert!(apply(good.path(), TunablePolicy::Expect).is_empty());
        let other = kernel(&[("kernel/panic", "0"), ("vm/panic_on_oom", "much")]);
        assert_eq!(
            apply(other.path(), TunablePolicy::Expect),
            [
                "invalid kernel flag: vm/panic_on_oom, expected value: 0, actual value: none",
                "invalid kernel flag: kernel/panic, expected value: 10, actual value: 0",
            ]
        );
        assert!(apply(other.path(), TunablePolicy::Set).is_empty());
        assert!(apply(other.path(), TunablePolicy::Expect).is_empty());
    }

    #[test]
    fn a_setting_that_the_kernel_lacks_is_named() {
        let kernel = kernel(&[]);
        fs::remove_file(kernel.path().join("kernel/panic")).unwrap();
        let wrong = apply(kernel.path(), TunablePolicy::Set);
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].contains("kernel/panic"), "{wrong:?}");
    }
}
