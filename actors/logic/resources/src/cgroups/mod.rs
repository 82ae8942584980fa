//! The tree of cgroups: names and limits of the pods' root, its classes and the pods, and how they are written.
//!
//! Mirrors upstream's cm/cgroup_manager_linux.go, cm/pod_container_manager_linux.go, cm/qos_container_manager_linux.go,
//! cm/node_container_manager_linux.go and cm/helpers_linux.go at v1.36.

pub mod burst;
mod files;
mod hierarchy;
mod limits;
mod slices;
pub mod tree;

use std::fmt;

pub use files::{CgroupWrite, writes};
pub use hierarchy::{CONTROLLERS, Hierarchy};
use k8s_openapi::api::core::v1::Pod;
pub use limits::{CgroupLimits, CpuQuota, all_limited, pod_limits};
use logic_api::pod::PodView;
use logic_api::types::PodUid;
use serde::{Deserialize, Serialize};
pub use slices::{
    PropertyValue, SliceProperties, made_with, rounded, slice_name, slice_properties,
};

use crate::qos::{Qos, pod_qos};

/// Before the UID in the name of a pod's cgroup.
const POD_PREFIX: &str = "pod";

/// How cgroups are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupDriver {
    Cgroupfs,
    /// systemd makes the groups, as slices.
    Systemd,
}

/// How pods' cgroups are made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupPolicy {
    pub driver: CgroupDriver,
    /// Below which cgroup the pods' lie; `/` or empty for the top.
    pub root: String,
    /// The most processes and threads of a pod; none for no limit.
    pub pids: Option<u64>,
}

/// The parts of a cgroup's name, from the top.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CgroupName(Vec<String>);

/// As Go prints a list of its texts: `["kubepods" "burstable"]`, which upstream's messages have.
impl fmt::Display for CgroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.0.iter().map(|part| format!("{part:?}")).collect();
        write!(f, "[{}]", parts.join(" "))
    }
}

impl CgroupName {
    /// Reads a name as it stands in the file system.
    pub fn parse(path: &str) -> Self {
        let parts = path.split('/').filter(|part| !part.is_empty());
        Self(parts.map(str::to_owned).collect())
    }

    /// Reads a name as the driver has it: the last part of a slice's path tells all of its ancestors.
    pub fn parse_as(driver: CgroupDriver, path: &str) -> Self {
        match driver {
            CgroupDriver::Cgroupfs => Self::parse(path),
            CgroupDriver::Systemd => {
                let slice = path
                    .trim_end_matches('/')
                    .rsplit('/')
                    .next()
                    .unwrap_or_default();
                let parts = slice.trim_end_matches(".slice").split('-');
                let parts = parts.filter(|part| !part.is_empty());
                Self(parts.map(|part| part.replace('_', "-")).collect())
            }
        }
    }

    /// The name of a group in this one.
    pub fn child(&self, part: &str) -> Self {
        let parts = self.0.iter().map(String::as_str).chain([part]);
        Self(parts.map(str::to_owned).collect())
    }

    /// The name of the group that this one is in; none for the top.
    pub fn parent(&self) -> Option<Self> {
        let (_, above) = self.0.split_last()?;
        Some(Self(above.to_vec()))
    }

    /// The cgroup's path, for the runtime and in the file system.
    pub fn path(&self, driver: CgroupDriver) -> String {
        match driver {
            CgroupDriver::Cgroupfs => format!("/{}", self.0.join("/")),
            CgroupDriver::Systemd => self.slices(),
        }
    }

    /// A slice's name tells all of its ancestors, `-` between them: within a part it becomes `_`.
    fn slices(&self) -> String {
        let parts: Vec<_> = self.0.iter().map(|part| part.replace('-', "_")).collect();
        let slice = |end: usize| format!("/{}.slice", parts[..end].join("-"));
        match parts.len() {
            0 => "/".to_owned(),
            count => (1..=count).map(slice).collect(),
        }
    }
}

/// The pod's cgroup; none where its UID cannot be part of a name.
pub fn pod_cgroup(pod: &Pod, policy: &CgroupPolicy) -> Option<CgroupName> {
    let uid = pod.uid();
    let is_part = !uid.is_empty() && !uid.as_str().contains(['/', '_', '\0']);
    let parent = tree::class(policy, pod_qos(pod));
    is_part.then(|| parent.child(&format!("{POD_PREFIX}{uid}")))
}

/// The pod whose cgroup has this name; none for any other group, those within a pod's among them (upstream's
/// `IsPodCgroup`).
pub fn pod_of(name: &CgroupName, policy: &CgroupPolicy) -> Option<PodUid> {
    let (own, above) = name.0.split_last()?;
    let is_class = [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort]
        .into_iter()
        .any(|qos| tree::class(policy, qos).0 == above);
    let uid = own.strip_prefix(POD_PREFIX).filter(|_| is_class)?;
    (!uid.is_empty() && !uid.contains(POD_PREFIX)).then(|| PodUid::from(uid))
}

#[cfg(test)]
mod tests;
