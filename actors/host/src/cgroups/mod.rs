//! The machine's cgroup version, where its hierarchies are mounted, and their folders.

mod favor;
mod files;
pub mod memory_events;
pub mod placement;

use std::fs;
use std::path::Path;

pub use favor::favor_changes;
pub use files::{CgroupError, CgroupFiles, Killed};
use logic_resources::cgroups::Hierarchy;
use logic_resources::resources::NodeCgroupVersion;

/// The mounted hierarchies, by `self/mountinfo` below `proc`, which is `/proc`; none where none is mounted.
pub fn hierarchy(proc: &Path) -> Option<Hierarchy> {
    let mounts = fs::read_to_string(proc.join("self/mountinfo")).unwrap_or_default();
    Hierarchy::parse(&mounts)
}

/// The version that containers' limits are set by; a machine with trees of both kinds counts as version 1, as the
/// kubelet has it (runc's `IsCgroup2UnifiedMode`). `root` is `/`.
pub fn version(root: &Path) -> NodeCgroupVersion {
    match root.join("sys/fs/cgroup/cgroup.controllers").exists() {
        true => NodeCgroupVersion::V2,
        false => NodeCgroupVersion::V1,
    }
}

/// Whether swap is limited by cgroup. The root of cgroup v2 has no such file, the agent's own cgroup has.
pub fn limits_swap(root: &Path, cgroups: NodeCgroupVersion) -> bool {
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

/// The memory cgroup of this process, from `self/cgroup` below `proc`; empty where it is in none.
pub fn own_group(proc: &Path) -> String {
    memory_group(&fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default())
}

fn memory_group(text: &str) -> String {
    let group = |wanted: &str| {
        text.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let found = controllers
                .split(',')
                .any(|controller| controller == wanted);
            found.then(|| path.to_owned())
        })
    };
    group("memory").or_else(|| group("")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

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
        write(
            folder.path(),
            "sys/fs/cgroup/cgroup.controllers",
            "cpu memory",
        );
        assert_eq!(version(folder.path()), NodeCgroupVersion::V2);
    }

    #[test]
    fn the_group_of_memory_is_the_processs_own() {
        assert_eq!(memory_group("5:cpu,memory:/a\n0::/b\n"), "/a");
        assert_eq!(memory_group("0::/b\n"), "/b");
        assert_eq!(memory_group("nonsense"), "");
    }

    /// A privileged container may nest its own as deep as it likes, beyond any path.
    #[test]
    fn nested_groups_are_searched_and_removed_however_deep() {
        use rustix::fs::{Mode, OFlags, mkdirat, open, openat};

        const LEVELS: usize = 3_000;
        let folder = tempfile::tempdir().unwrap();
        let files = CgroupFiles::new(Some(Hierarchy::V2(folder.path().to_owned())));
        std::fs::create_dir(folder.path().join("pod")).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut group = open(folder.path().join("pod"), flags, Mode::empty()).unwrap();
        for _ in 0..LEVELS {
            mkdirat(&group, "g", Mode::RWXU).unwrap();
            group = openat(&group, "g", flags, Mode::empty()).unwrap();
        }
        let create = OFlags::WRONLY | OFlags::CREATE;
        let procs = openat(&group, "cgroup.procs", create, Mode::RWXU).unwrap();
        rustix::io::write(&procs, b"0\n4194304\n").unwrap();
        let found = files.processes(&["/pod".to_owned()]).unwrap();
        assert_eq!(found, [4_194_304].into());
        // Groups have files of the kernel's, which go with them; here there must be none.
        rustix::fs::unlinkat(&group, "cgroup.procs", rustix::fs::AtFlags::empty()).unwrap();
        files.remove("/pod").unwrap();
        assert!(!folder.path().join("pod").exists());
    }

    #[test]
    fn a_killed_pod_loses_its_processes_and_keeps_its_monitor() {
        let folder = tempfile::tempdir().unwrap();
        let files = CgroupFiles::new(Some(Hierarchy::V2(folder.path().to_owned())));
        let start = || Command::new("sleep").arg("3600").spawn().unwrap();
        let mut sleeps = [start(), start(), start()];
        let groups = ["c0", "oxlet-monitor", "oxlet-monitor-ab-cd.scope"];
        for (child, group) in sleeps.iter().zip(groups) {
            let procs = format!("pod/{group}/cgroup.procs");
            write(folder.path(), &procs, &format!("{}\n", child.id()));
        }
        write(folder.path(), "pod/cgroup.procs", "");
        let killed = files.kill("/pod", Killed::AllButMonitors).unwrap();
        assert_eq!(killed, [sleeps[0].id()]);
        assert!(!sleeps[0].wait().unwrap().success());
        assert!(sleeps[1].try_wait().unwrap().is_none());
        let mut all = files.kill("/pod", Killed::All).unwrap();
        all.retain(|pid| *pid != sleeps[0].id());
        assert_eq!(all.len(), 2);
        for child in &mut sleeps[1..] {
            assert!(!child.wait().unwrap().success());
        }
    }
}
