//! The `linux` section: namespaces, devices, resources, hidden paths, cgroup.

use std::collections::BTreeMap;

use proto::cri::{LinuxContainerResources, PodSandboxConfig};
use serde_json::{Map, Value, json};

use super::{CgroupDriver, DeviceNode, HostFacts, SpecError, SpecInput};

/// Hidden and read-only paths of a container whose configuration has no security context at all; the agent
/// always sends its own lists.
const MASKED: [&str; 10] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/sys/firmware",
    "/proc/scsi",
];
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

pub(super) fn section(
    input: SpecInput<'_>,
    propagation: Option<&'static str>,
) -> Result<Value, SpecError> {
    let (masked, read_only) = hidden_paths(input);
    let asked = input
        .config
        .linux
        .as_ref()
        .and_then(|linux| linux.resources.as_ref());
    let mut limits = resources(asked.unwrap_or(&Default::default()), input.host)?;
    limits["devices"] = device_rules(input).into();
    let mut linux = json!({
        "namespaces": namespaces(input),
        "devices": input.devices.iter().map(device).collect::<Vec<_>>(),
        "resources": limits,
        "cgroupsPath": cgroups_path(input.sandbox, input.driver, input.id),
        "maskedPaths": masked,
        "readonlyPaths": read_only,
    });
    if let Some(user) = &input.namespaces.user {
        user.write(&mut linux);
    }
    if let Some(propagation) = propagation {
        linux["rootfsPropagation"] = propagation.into();
    }
    Ok(linux)
}

fn hidden_paths(input: SpecInput<'_>) -> (Vec<String>, Vec<String>) {
    match input.security() {
        Some(context) if context.privileged => (Vec::new(), Vec::new()),
        Some(context) => (context.masked_paths.clone(), context.readonly_paths.clone()),
        None => (
            MASKED.map(str::to_owned).into(),
            READ_ONLY.map(str::to_owned).into(),
        ),
    }
}

fn namespaces(input: SpecInput<'_>) -> Vec<Value> {
    let paths = input.namespaces;
    let mut all = vec![json!({ "type": "mount" })];
    if let Some(user) = &paths.user {
        all.push(json!({ "type": "user", "path": user.path }));
    }
    let mut joined = |kind: &str, path: &Option<String>| {
        if let Some(path) = path {
            all.push(json!({ "type": kind, "path": path }));
        }
    };
    joined("network", &paths.network);
    joined("ipc", &paths.ipc);
    joined("uts", &paths.uts);
    joined("pid", &paths.pid);
    if paths.pid.is_none() && paths.own_pid {
        all.push(json!({ "type": "pid" }));
    }
    // On v1 it would hide nothing, and a privileged container manages the node's groups.
    if input.host.unified && !input.privileged() {
        all.push(json!({ "type": "cgroup" }));
    }
    all
}

fn device(node: &DeviceNode) -> Value {
    json!({
        "path": node.path,
        "type": node.kind.to_string(),
        "major": node.major,
        "minor": node.minor,
        "fileMode": node.mode,
        "uid": node.uid,
        "gid": node.gid,
    })
}

fn device_rules(input: SpecInput<'_>) -> Vec<Value> {
    if input.privileged() {
        return vec![json!({ "allow": true, "access": "rwm" })];
    }
    let none = json!({ "allow": false, "access": "rwm" });
    let of = |node: &DeviceNode| {
        json!({
            "allow": true,
            "type": node.kind.to_string(),
            "major": node.major,
            "minor": node.minor,
            "access": node.permissions,
        })
    };
    [none]
        .into_iter()
        .chain(input.devices.iter().map(of))
        .collect()
}

/// Returns the cgroup of a container of this id: below the pod's.
pub(crate) fn cgroups_path(sandbox: &PodSandboxConfig, driver: CgroupDriver, id: &str) -> String {
    let parent = sandbox
        .linux
        .as_ref()
        .map(|linux| linux.cgroup_parent.trim_end_matches('/'))
        .unwrap_or_default();
    match driver {
        CgroupDriver::Cgroupfs if parent.is_empty() => format!("/oxlet/{id}"),
        CgroupDriver::Cgroupfs => format!("{parent}/{id}"),
        CgroupDriver::Systemd => {
            let slice = parent.rsplit('/').next().unwrap_or_default();
            format!("{slice}:oxlet:{id}")
        }
    }
}

/// Returns the `resources` section without devices. 0 means: not said.
pub(crate) fn resources(
    asked: &LinuxContainerResources,
    host: &HostFacts,
) -> Result<Value, SpecError> {
    let mut all = Map::new();
    let said = |pairs: &[(&str, i64)]| -> Map<String, Value> {
        let said = pairs.iter().filter(|(_, value)| *value != 0);
        said.map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect()
    };
    let mut cpu = said(&[
        ("shares", asked.cpu_shares),
        ("quota", asked.cpu_quota),
        ("period", asked.cpu_period),
    ]);
    for (name, set) in [("cpus", &asked.cpuset_cpus), ("mems", &asked.cpuset_mems)] {
        if !set.is_empty() {
            cpu.insert(name.to_owned(), set.clone().into());
        }
    }
    all.insert("cpu".to_owned(), cpu.into());
    let memory = said(&[
        ("limit", asked.memory_limit_in_bytes),
        ("swap", swap(asked, host)?),
    ]);
    all.insert("memory".to_owned(), memory.into());
    let pages = hugepages(asked, host)?;
    if !pages.is_empty() {
        all.insert("hugepageLimits".to_owned(), pages.into());
    }
    if !asked.unified.is_empty() {
        all.insert("unified".to_owned(), unified(asked, host)?);
    }
    Ok(all.into())
}

/// Memory and swap together; without a word of it a container with a limit doesn't swap.
fn swap(asked: &LinuxContainerResources, host: &HostFacts) -> Result<i64, SpecError> {
    match asked.memory_swap_limit_in_bytes {
        0 if host.swap_limit => Ok(asked.memory_limit_in_bytes),
        0 => Ok(0),
        // The same as memory alone is what a node that can't limit swap is told as well.
        limit if !host.swap_limit && limit <= asked.memory_limit_in_bytes => Ok(0),
        limit if !host.swap_limit => Err(SpecError::Unenforceable {
            field: "memory_swap_limit_in_bytes",
            value: limit.to_string(),
            why: "this node's cgroups don't count swap",
        }),
        limit => Ok(limit),
    }
}

fn hugepages(asked: &LinuxContainerResources, host: &HostFacts) -> Result<Vec<Value>, SpecError> {
    let limits = asked.hugepage_limits.iter();
    if !host.hugetlb {
        return match limits.clone().find(|limit| limit.limit > 0) {
            None => Ok(Vec::new()),
            Some(limit) => Err(SpecError::Unenforceable {
                field: "hugepage_limits",
                value: limit.page_size.clone(),
                why: "this node has no hugetlb controller",
            }),
        };
    }
    Ok(limits
        .map(|limit| json!({ "pageSize": limit.page_size, "limit": limit.limit }))
        .collect())
}

fn unified(asked: &LinuxContainerResources, host: &HostFacts) -> Result<Value, SpecError> {
    if !host.unified {
        return Err(SpecError::Unenforceable {
            field: "unified",
            value: format!("{:?}", asked.unified),
            why: "this node's cgroups are of version 1",
        });
    }
    let sorted: BTreeMap<_, _> = asked.unified.iter().collect();
    Ok(json!(sorted))
}

/// Returns what an update of a container changes: the `resources` document of the OCI command line.
pub(crate) fn update_resources(
    before: &LinuxContainerResources,
    asked: &LinuxContainerResources,
    host: &HostFacts,
) -> Result<(LinuxContainerResources, Value), SpecError> {
    let mut merged = before.clone();
    let numbers = [
        (&mut merged.cpu_period, asked.cpu_period),
        (&mut merged.cpu_quota, asked.cpu_quota),
        (&mut merged.cpu_shares, asked.cpu_shares),
        (
            &mut merged.memory_limit_in_bytes,
            asked.memory_limit_in_bytes,
        ),
        (
            &mut merged.memory_swap_limit_in_bytes,
            asked.memory_swap_limit_in_bytes,
        ),
    ];
    for (field, value) in numbers.into_iter().filter(|(_, value)| *value != 0) {
        *field = value;
    }
    for (field, value) in [
        (&mut merged.cpuset_cpus, &asked.cpuset_cpus),
        (&mut merged.cpuset_mems, &asked.cpuset_mems),
    ] {
        if !value.is_empty() {
            field.clone_from(value);
        }
    }
    let pages = asked.hugepage_limits.iter();
    for limit in pages {
        let same = |old: &proto::cri::HugepageLimit| old.page_size != limit.page_size;
        merged.hugepage_limits.retain(same);
        merged.hugepage_limits.push(limit.clone());
    }
    merged.unified.extend(asked.unified.clone());
    let document = resources(&merged, host)?;
    Ok((merged, document))
}
