//! What libcgroups leaves out on cgroup v2: device rules, and a limit of no swap at all.

use std::path::{Path, PathBuf};

use kernel_filters::{DeviceFilter, DeviceRule};
use libcgroups::common::{CgroupSetup, DEFAULT_CGROUP_ROOT, get_cgroup_setup};
use libcontainer::container::Container;
use serde_json::{Value, json};

use crate::commands::AnyError;

/// The swap that a group of version 2 may use, in bytes; memory is not in it.
const SWAP_MAX: &str = "memory.swap.max";

/// Why a spec's cgroup cannot be what it says.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CgroupError {
    #[error("linux.resources.devices")]
    Rules(#[source] serde_json::Error),
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

/// Attaches a filter to a container's group.
pub(crate) fn attach(container: &Container, filter: &DeviceFilter) -> Result<(), AnyError> {
    raise_memory_lock();
    let group = folder(&container.spec()?.cgroup_path);
    Ok(kernel_filters::attach(filter, &group)?)
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
    fn a_group_is_a_folder_of_the_one_hierarchy() {
        let expected = Path::new("/sys/fs/cgroup/pods/a");
        assert_eq!(folder(Path::new("/pods/a")), expected);
        assert_eq!(folder(Path::new("pods/a")), expected);
    }
}
