//! The machine's processors.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// More CPUs than any machine has.
const MAX_CPUS: usize = 8192;

/// The CPUs that are online, as a list of ranges; `sys` is `/sys`. None where the kernel does not tell.
pub fn online(sys: &Path) -> Option<String> {
    let list = fs::read_to_string(sys.join("devices/system/cpu/online")).ok()?;
    let list = list.trim().to_owned();
    count(&list).is_some_and(|cpus| cpus > 0).then_some(list)
}

/// How many CPUs a list of ranges such as `0-3,8` names; none for nonsense.
pub fn count(list: &str) -> Option<u32> {
    let mut cpus = BTreeSet::new();
    for range in list.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MAX_CPUS {
            return None;
        }
        cpus.extend(first..=last);
    }
    u32::try_from(cpus.len()).ok()
}

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
    fn a_list_of_cpus_that_makes_no_sense_has_no_count() {
        let counts = ["0", "0-1,4", "0,0-1", "", "x", "3-1", "0-4294967295"].map(count);
        let expected = [Some(1), Some(3), Some(2), Some(0), None, None, None];
        assert_eq!(counts, expected);
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
