//! The cgroup of a pod's monitor: a leaf in the pod's.

use std::fs;
use std::path::{Path, PathBuf};

use crate::record::SandboxRecord;
use crate::spec::CgroupDriver;

const LEAF: &str = "oxlet-monitor";
const ROOT: &str = "/sys/fs/cgroup";

/// Where the agent wants what outlives a confined plugin: beside the plugin's own cgroup, without its limits.
const CHILDREN: &str = "OXLET_CHILDREN_CGROUP";

/// Returns the monitor's cgroup. Systemd's slices are systemd's to fill: there it is the one that the agent names for it, and
/// without one the plugin's.
pub(crate) fn of_monitor(sandbox: &SandboxRecord, driver: CgroupDriver) -> Option<PathBuf> {
    if driver == CgroupDriver::Systemd {
        return std::env::var_os(CHILDREN).map(PathBuf::from);
    }
    let linux = sandbox.config.0.linux.as_ref();
    let parent = linux
        .map(|linux| linux.cgroup_parent.trim_end_matches('/'))
        .unwrap_or_default();
    Some(match parent {
        "" => PathBuf::from(format!("/oxlet/monitor-{}", &sandbox.id)),
        parent => PathBuf::from(parent).join(LEAF),
    })
}

/// Removes the monitor's cgroup from every hierarchy, and the runtime's own parent when it is empty. Blocks.
pub(crate) fn remove(path: &Path) {
    let relative = path.strip_prefix("/").unwrap_or(path);
    let mut hierarchies = vec![PathBuf::from(ROOT)];
    let entries = fs::read_dir(ROOT).into_iter().flatten().flatten();
    hierarchies.extend(
        entries
            .map(|entry| entry.path())
            .filter(|path| path.is_dir()),
    );
    for hierarchy in hierarchies {
        let folder = hierarchy.join(relative);
        // What isn't there, and what still holds a process, stays: the pod's cgroup is the agent's to empty.
        if let Err(error) = fs::remove_dir(&folder)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::debug!(cgroup = %folder.display(), %error, "a monitor's cgroup stays");
        }
    }
}
