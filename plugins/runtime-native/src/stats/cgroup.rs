//! What a cgroup uses, read from its files on both versions.

use std::fs;
use std::path::{Path, PathBuf};

/// A cgroup file is one page; a memory.stat a few.
const ROOT: &str = "/sys/fs/cgroup";
/// What cgroup v1 says where there is no limit: the largest number of whole pages.
const UNLIMITED: u64 = 1 << 62;

/// The usage of one cgroup. What cannot be read is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CgroupUsage {
    pub(crate) cpu_nanos: Option<u64>,
    pub(crate) memory_bytes: Option<u64>,
    /// Without files that nobody has used for a while.
    pub(crate) working_set_bytes: Option<u64>,
    pub(crate) rss_bytes: Option<u64>,
    pub(crate) page_faults: Option<u64>,
    pub(crate) major_page_faults: Option<u64>,
    pub(crate) limit_bytes: Option<u64>,
    pub(crate) processes: Option<u64>,
}

/// Reads what the cgroup of a container uses, by the process id of its init. Blocks.
pub(crate) fn of_container(pid: i32, id: &str) -> CgroupUsage {
    let groups = Groups::of_container(pid, id);
    match groups.only_unified() {
        Some(folder) => unified(folder),
        None => split(&groups),
    }
}

/// The folders of a process's groups.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Groups {
    pub(super) memory: Option<PathBuf>,
    /// Where CPU is counted.
    pub(super) cpu: Option<PathBuf>,
    /// Where CPU is limited.
    pub(super) quota: Option<PathBuf>,
    pub(super) pids: Option<PathBuf>,
    pub(super) io: Option<PathBuf>,
    pub(super) unified: Option<PathBuf>,
}

impl Groups {
    /// Reads the groups of a container by the process id of its init; of one that is gone there are none. A container
    /// that manages its own groups may have moved its init into one of them: the group of its id has all of it.
    pub(super) fn of_container(pid: i32, id: &str) -> Groups {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        Groups::read(&text, id)
    }

    /// Returns the group of version 2 where that is all there is.
    pub(super) fn only_unified(&self) -> Option<&PathBuf> {
        let unified = self.unified.as_ref();
        unified.filter(|_| self.memory.is_none())
    }

    /// Returns a folder that lists the container's processes.
    pub(super) fn processes(&self) -> Option<&PathBuf> {
        let version_one = self.pids.as_ref().or(self.memory.as_ref());
        version_one.or(self.unified.as_ref())
    }

    /// Reads `/proc/PID/cgroup`: `hierarchy:controllers:path` a line.
    fn read(text: &str, id: &str) -> Groups {
        let mut groups = Groups::default();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let relative = up_to(path.trim_start_matches('/'), id);
            if controllers.is_empty() {
                groups.unified = Some(Path::new(ROOT).join(relative));
            }
            for controller in controllers.split(',') {
                let folder = || Some(Path::new(ROOT).join(controller).join(relative));
                match controller {
                    "memory" => groups.memory = folder(),
                    "cpuacct" => groups.cpu = folder(),
                    "cpu" => groups.quota = folder(),
                    "blkio" => groups.io = folder(),
                    "pids" => groups.pids = folder(),
                    _ => {}
                }
            }
        }
        groups
    }
}

/// Cuts a path after its first component that has this id in it, as OCI runtimes name the groups of containers.
fn up_to<'a>(path: &'a str, id: &str) -> &'a str {
    let found = path.find(id).filter(|_| !id.is_empty());
    let end = found.and_then(|at| path[at..].find('/').map(|length| at + length));
    &path[..end.unwrap_or(path.len())]
}

pub(super) fn number(folder: Option<&PathBuf>, file: &str) -> Option<u64> {
    let text = fs::read_to_string(folder?.join(file)).ok()?;
    text.trim().parse().ok()
}

/// Returns a value of a file with `key value` a line.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines();
    lines.find_map(|line| {
        line.strip_prefix(key)?
            .strip_prefix(' ')?
            .trim()
            .parse()
            .ok()
    })
}

fn split(groups: &Groups) -> CgroupUsage {
    let memory = groups.memory.as_ref();
    let stat = memory
        .and_then(|folder| fs::read_to_string(folder.join("memory.stat")).ok())
        .unwrap_or_default();
    let used = number(memory, "memory.usage_in_bytes");
    let inactive = keyed(&stat, "total_inactive_file").unwrap_or(0);
    CgroupUsage {
        cpu_nanos: number(groups.cpu.as_ref(), "cpuacct.usage"),
        memory_bytes: used,
        working_set_bytes: used.map(|used| used.saturating_sub(inactive)),
        rss_bytes: keyed(&stat, "total_rss"),
        page_faults: keyed(&stat, "total_pgfault"),
        major_page_faults: keyed(&stat, "total_pgmajfault"),
        limit_bytes: number(memory, "memory.limit_in_bytes").filter(|limit| *limit < UNLIMITED),
        processes: number(groups.pids.as_ref(), "pids.current"),
    }
}

fn unified(folder: &PathBuf) -> CgroupUsage {
    let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
    let stat = read("memory.stat");
    let used = number(Some(folder), "memory.current");
    let inactive = keyed(&stat, "inactive_file").unwrap_or(0);
    CgroupUsage {
        cpu_nanos: keyed(&read("cpu.stat"), "usage_usec").map(|usec| usec.saturating_mul(1000)),
        memory_bytes: used,
        working_set_bytes: used.map(|used| used.saturating_sub(inactive)),
        rss_bytes: keyed(&stat, "anon"),
        page_faults: keyed(&stat, "pgfault"),
        major_page_faults: keyed(&stat, "pgmajfault"),
        limit_bytes: number(Some(folder), "memory.max"),
        processes: number(Some(folder), "pids.current"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions_are_told_apart() {
        let v1 = "5:cpu,cpuacct:/a\n4:memory:/a/b\n3:pids:/\n0::/\n";
        let groups = Groups::read(v1, "");
        assert_eq!(
            groups.memory,
            Some(PathBuf::from("/sys/fs/cgroup/memory/a/b"))
        );
        assert_eq!(groups.cpu, Some(PathBuf::from("/sys/fs/cgroup/cpuacct/a")));
        assert_eq!(groups.quota, Some(PathBuf::from("/sys/fs/cgroup/cpu/a")));
        assert_eq!(
            groups.processes(),
            Some(&PathBuf::from("/sys/fs/cgroup/pids"))
        );
        assert_eq!(groups.only_unified(), None);
        let v2 = Groups::read("0::/kubepods/pod1/c\n", "c");
        assert_eq!(v2.memory, None);
        assert_eq!(
            v2.unified,
            Some(PathBuf::from("/sys/fs/cgroup/kubepods/pod1/c"))
        );
    }

    #[test]
    fn a_group_that_a_container_made_for_its_init_is_a_part_of_its_own() {
        for (path, expected) in [
            ("pod1/c1", "pod1/c1"),
            ("pod1/c1/init.scope/deeper", "pod1/c1"),
            ("pod1.slice/cri-c1.scope/init", "pod1.slice/cri-c1.scope"),
            ("user/elsewhere", "user/elsewhere"),
        ] {
            assert_eq!(up_to(path, "c1"), expected, "{path}");
        }
        assert_eq!(up_to("a/b", ""), "a/b");
    }

    #[test]
    fn a_value_is_found_by_its_whole_key() {
        let text = "rss_huge 7\nrss 5\ntotal_rss 6\n";
        assert_eq!(keyed(text, "rss"), Some(5));
        assert_eq!(keyed(text, "total"), None);
    }

    #[test]
    fn a_unified_group_is_read_from_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
        write("memory.current", "1000\n");
        write("memory.max", "max\n");
        write("memory.stat", "anon 300\ninactive_file 400\npgfault 2\n");
        write("cpu.stat", "usage_usec 5\n");
        let usage = unified(&folder.path().to_owned());
        assert_eq!(usage.working_set_bytes, Some(600));
        assert_eq!((usage.limit_bytes, usage.cpu_nanos), (None, Some(5000)));
        assert_eq!((usage.page_faults, usage.processes), (Some(2), None));
    }
}
