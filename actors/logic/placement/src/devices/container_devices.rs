//! What a container gets with its devices: the answers of several plugins put together.
//!
//! Mirrors upstream's `deviceRunContainerOptions` of devicemanager/pod_devices.go at v1.36.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// A plugin's answer to Allocate for one container (`ContainerAllocateResponse`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocateAnswer {
    /// Environment variables by name.
    pub envs: BTreeMap<String, String>,
    pub mounts: Vec<DeviceMount>,
    pub nodes: Vec<DeviceNode>,
    pub annotations: BTreeMap<String, String>,
    /// Fully qualified names of CDI devices (`vendor.com/class=name`).
    pub cdi_devices: Vec<String>,
}

/// A folder or file of the host that the container sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceMount {
    pub container_path: String,
    pub host_path: String,
    pub read_only: bool,
}

/// A device node of the host that the container may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceNode {
    pub container_path: String,
    pub host_path: String,
    /// Of `r`, `w` and `m` (make nodes), as cgroups have it.
    pub permissions: String,
}

/// What a container gets with all its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerDevices {
    /// No two of a name.
    pub envs: BTreeMap<String, String>,
    /// No two at one path of the container.
    pub mounts: Vec<DeviceMount>,
    /// No two at one path of the container.
    pub nodes: Vec<DeviceNode>,
    /// No two of a name.
    pub annotations: BTreeMap<String, String>,
    /// No name twice.
    pub cdi_devices: Vec<String>,
    /// Where answers contradict each other; what came first holds.
    pub conflicts: Vec<String>,
}

impl ContainerDevices {
    /// Puts the answers together, in the order given.
    pub(super) fn of<'a>(answers: impl IntoIterator<Item = &'a AllocateAnswer>) -> Self {
        let mut all = Self::default();
        let (mut mounted, mut made) = (BTreeMap::new(), BTreeMap::new());
        let mut cdi_names = BTreeSet::new();
        for answer in answers {
            let conflicts = &mut all.conflicts;
            for (name, value) in &answer.envs {
                let what = "environment variable";
                insert(&mut all.envs, (name, value), what, conflicts);
            }
            for (name, value) in &answer.annotations {
                let what = "annotation";
                insert(&mut all.annotations, (name, value), what, conflicts);
            }
            for node in &answer.nodes {
                let paths = (&node.container_path, &node.host_path);
                if insert(&mut made, paths, "device", conflicts) {
                    all.nodes.push(node.clone());
                }
            }
            for mount in &answer.mounts {
                let paths = (&mount.container_path, &mount.host_path);
                if insert(&mut mounted, paths, "mount", conflicts) {
                    all.mounts.push(mount.clone());
                }
            }
            let names = answer.cdi_devices.iter();
            let new = names.filter(|name| cdi_names.insert(*name));
            all.cdi_devices.extend(new.cloned());
        }
        all
    }
}

/// Inserts what is not there yet; what is there already is left, and a contradiction to it noted.
fn insert(
    there: &mut BTreeMap<String, String>,
    (key, value): (&String, &String),
    what: &str,
    conflicts: &mut Vec<String>,
) -> bool {
    match there.entry(key.clone()) {
        Entry::Vacant(free) => {
            free.insert(value.clone());
            true
        }
        Entry::Occupied(taken) => {
            if taken.get() != value {
                let first = taken.get();
                conflicts.push(format!(
                    "{what} {key:?} is {first:?}, and {value:?} as well"
                ));
            }
            false
        }
    }
}
