//! A container's cgroup. On version 1 it is made here; on version 2 by libcgroups, which leaves out device rules, a limit of
//! no swap at all, and with systemd's driver the files that systemd has no property for.

pub(crate) mod mounts;
pub(crate) mod removal;
mod v1;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::{fs, io};

use kernel_filters::{DeviceFilter, DeviceRule};
use libcgroups::common::{
    AnyCgroupManager, CgroupConfig, CgroupManager, ControllerOpt, DEFAULT_CGROUP_ROOT,
    create_cgroup_manager,
};
use libcgroups::v2::manager::Manager;
use oci_spec::runtime::LinuxResources;
use rustix::fs::{Mode, OFlags, statfs};
use serde_json::{Value, json};

use crate::error::AnyError;
use crate::record::Record;

/// The swap that a group of version 2 may use, in bytes; memory is not in it.
const SWAP_MAX: &str = "memory.swap.max";
/// As in linux/magic.h.
const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;

/// Why a spec's cgroup cannot be what it says.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CgroupError {
    #[error("linux.resources.devices")]
    Rules(#[source] serde_json::Error),
    #[error("linux.resources")]
    Resources(#[source] serde_json::Error),
    #[error("init {0} of the container is in no cgroup of its own")]
    Group(i32),
    #[error(
        "linux.cgroupsPath is {0:?}, expected an absolute path where cgroups of version 1 are mounted"
    )]
    Path(String),
    #[error("where cgroups are mounted cannot be read")]
    MountPoints(#[source] io::Error),
    #[error("cannot make cgroup {0}")]
    Make(PathBuf, #[source] io::Error),
    #[error("cannot move a process into cgroup {0}")]
    Join(PathBuf, #[source] io::Error),
    #[error("cannot read /proc/self/cgroup")]
    Own(#[source] io::Error),
    #[error("--systemd-cgroup on cgroup v1 is not supported by this runtime")]
    Systemd,
}

/// Whether this machine's cgroups are v2.
pub(crate) fn is_unified() -> bool {
    statfs(DEFAULT_CGROUP_ROOT).is_ok_and(|found| found.f_type == CGROUP2_SUPER_MAGIC)
}

/// Names a container's cgroup in its spec, where the spec doesn't: later commands look for it there. A relative path is below
/// the root.
pub(crate) fn name_group(spec: &mut Value, id: &str, systemd: bool) {
    let path = &mut spec["linux"]["cgroupsPath"];
    match (path.as_str().unwrap_or_default(), systemd) {
        ("", true) => *path = json!(format!(":oxlet:{id}")),
        ("", false) => *path = json!(format!("/{id}")),
        (relative, false) if !relative.starts_with('/') => *path = json!(format!("/{relative}")),
        _ => {}
    }
}

/// A container's cgroup.
pub(crate) enum Group {
    V1(v1::Groups),
    V2 {
        manager: AnyCgroupManager,
        /// Below the root; `None` with systemd, which decides.
        path: Option<PathBuf>,
    },
}

impl Group {
    /// The group of a spec's `linux.cgroupsPath`.
    pub(crate) fn new(path: &Path, id: &str, systemd: bool) -> Result<Group, AnyError> {
        if !is_unified() {
            let root = Path::new(DEFAULT_CGROUP_ROOT);
            return Ok(Group::V1(v1::Groups::new(root, path)?));
        }
        let config = CgroupConfig {
            cgroup_path: path.to_owned(),
            systemd_cgroup: systemd,
            container_name: id.to_owned(),
        };
        Ok(Group::V2 {
            manager: create_cgroup_manager(config)?,
            path: (!systemd).then(|| path.to_owned()),
        })
    }

    /// Makes the group with its limits, and returns its folder where a process can be made in it: on version 2. systemd makes
    /// none without a process.
    pub(crate) fn make(&self, resources: &LinuxResources) -> Result<Option<OwnedFd>, AnyError> {
        match self {
            Group::V1(groups) => {
                groups.make()?;
                groups.limit(resources)?;
                Ok(None)
            }
            Group::V2 {
                manager,
                path: Some(path),
            } => {
                let own = folder(path);
                let failed = |error| CgroupError::Make(path.clone(), error);
                fs::create_dir_all(&own).map_err(failed)?;
                enable_controllers(path);
                manager.apply(&options(resources))?;
                Ok(Some(open_folder(&own).map_err(failed)?))
            }
            Group::V2 { path: None, .. } => Ok(None),
        }
    }

    /// Moves a process into the group that was made; has systemd make it around the process, with its limits.
    pub(crate) fn add(&self, pid: i32, resources: &LinuxResources) -> Result<(), AnyError> {
        match self {
            Group::V1(groups) => Ok(groups.add(pid)?),
            Group::V2 {
                path: Some(path), ..
            } => Ok(place(path, pid)?),
            Group::V2 {
                manager,
                path: None,
            } => {
                manager.add_task(nix_of_libcgroups::unistd::Pid::from_raw(pid))?;
                Ok(manager.apply(&options(resources))?)
            }
        }
    }

    /// Changes limits.
    pub(crate) fn limit(&self, resources: &LinuxResources) -> Result<(), AnyError> {
        match self {
            Group::V1(groups) => Ok(groups.limit(resources)?),
            Group::V2 { manager, .. } => Ok(manager.apply(&options(resources))?),
        }
    }

    /// The processes of the group of a container and of those below it.
    pub(crate) fn processes(&self, record: &Record) -> Result<Vec<i32>, AnyError> {
        let found = match self {
            Group::V1(groups) => groups
                .folders()
                .next()
                .map_or(Ok(Vec::new()), removal::processes),
            Group::V2 { .. } => removal::processes(&folder(own_group(record)?)),
        };
        Ok(found?)
    }
}

/// Moves a process that is run in a container, whose init is `init`, into the container's group.
///
/// On version 2 a group whose controllers are handed down to groups below takes no process (EBUSY), as after systemd or a
/// container engine has begun in the container: then it is the group that the init has moved to, as with runc.
pub(crate) fn join(group: &Group, record: &Record, pid: i32) -> Result<(), AnyError> {
    let own = match group {
        Group::V1(groups) => return Ok(groups.add(pid)?),
        Group::V2 { .. } => own_group(record)?,
    };
    let Err(error) = place(own, pid) else {
        return Ok(());
    };
    match instead(own, of_process(record.pid)) {
        Some(group) => Ok(place(&group, pid)?),
        None => Err(error.into()),
    }
}

/// Opens a container's group of version 2, for a process that is made in it; `None` if there is none.
pub(crate) fn open(record: &Record) -> Option<OwnedFd> {
    let group = is_unified().then(|| own_group(record).ok()).flatten()?;
    open_folder(&folder(group)).ok()
}

fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(folder, flags, Mode::empty())?)
}

fn place(group: &Path, pid: i32) -> Result<(), CgroupError> {
    fs::write(folder(group).join("cgroup.procs"), pid.to_string())
        .map_err(|error| CgroupError::Join(group.to_owned(), error))
}

/// Returns the group that is joined where a container's own takes no process: its init's, if that is below.
fn instead(own: &Path, of_init: Option<PathBuf>) -> Option<PathBuf> {
    of_init.filter(|group| group.starts_with(own) && group != own)
}

/// Says as a file of v2 what libcgroups takes for nothing: as much swap with memory as memory alone is no swap.
pub(crate) fn complete(resources: &mut Value) {
    let memory = &resources["memory"];
    let (limit, swap) = (memory["limit"].as_i64(), memory["swap"].as_i64());
    if limit.is_some_and(|limit| limit > 0) && limit == swap {
        let unified = &mut resources["unified"];
        if unified.is_null() {
            *unified = json!({});
        }
        if unified[SWAP_MAX].is_null() {
            unified[SWAP_MAX] = json!("0");
        }
    }
}

/// Compiles device rules, where this machine's cgroups are v2 and there are any.
pub(crate) fn device_filter(rules: &Value) -> Result<Option<DeviceFilter>, AnyError> {
    if rules.is_null() || !is_unified() {
        return Ok(None);
    }
    let rules: Vec<DeviceRule> =
        serde_json::from_value(rules.clone()).map_err(CgroupError::Rules)?;
    Ok(Some(DeviceFilter::compile(&rules)?))
}

/// Refuses systemd's driver where libcgroups has none.
pub(crate) fn check_driver(systemd: bool) -> Result<(), CgroupError> {
    if systemd && !is_unified() {
        return Err(CgroupError::Systemd);
    }
    Ok(())
}

/// Returns all limits, to be written to files, and leaves those that become properties of a systemd unit: libcgroups
/// reads `cpu.weight` as shares and knows numbers alone.
pub(crate) fn take_files(
    resources: &mut Value,
    systemd: bool,
) -> Result<Option<LinuxResources>, CgroupError> {
    if !systemd || resources.is_null() {
        return Ok(None);
    }
    let all = serde_json::from_value(resources.clone()).map_err(CgroupError::Resources)?;
    if let Some(unified) = resources["unified"].as_object_mut() {
        unified.retain(|name, value| {
            let is_number = value
                .as_str()
                .is_some_and(|text| text.parse::<u64>().is_ok());
            is_number && (name.starts_with("memory.") || name == "pids.max")
        });
    }
    Ok(Some(all))
}

/// Says the quota that a group has, where an update is about its CPU and doesn't: libcgroups would lift it.
pub(crate) fn keep_quota(record: &Record, resources: &mut Value) {
    let cpu = &resources["cpu"];
    let Some(group) = record.cgroup.as_ref().filter(|_| !cpu.is_null()) else {
        return;
    };
    let text = fs::read_to_string(folder(group).join("cpu.max")).unwrap_or_default();
    let mut now = text.split_whitespace().map(str::parse::<u64>);
    if let (true, Some(Ok(quota)), Some(Ok(period))) =
        (cpu["quota"].is_null(), now.next(), now.next())
    {
        resources["cpu"]["quota"] = json!(quota);
        resources["cpu"]["period"] = json!(period);
    }
}

/// Returns the cgroup of version 2 of a process, below the root.
pub(crate) fn of_process(pid: i32) -> Option<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    is_unified().then(|| PathBuf::from(path))
}

/// Does to a container's group what libcgroups has left: files, then devices.
pub(crate) fn finish(
    record: &Record,
    devices: Option<&DeviceFilter>,
    files: Option<&LinuxResources>,
) -> Result<(), AnyError> {
    if devices.is_none() && files.is_none() {
        return Ok(());
    }
    let group = own_group(record)?;
    if let Some(resources) = files {
        enable_controllers(group);
        let root = PathBuf::from(DEFAULT_CGROUP_ROOT);
        Manager::new(root, group.to_owned())?.apply(&options(resources))?;
    }
    if let Some(devices) = devices {
        raise_memory_lock();
        kernel_filters::attach(devices, &folder(group))?;
    }
    Ok(())
}

/// Returns a container's group. The root is none: a filter there would be the whole machine's.
fn own_group(record: &Record) -> Result<&Path, CgroupError> {
    let group = record.cgroup.as_deref();
    group
        .filter(|group| *group != Path::new("/"))
        .ok_or(CgroupError::Group(record.pid))
}

/// Ends what is in a container's group and takes it away. A group that is gone is no error. `known` is the group where
/// systemd has decided on it.
pub(crate) fn remove(
    path: &Path,
    id: &str,
    systemd: bool,
    known: Option<&Path>,
) -> Result<(), AnyError> {
    let root = Path::new(DEFAULT_CGROUP_ROOT);
    if !systemd {
        return Ok(removal::remove(root, path)?);
    }
    let Group::V2 { manager, .. } = Group::new(path, id, true)? else {
        return Err(CgroupError::Systemd.into());
    };
    // systemd would ask the processes to end, and wait for a minute and a half.
    match known {
        Some(group) => removal::kill(root, group)?,
        // What was cut off while it was made has no processes but its init.
        None => manager
            .get_all_pids()
            .unwrap_or_default()
            .into_iter()
            .for_each(kill),
    }
    manager.remove()?;
    // It leaves groups that a container has nested deeper than a path can name.
    Ok(known.map_or(Ok(()), |group| removal::remove(root, group))?)
}

/// Thaws a container's cgroup on v1, where a container can freeze itself, so that killed processes die.
pub(crate) fn thaw(path: &Path) -> io::Result<()> {
    removal::thaw(Path::new(DEFAULT_CGROUP_ROOT), path)
}

/// Kills a process, which may have ended by itself.
fn kill(pid: nix_of_libcgroups::unistd::Pid) {
    use nix::sys::signal::{Signal, kill};
    let _ = kill(nix::unistd::Pid::from_raw(pid.as_raw()), Signal::SIGKILL);
}

/// What is applied to a group.
fn options(resources: &LinuxResources) -> ControllerOpt<'_> {
    ControllerOpt {
        resources,
        disable_oom_killer: false,
        oom_score_adj: None,
        freezer_state: None,
    }
}

/// Hands the controllers that systemd leaves alone (hugetlb) down to a group. One that cannot be had is told when a
/// limit of it is written.
fn enable_controllers(group: &Path) {
    let root = Path::new(DEFAULT_CGROUP_ROOT);
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    let above: Vec<&Path> = group.ancestors().skip(1).collect();
    for parent in above.into_iter().rev() {
        for controller in controllers.split_whitespace() {
            let file = folder(parent).join("cgroup.subtree_control");
            drop(fs::write(file, format!("+{controller}")));
        }
    }
}

/// The folder of a group of version 2.
pub(crate) fn folder(path: &Path) -> PathBuf {
    Path::new(DEFAULT_CGROUP_ROOT).join(path.strip_prefix("/").unwrap_or(path))
}

/// Kernels before 5.11 count programs as locked memory. Where the limit cannot be raised, loading says why.
fn raise_memory_lock() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let none = Rlimit {
        current: None,
        maximum: None,
    };
    let _ = setrlimit(Resource::Memlock, none);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(memory: Value) -> Value {
        let mut resources = json!({ "memory": memory });
        complete(&mut resources);
        resources["unified"][SWAP_MAX].clone()
    }

    #[test]
    fn as_much_swap_with_memory_as_memory_alone_is_no_swap() {
        assert_eq!(completed(json!({"limit": 5, "swap": 5})), "0");
        assert_eq!(completed(json!({"limit": 5, "swap": 6})), Value::Null);
        assert_eq!(completed(json!({"limit": -1, "swap": -1})), Value::Null);
        assert_eq!(completed(json!({})), Value::Null);
        let mut said = json!({"memory": {"limit": 5, "swap": 5}, "unified": {SWAP_MAX: "7"}});
        complete(&mut said);
        assert_eq!(said["unified"][SWAP_MAX], "7");
    }

    #[test]
    fn properties_are_numbers_and_files_are_everything() {
        let unified = json!({"memory.high": "7", "memory.max": "max", "cpu.weight": "5"});
        let mut resources = json!({ "unified": unified });
        assert!(take_files(&mut resources.clone(), false).unwrap().is_none());
        let files = take_files(&mut resources, true).unwrap().unwrap();
        assert_eq!(files.unified().as_ref().unwrap().len(), 3);
        assert_eq!(resources["unified"], json!({"memory.high": "7"}));
    }

    #[test]
    fn a_group_that_takes_no_process_is_replaced_by_the_inits_below_it() {
        let of_init = |path: &str| instead(Path::new("/pods/a"), Some(path.into()));
        let below = Path::new("/pods/a/init.scope");
        assert_eq!(of_init("/pods/a/init.scope").as_deref(), Some(below));
        // Not one of another container, and not the same again.
        for other in ["/pods/a", "/pods/ab", "/pods", "/../pods/a/x"] {
            assert_eq!(of_init(other), None, "{other}");
        }
        assert_eq!(instead(Path::new("/pods/a"), None), None);
    }

    #[test]
    fn the_root_is_no_containers_group() {
        let group = |cgroup: Option<&str>| {
            let record = Record {
                bundle: String::new(),
                pid: 7,
                start_time: 0,
                cgroup: cgroup.map(PathBuf::from),
                starts_by_fifo: true,
            };
            own_group(&record).map(Path::to_owned)
        };
        assert!(matches!(group(None), Err(CgroupError::Group(7))));
        assert!(matches!(group(Some("/")), Err(CgroupError::Group(7))));
        assert_eq!(group(Some("/pods/a")).unwrap(), Path::new("/pods/a"));
    }

    #[test]
    fn a_group_is_a_folder_of_the_one_hierarchy() {
        let expected = Path::new("/sys/fs/cgroup/pods/a");
        assert_eq!(folder(Path::new("/pods/a")), expected);
        assert_eq!(folder(Path::new("pods/a")), expected);
    }
}
