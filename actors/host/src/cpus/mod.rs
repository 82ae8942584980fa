//! The machine's processors.

pub mod numa;
pub mod topology;

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

/// How many different values a property of the CPUs has, such as `core_id` or `physical_package_id`: physical cores
/// and sockets as cAdvisor counts them. `proc_line` is the property's name in `/proc/cpuinfo`, which goes first; zero
/// where neither place says.
pub fn distinct(root: &Path, proc_line: &str, property: &str) -> usize {
    let text = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let values = text.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == proc_line).then(|| value.trim().to_owned())
    });
    let values: BTreeSet<String> = values.take(MAX_CPUS).collect();
    if !values.is_empty() {
        return values.len();
    }
    let cpus = fs::read_dir(root.join("sys/bus/cpu/devices"));
    let cpus = cpus.into_iter().flatten().flatten().take(MAX_CPUS);
    let file = |cpu: fs::DirEntry| cpu.path().join("topology").join(property);
    let values = cpus.filter_map(|cpu| fs::read_to_string(file(cpu)).ok());
    let values: BTreeSet<String> = values.map(|value| value.trim().to_owned()).collect();
    values.len()
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
    fn cores_and_sockets_are_counted_by_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(distinct(root, "core id", "core_id"), 0);
        for cpu in 0..4 {
            let core = format!("sys/bus/cpu/devices/cpu{cpu}/topology/core_id");
            write(root, &core, &format!("{}\n", cpu / 2));
        }
        assert_eq!(distinct(root, "core id", "core_id"), 2);
        write(
            root,
            "proc/cpuinfo",
            "core id\t: 0\ncore id\t: 1\ncore id\t: 2\n",
        );
        assert_eq!(distinct(root, "core id", "core_id"), 3);
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
