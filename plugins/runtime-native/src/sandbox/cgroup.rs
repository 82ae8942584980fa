//! The cgroup of a pod's monitor: a leaf in the pod's, or a scope in its slice.

use std::io;
use std::path::{Path, PathBuf};

use monitor::Place;

use crate::cgroups;
use crate::record::{SandboxRecord, new_id};
use crate::spec::CgroupDriver;

const LEAF: &str = "oxlet-monitor";
/// Where a pod without a parent has its scopes, as with runc.
const NO_SLICE: &str = "system.slice";

/// Returns where the monitor is put. Its scope's name is a new one each time: that of a monitor that was killed may not
/// be gone yet.
pub(crate) fn of_monitor(sandbox: &SandboxRecord, driver: CgroupDriver) -> io::Result<Place> {
    match driver {
        CgroupDriver::Cgroupfs => Ok(Place::Cgroup(leaf(sandbox))),
        CgroupDriver::Systemd => {
            let slice = parent(sandbox).rsplit('/').next().unwrap_or_default();
            let suffix = new_id()?;
            Ok(Place::Scope {
                slice: if slice.is_empty() { NO_SLICE } else { slice }.to_owned(),
                unit: format!("{LEAF}-{}-{}.scope", &sandbox.id[..13], &suffix[..13]),
            })
        }
    }
}

/// Removes the monitor's cgroup, after its end; a scope is systemd's to remove. Blocks.
pub(crate) fn remove(sandbox: &SandboxRecord, driver: CgroupDriver) {
    match driver {
        CgroupDriver::Cgroupfs => remove_leaf(&leaf(sandbox)),
        CgroupDriver::Systemd => {}
    }
}

fn leaf(sandbox: &SandboxRecord) -> PathBuf {
    match parent(sandbox) {
        "" => PathBuf::from(format!("/oxlet/monitor-{}", &sandbox.id)),
        parent => PathBuf::from(parent).join(LEAF),
    }
}

fn parent(sandbox: &SandboxRecord) -> &str {
    let linux = sandbox.config.0.linux.as_ref();
    linux
        .map(|linux| linux.cgroup_parent.trim_end_matches('/'))
        .unwrap_or_default()
}

/// Removes the monitor's cgroup from every hierarchy, with those that a container may have made in it. What still holds a
/// process stays: the pod's cgroup is the agent's to empty. Blocks.
fn remove_leaf(path: &Path) {
    let relative = path.strip_prefix("/").unwrap_or(path);
    for hierarchy in cgroups::hierarchies() {
        cgroups::remove(&hierarchy.join(relative));
    }
}
