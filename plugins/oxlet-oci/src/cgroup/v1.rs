//! A container's groups of version 1: a folder in each hierarchy, where the hierarchy is mounted below `/sys/fs/cgroup`.
//!
//! Not by libcgroups, which reads the machine's mounts once for each of twelve controllers, several times over: on a node of
//! a thousand pods with six mounts each that alone would take most of a start.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxBlockIo, LinuxCpu, LinuxMemory, LinuxResources};
use rustix::fs::{Access, access, statfs};

use super::CGROUP2_SUPER_MAGIC;

/// The controllers in whose hierarchies a container has a group, as with runc.
const CONTROLLERS: [&str; 13] = [
    "blkio",
    "cpu",
    "cpuacct",
    "cpuset",
    "devices",
    "freezer",
    "hugetlb",
    "memory",
    "net_cls",
    "net_prio",
    "perf_event",
    "pids",
    "rdma",
];
/// The hierarchies without a controller in which a container has a group all the same, as with runc: those of systemd, which
/// finds services by it, and the one of version 2 beside the others.
const NAMED: &str = "systemd";
const UNIFIED: &str = "unified";
/// As in linux/magic.h.
const CGROUP_SUPER_MAGIC: i64 = 0x0027_e0eb;
/// The greatest swappiness that the kernel takes.
const MAX_SWAPPINESS: u64 = 100;

/// Why a group is not what it shall be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GroupError {
    #[error("cannot list the hierarchies of {0}")]
    List(PathBuf, #[source] io::Error),
    #[error("cannot make cgroup {0}")]
    Make(PathBuf, #[source] io::Error),
    #[error("cannot read {0}")]
    Read(PathBuf, #[source] io::Error),
    #[error("cannot write {1:?} to {0}")]
    Write(PathBuf, String, #[source] io::Error),
    #[error("controller {0} is not mounted, which linux.resources needs")]
    Absent(&'static str),
    #[error("linux.resources.memory.swappiness is {0}, expected 0 to {MAX_SWAPPINESS}")]
    Swappiness(u64),
}

/// The mounts of version 1 below a folder, which is `/sys/fs/cgroup`; a link is another name of one of them.
pub(super) fn mounts(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() && statfs(&path)?.f_type == CGROUP_SUPER_MAGIC {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The controllers of a mount, by its name: `cpu,cpuacct`.
pub(super) fn controllers(mount: &Path) -> impl Iterator<Item = &str> {
    let name = mount.file_name().and_then(|name| name.to_str());
    name.unwrap_or_default().split(',')
}

/// Whether a hierarchy has a controller in whose group a container is.
fn has_controller(mount: &Path) -> bool {
    controllers(mount).any(|name| CONTROLLERS.contains(&name))
}

/// Whether a container has a group of its own in a hierarchy. One without a controller may be read-only, as on a node that
/// is a container itself: the container then stays in this process's group.
pub(super) fn has_own_group(mount: &Path) -> bool {
    has_controller(mount) || (mount.ends_with(NAMED) && is_writable(mount))
}

fn is_writable(mount: &Path) -> bool {
    access(mount, Access::WRITE_OK).is_ok()
}

/// The hierarchy of version 2 that is mounted next to those of version 1.
fn unified(root: &Path) -> Option<PathBuf> {
    let mount = root.join(UNIFIED);
    let is_mounted = statfs(&mount).is_ok_and(|found| found.f_type == CGROUP2_SUPER_MAGIC);
    (is_mounted && is_writable(&mount)).then_some(mount)
}

/// A container's groups.
#[derive(Debug)]
pub(crate) struct Groups {
    /// The mount of each hierarchy, and the group in it.
    folders: Vec<(PathBuf, PathBuf)>,
}

impl Groups {
    /// The groups of a path below each hierarchy's root.
    pub(super) fn new(root: &Path, path: &Path) -> Result<Groups, GroupError> {
        let mounts = mounts(root).map_err(|error| GroupError::List(root.to_owned(), error))?;
        let below = path.strip_prefix("/").unwrap_or(path);
        Ok(Groups {
            folders: mounts
                .into_iter()
                .filter(|mount| has_own_group(mount))
                .chain(unified(root))
                .map(|mount| (mount.join(below), mount))
                .map(|(group, mount)| (mount, group))
                .collect(),
        })
    }

    fn find(&self, controller: &str) -> Option<&Path> {
        self.folders
            .iter()
            .find(|(mount, _)| controllers(mount).any(|name| name == controller))
            .map(|(_, group)| group.as_path())
    }

    fn need(&self, controller: &'static str) -> Result<&Path, GroupError> {
        self.find(controller).ok_or(GroupError::Absent(controller))
    }

    /// Makes the groups.
    pub(super) fn make(&self) -> Result<(), GroupError> {
        for (mount, group) in &self.folders {
            fs::create_dir_all(group).map_err(|error| GroupError::Make(group.clone(), error))?;
            if controllers(mount).any(|name| name == "cpuset") {
                inherit(mount, group)?;
            }
        }
        Ok(())
    }

    /// Moves a process into the groups. One in a hierarchy without a controller limits nothing and need not take it: a
    /// container of an older version has none there, and in version 2 one with controllers handed down takes no process.
    pub(super) fn add(&self, pid: i32) -> Result<(), GroupError> {
        for (mount, group) in &self.folders {
            let added = write(group, "cgroup.procs", pid);
            if has_controller(mount) {
                added?;
            }
        }
        Ok(())
    }

    /// The groups' folders.
    pub(super) fn folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().map(|(_, group)| group.as_path())
    }

    /// Writes limits; what is not named stays.
    pub(super) fn limit(&self, resources: &LinuxResources) -> Result<(), GroupError> {
        if let Some(rules) = resources.devices() {
            let group = self.need("devices")?;
            for rule in rules {
                let file = if rule.allow() {
                    "devices.allow"
                } else {
                    "devices.deny"
                };
                write(group, file, rule)?;
            }
            for rule in kernel_filters::default_rules() {
                write(group, "devices.allow", rule)?;
            }
        }
        if let Some(cpu) = resources.cpu() {
            self.limit_cpu(cpu)?;
        }
        if let Some(memory) = resources.memory() {
            self.limit_memory(memory)?;
        }
        if let Some(pids) = resources.pids() {
            let limit = pids.limit();
            let text = if limit > 0 {
                limit.to_string()
            } else {
                "max".to_owned()
            };
            write(self.need("pids")?, "pids.max", text)?;
        }
        if let Some(io) = resources.block_io() {
            limit_io(self.need("blkio")?, io)?;
        }
        for pages in resources.hugepage_limits().iter().flatten() {
            let group = self.need("hugetlb")?;
            let size = pages.page_size();
            write(
                group,
                &format!("hugetlb.{size}.limit_in_bytes"),
                pages.limit(),
            )?;
            let reserved = format!("hugetlb.{size}.rsvd.limit_in_bytes");
            if group.join(&reserved).exists() {
                write(group, &reserved, pages.limit())?;
            }
        }
        if let Some(network) = resources.network() {
            if let Some(class) = network.class_id() {
                write(self.need("net_cls")?, "net_cls.classid", class)?;
            }
            for priority in network.priorities().iter().flatten() {
                write(self.need("net_prio")?, "net_prio.ifpriomap", priority)?;
            }
        }
        Ok(())
    }

    fn limit_cpu(&self, cpu: &LinuxCpu) -> Result<(), GroupError> {
        // The period before the quota, which the kernel compares with it.
        let numbers: [(&str, Option<i128>); 7] = [
            ("cpu.shares", cpu.shares().map(Into::into)),
            ("cpu.cfs_period_us", cpu.period().map(Into::into)),
            ("cpu.cfs_quota_us", cpu.quota().map(Into::into)),
            ("cpu.cfs_burst_us", cpu.burst().map(Into::into)),
            ("cpu.rt_period_us", cpu.realtime_period().map(Into::into)),
            ("cpu.rt_runtime_us", cpu.realtime_runtime().map(Into::into)),
            ("cpu.idle", cpu.idle().map(Into::into)),
        ];
        for (file, number) in numbers {
            // Zero is "not said", as with runc.
            if let Some(number) = number.filter(|number| *number != 0) {
                write(self.need("cpu")?, file, number)?;
            }
        }
        for (file, set) in [("cpuset.cpus", cpu.cpus()), ("cpuset.mems", cpu.mems())] {
            if let Some(set) = set.as_ref().filter(|set| !set.is_empty()) {
                write(self.need("cpuset")?, file, set)?;
            }
        }
        Ok(())
    }

    fn limit_memory(&self, memory: &LinuxMemory) -> Result<(), GroupError> {
        const LIMIT: &str = "memory.limit_in_bytes";
        const SWAP: &str = "memory.memsw.limit_in_bytes";
        let group = self.need("memory")?;
        let limit = memory.limit().unwrap_or_default();
        // Without a limit of memory there is none of both together.
        let swap = match memory.swap() {
            None if limit == -1 && group.join(SWAP).exists() => -1,
            swap => swap.unwrap_or_default(),
        };
        // The kernel lets the limit of memory never be above that of both: which one goes first depends on the direction.
        let mut steps = [(LIMIT, limit), (SWAP, swap)];
        if swap == -1 || (swap > 0 && read_number(group, LIMIT)? < swap) {
            steps.reverse();
        }
        for (file, value) in steps.into_iter().filter(|(_, value)| *value != 0) {
            write(group, file, value)?;
        }
        if let Some(reservation) = memory.reservation().filter(|value| *value != 0) {
            write(group, "memory.soft_limit_in_bytes", reservation)?;
        }
        if memory.disable_oom_killer().unwrap_or(false) {
            write(group, "memory.oom_control", 1)?;
        }
        if let Some(swappiness) = memory.swappiness() {
            if swappiness > MAX_SWAPPINESS {
                return Err(GroupError::Swappiness(swappiness));
            }
            write(group, "memory.swappiness", swappiness)?;
        }
        for (file, value) in [
            ("memory.kmem.limit_in_bytes", memory.kernel()),
            ("memory.kmem.tcp.limit_in_bytes", memory.kernel_tcp()),
        ] {
            if let Some(value) = value {
                write(group, file, value)?;
            }
        }
        Ok(())
    }
}

fn limit_io(group: &Path, io: &LinuxBlockIo) -> Result<(), GroupError> {
    let file = |plain: &str, bfq: &str| {
        if group.join(plain).exists() {
            plain.to_owned()
        } else {
            bfq.to_owned()
        }
    };
    if let Some(weight) = io.weight().filter(|weight| *weight != 0) {
        write(group, &file("blkio.weight", "blkio.bfq.weight"), weight)?;
    }
    for device in io.weight_device().iter().flatten() {
        if let Some(weight) = device.weight() {
            let file = file("blkio.weight_device", "blkio.bfq.weight_device");
            let text = format!("{}:{} {weight}", device.major(), device.minor());
            write(group, &file, text)?;
        }
    }
    for (file, devices) in [
        (
            "blkio.throttle.read_bps_device",
            io.throttle_read_bps_device(),
        ),
        (
            "blkio.throttle.write_bps_device",
            io.throttle_write_bps_device(),
        ),
        (
            "blkio.throttle.read_iops_device",
            io.throttle_read_iops_device(),
        ),
        (
            "blkio.throttle.write_iops_device",
            io.throttle_write_iops_device(),
        ),
    ] {
        for device in devices.iter().flatten() {
            let text = format!("{}:{} {}", device.major(), device.minor(), device.rate());
            write(group, file, text)?;
        }
    }
    Ok(())
}

/// Gives a new group of cpuset what the nearest group above has: one without processors takes no process.
fn inherit(mount: &Path, group: &Path) -> Result<(), GroupError> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let mut empty = Vec::new();
        let mut value = String::new();
        for folder in group
            .ancestors()
            .take_while(|folder| folder.starts_with(mount))
        {
            let path = folder.join(file);
            value = fs::read_to_string(&path).map_err(|error| GroupError::Read(path, error))?;
            if !value.trim().is_empty() {
                break;
            }
            empty.push(folder);
        }
        for folder in empty.into_iter().rev() {
            write(folder, file, value.trim())?;
        }
    }
    Ok(())
}

fn read_number(group: &Path, file: &str) -> Result<i64, GroupError> {
    let path = group.join(file);
    let text = fs::read_to_string(&path).map_err(|error| GroupError::Read(path.clone(), error))?;
    text.trim()
        .parse()
        .map_err(|error| GroupError::Read(path, io::Error::new(io::ErrorKind::InvalidData, error)))
}

fn write(group: &Path, file: &str, value: impl ToString) -> Result<(), GroupError> {
    let (path, text) = (group.join(file), value.to_string());
    let written = OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| GroupError::Write(path, text, error))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Groups of files that are there already; what is written replaces their first bytes.
    fn groups(root: &Path, files: &[(&str, &str, &str)]) -> Groups {
        let mut folders: Vec<(PathBuf, PathBuf)> = Vec::new();
        for (controller, file, content) in files {
            let mount = root.join(controller);
            let group = mount.join("pod/c");
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join(file), content).unwrap();
            if !folders.iter().any(|(one, _)| *one == mount) {
                folders.push((mount, group));
            }
        }
        Groups { folders }
    }

    fn limit(groups: &Groups, resources: Value) -> Result<(), GroupError> {
        groups.limit(&serde_json::from_value(resources).unwrap())
    }

    #[test]
    fn limits_are_written_to_the_files_of_their_controllers() {
        let folder = tempfile::tempdir().unwrap();
        let files = [
            ("cpu,cpuacct", "cpu.shares", ""),
            ("cpu,cpuacct", "cpu.cfs_quota_us", ""),
            ("cpuset", "cpuset.cpus", ""),
            ("memory", "memory.limit_in_bytes", "9223372036854771712"),
            ("memory", "memory.memsw.limit_in_bytes", ""),
            ("pids", "pids.max", ""),
            ("devices", "devices.allow", ""),
            ("devices", "devices.deny", ""),
        ];
        let groups = groups(folder.path(), &files);
        let resources = json!({
            "cpu": { "shares": 512, "quota": -1, "period": 0, "cpus": "0-1" },
            "memory": { "limit": 1_000, "swap": 2_000 },
            "pids": { "limit": 0 },
            "devices": [{ "allow": false, "access": "rwm" }],
        });
        limit(&groups, resources).unwrap();
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).unwrap();
        assert_eq!(read("cpu,cpuacct/pod/c/cpu.shares"), "512");
        assert_eq!(read("cpu,cpuacct/pod/c/cpu.cfs_quota_us"), "-1");
        assert_eq!(read("cpuset/pod/c/cpuset.cpus"), "0-1");
        assert!(read("memory/pod/c/memory.limit_in_bytes").starts_with("1000"));
        assert_eq!(read("memory/pod/c/memory.memsw.limit_in_bytes"), "2000");
        assert_eq!(read("pids/pod/c/pids.max"), "max");
        assert_eq!(read("devices/pod/c/devices.deny"), "a *:* rwm");
        assert_eq!(read("devices/pod/c/devices.allow"), "c 10:200 rwm");
    }

    #[test]
    fn a_limit_without_its_controller_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let groups = groups(folder.path(), &[("pids", "pids.max", "")]);
        let error = limit(&groups, json!({ "memory": { "limit": 1 } })).unwrap_err();
        assert!(matches!(error, GroupError::Absent("memory")));
        limit(&groups, json!({ "pids": { "limit": 7 } })).unwrap();
    }

    #[test]
    fn a_process_is_moved_into_every_group_and_one_without_a_controller_may_be_missing() {
        let folder = tempfile::tempdir().unwrap();
        let procs = |name| (name, "cgroup.procs", "");
        let files = [procs("pids"), procs("systemd"), procs("unified")];
        let groups = groups(folder.path(), &files);
        let group = |name: &str| folder.path().join(name).join("pod/c");
        groups.add(7).unwrap();
        for (name, file, _) in files {
            let text = fs::read_to_string(group(name).join(file)).unwrap();
            assert_eq!(text, "7", "{name}");
        }
        fs::remove_dir_all(group("systemd")).unwrap();
        groups.add(8).unwrap();
        fs::remove_dir_all(group("pids")).unwrap();
        assert!(matches!(groups.add(9), Err(GroupError::Write(..))));
    }

    #[test]
    fn a_container_has_a_group_in_hierarchies_with_its_controllers_and_in_systemds() {
        let folder = tempfile::tempdir().unwrap();
        for (name, expected) in [
            ("cpu,cpuacct", true),
            ("rdma", true),
            ("systemd", true),
            ("misc", false),
        ] {
            let mount = folder.path().join(name);
            fs::create_dir_all(&mount).unwrap();
            assert_eq!(has_own_group(&mount), expected, "{name}");
        }
        assert!(!has_own_group(Path::new("/proc/sys/systemd")));
        assert_eq!(unified(folder.path()), None);
    }

    #[test]
    fn a_new_group_of_cpuset_has_what_is_above_it() {
        let folder = tempfile::tempdir().unwrap();
        let mount = folder.path().join("cpuset");
        let group = mount.join("pod/c");
        fs::create_dir_all(&group).unwrap();
        for (at, value) in [
            (mount.as_path(), "0-7\n"),
            (&mount.join("pod"), "\n"),
            (&group, ""),
        ] {
            fs::write(at.join("cpuset.cpus"), value).unwrap();
            fs::write(at.join("cpuset.mems"), "0\n").unwrap();
        }
        inherit(&mount, &group).unwrap();
        for at in [mount.join("pod"), group] {
            let found = fs::read_to_string(at.join("cpuset.cpus")).unwrap();
            assert_eq!(found.trim(), "0-7");
        }
    }
}
