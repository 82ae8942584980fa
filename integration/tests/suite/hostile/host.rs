//! The node outside of its pods: what no pod may change, whatever it tries.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use integration::wait_until;

use crate::suite::node_rig::{CONVERGENCE_TIMEOUT, NodeRig};

/// A folder of the node that an image's links lead to.
pub(super) const OUTSIDE: &str = "/tmp/oxlet-outside";

/// Files of the node, and the mounts and cgroups of its runtime. What other tests make at the same time is not in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HostState {
    /// Mode, owners, device number and size of each name, by its path.
    files: BTreeMap<PathBuf, [u64; 5]>,
    mounts: BTreeSet<String>,
    cgroups: BTreeSet<PathBuf>,
}

impl HostState {
    pub(super) fn read(rig: &NodeRig) -> HostState {
        let folders = ["/etc", "/dev", OUTSIDE, "/run/systemd", "/srv"];
        HostState {
            files: folders
                .iter()
                .flat_map(|folder| files(Path::new(folder)))
                .collect(),
            mounts: mounts(rig),
            cgroups: cgroups(rig),
        }
    }

    /// Waits until the node is as it was: the runtime removes what a pod leaves in the background.
    pub(super) async fn until_restored(&self, rig: &NodeRig) {
        let is_restored = async || HostState::read(rig) == *self;
        let waited = wait_until(CONVERGENCE_TIMEOUT, "the node is as it was", is_restored).await;
        if waited.is_err() {
            assert_eq!(HostState::read(rig), *self);
        }
    }
}

fn files(folder: &Path) -> BTreeMap<PathBuf, [u64; 5]> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let facts = entry.metadata().ok()?;
            let owners = [facts.uid().into(), facts.gid().into()];
            let mode = facts.mode().into();
            // The size of a folder grows with the names that others make in it.
            let size = if facts.is_dir() { 0 } else { facts.size() };
            let described = [mode, owners[0], owners[1], facts.rdev(), size];
            Some((entry.path(), described))
        })
        .collect()
}

/// Where something is mounted below the folders of the node and its runtime. The agent's own folder is a mount from its
/// start on.
fn mounts(rig: &NodeRig) -> BTreeSet<String> {
    let networks = rig.networks();
    let own = [Some(rig.node.dir()), networks.parent()];
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|point| Path::new(point) != rig.node.root())
        .filter(|point| {
            own.iter()
                .flatten()
                .any(|own| Path::new(point).starts_with(own))
        })
        .map(str::to_owned)
        .collect()
}

/// The cgroups of the node's pods, and what is in them, in every hierarchy.
fn cgroups(rig: &NodeRig) -> BTreeSet<PathBuf> {
    let output = std::process::Command::new("find")
        .args(["/sys/fs/cgroup", "-type", "d", "-path"])
        .arg(format!("*{}/*/pod*", rig.cgroup()))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(PathBuf::from).collect()
}
