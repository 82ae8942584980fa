//! The cgroup that holds all of a pod: its name, its limits, and the files that they are written to.
//!
//! Mirrors upstream's cm/cgroup_manager_linux.go, cm/pod_container_manager_linux.go and
//! `ResourceConfigForPod` (cm/helpers_linux.go) at v1.36. The limits of the classes above the pods are
//! the node's matter, not a pod's.

mod files;
mod hierarchy;
mod limits;

pub use files::{CgroupWrite, writes};
pub use hierarchy::{CONTROLLERS, Hierarchy};
use k8s_openapi::api::core::v1::Pod;
pub use limits::{CpuQuota, PodLimits, all_limited, pod_limits};
use logic_api::pod::PodView;
use serde::{Deserialize, Serialize};

use crate::qos::{Qos, pod_qos};

/// How cgroups are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupDriver {
    Cgroupfs,
    /// The runtime has systemd make the slices; the agent only names them.
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

impl CgroupName {
    /// Reads a name as it stands in the file system.
    pub fn parse(path: &str) -> Self {
        let parts = path.split('/').filter(|part| !part.is_empty());
        Self(parts.map(str::to_owned).collect())
    }

    /// The name of a group in this one.
    pub fn child(&self, part: &str) -> Self {
        let parts = self.0.iter().map(String::as_str).chain([part]);
        Self(parts.map(str::to_owned).collect())
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
    let class = match pod_qos(pod) {
        Qos::Guaranteed => None,
        Qos::Burstable => Some("burstable"),
        Qos::BestEffort => Some("besteffort"),
    };
    let pods = CgroupName::parse(&policy.root).child("kubepods");
    let parent = class.map_or(pods.clone(), |class| pods.child(class));
    is_part.then(|| parent.child(&format!("pod{uid}")))
}

#[cfg(test)]
mod tests;
