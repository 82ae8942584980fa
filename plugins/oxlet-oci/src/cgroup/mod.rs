//! What libcgroups leaves out on cgroup v2: device rules, a limit of no swap at all, and with systemd's driver the files
//! that systemd has no property for.

pub(crate) mod mounts;
pub(crate) mod removal;

use std::path::{Path, PathBuf};
use std::{fs, io};

use kernel_filters::{DeviceFilter, DeviceRule};
use libcgroups::common::{
    AnyCgroupManager, AnyManagerError, CgroupManager, CgroupSetup, ControllerOpt,
    DEFAULT_CGROUP_ROOT, get_cgroup_setup,
};
use libcgroups::systemd::manager::SystemdManagerError;
use libcgroups::v2::manager::Manager;
use libcontainer::oci_spec::runtime::LinuxResources;
use serde_json::{Value, json};

use crate::error::AnyError;
use crate::record::Record;

/// The swap that a group of version 2 may use, in bytes; memory is not in it.
const SWAP_MAX: &str = "memory.swap.max";

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
    MountPoints(#[source] AnyError),
    #[error("cannot read /proc/self/cgroup")]
    Own(#[source] io::Error),
    #[error("--systemd-cgroup on cgroup v1 is not supported by this runtime")]
    Systemd,
}

/// Whether this machine's cgroups are v2.
pub(crate) fn is_unified() -> bool {
    matches!(get_cgroup_setup(), Ok(CgroupSetup::Unified))
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

/// Whether systemd has taken a group away, as it does with the last process of a scope.
pub(crate) fn is_gone(manager: &AnyCgroupManager) -> bool {
    match manager.get_all_pids() {
        Err(AnyManagerError::Systemd(SystemdManagerError::WrappedIo(error))) => {
            error.inner().kind() == io::ErrorKind::NotFound
        }
        Ok(_) | Err(_) => false,
    }
}

/// What is applied to a group.
pub(crate) fn options(resources: &LinuxResources) -> ControllerOpt<'_> {
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

fn folder(path: &Path) -> PathBuf {
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
    fn the_root_is_no_containers_group() {
        let group = |cgroup: Option<&str>| {
            let record = Record {
                bundle: String::new(),
                pid: 7,
                start_time: 0,
                cgroup: cgroup.map(PathBuf::from),
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
