//! The machine's processors.

use std::fs;
use std::path::Path;

/// More CPUs than any machine has.
const MAX_CPUS: usize = 8192;

/// Paths of the files with the CPUs' thermal throttling, which leak what runs on them; `root` is `/`.
/// Upstream: pkg/securitycontext/util_linux.go (1.36).
pub fn thermal_files(root: &Path) -> Vec<String> {
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
    fn the_heat_of_each_cpu_that_tells_it_is_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert!(thermal_files(root).is_empty());
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
        assert_eq!(thermal_files(root), expected);
    }
}
