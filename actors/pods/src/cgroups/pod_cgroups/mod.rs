//! Pods' cgroups: made before a pod's sandbox, resized with the pod, removed after it.
//!
//! - **Owns** the cgroups below its own `kubepods`; it never touches another.
//! - Where it cannot manage cgroups (no write access, a missing controller, no systemd), it logs that once and leaves
//!   pods' cgroups to the runtime.
//! - The groups above the pods are the container manager's (`resources`).
//!
//! Upstream: pkg/kubelet/cm/pod_container_manager_linux.go (1.36).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use host::cgroups::Killed;
use k8s_openapi::api::core::v1::Pod;
use logic_api::types::PodUid;
use logic_resources::cgroups::{
    CgroupDriver, CgroupLimits, CgroupName, CgroupPolicy, pod_cgroup, pod_limits, pod_of, tree,
};
use logic_resources::node::policy::NodePolicy;
use logic_resources::qos::Qos;
use logic_resources::resources::MIN_SHARES;

use crate::cgroups::CgroupManager;
pub use crate::cgroups::CgroupManagerError as PodCgroupError;

/// Makes and removes pods' cgroups; clones share their state.
#[derive(Debug, Clone)]
pub struct PodCgroups(Arc<PodContainerManager>);

#[derive(Debug)]
struct PodContainerManager {
    policy: Option<CgroupPolicy>,
    manager: CgroupManager,
    /// Set once the machine has refused: pods' cgroups are left to the runtime from then on.
    refused: OnceLock<()>,
}

impl PodCgroups {
    /// Without a policy no cgroup is ever made.
    pub fn new(policy: Option<CgroupPolicy>, manager: CgroupManager) -> Self {
        PodCgroups(Arc::new(PodContainerManager {
            policy,
            manager,
            refused: OnceLock::new(),
        }))
    }

    /// Makes the pod's cgroup if it is missing, and returns the cgroup parent for the pod's sandbox;
    /// empty leaves the choice to the runtime.
    pub async fn create(&self, pod: &Pod, node: &NodePolicy) -> Result<String, PodCgroupError> {
        let Some(name) = self.name(pod) else {
            return Ok(String::new());
        };
        let parent = name.path(self.0.manager.driver());
        let made = match self.is_refused() {
            // The runtime has systemd make the slice that it is told of.
            true => Ok(()),
            false => self.0.manager.create(&name, &pod_limits(pod, node)).await,
        };
        match made {
            Ok(()) if self.is_refused() => Ok(self.left_to_runtime(parent)),
            Ok(()) => Ok(parent),
            Err(error) if error.is_node_wide() => {
                self.refuse(&error);
                Ok(self.left_to_runtime(parent))
            }
            Err(error) => Err(error),
        }
    }

    /// Writes these limits of the pod.
    pub async fn update(&self, pod: &Pod, limits: &CgroupLimits) -> Result<(), PodCgroupError> {
        match self.managed(pod) {
            Some(name) => self.0.manager.update(&name, limits).await,
            None => Ok(()),
        }
    }

    /// Removes the pod's cgroup and those left below it. Fails if it is still busy after the last attempt;
    /// the removal can be repeated.
    pub async fn remove(&self, pod: &Pod) -> Result<(), PodCgroupError> {
        match self.managed(pod) {
            Some(name) => self.0.manager.remove(&name).await,
            None => Ok(()),
        }
    }

    /// Kills what still runs in the pod's cgroup, whose containers have ended, but not its monitor; returns what has not ended after that.
    pub async fn kill(&self, pod: &Pod) -> Result<Vec<u32>, PodCgroupError> {
        match self.managed(pod) {
            Some(name) => self.0.manager.kill(&name, Killed::AllButMonitors).await,
            None => Ok(Vec::new()),
        }
    }

    /// The pods that have a cgroup, running or not, and its name; empty where the runtime manages them.
    pub async fn list(&self) -> BTreeMap<PodUid, CgroupName> {
        let Some(policy) = self.0.policy.clone().filter(|_| !self.is_refused()) else {
            return BTreeMap::new();
        };
        let driver = self.0.manager.driver();
        let found = self.0.manager.blocking(move |files| {
            let mut found = BTreeMap::new();
            for qos in [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort] {
                let class = tree::class(&policy, qos).path(driver);
                for path in files.children(&class)? {
                    let name = CgroupName::parse_as(driver, &path);
                    found.extend(pod_of(&name, &policy).map(|uid| (uid, name)));
                }
            }
            Ok(found)
        });
        match found.await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!("cgroups of unknown pods are not looked for: {error}");
                BTreeMap::new()
            }
        }
    }

    /// Kills what runs in the cgroup of a pod that is gone, and removes it; what is left is found by the next look.
    pub async fn destroy(&self, uid: &PodUid, name: &CgroupName) {
        let manager = &self.0.manager;
        let killed = manager.kill(name, Killed::All).await;
        match killed.and(manager.remove(name).await) {
            Ok(()) => tracing::info!(%uid, "removed the cgroup of a pod that is gone"),
            Err(error) => tracing::warn!(%uid, "the cgroup of a pod that is gone stays: {error}"),
        }
    }

    /// Leaves the least CPU to the cgroup of a pod that is gone and whose volumes are mounted still.
    pub async fn reduce_cpu(&self, uid: &PodUid, name: &CgroupName) {
        let limits = CgroupLimits {
            cpu_shares: Some(MIN_SHARES),
            ..CgroupLimits::default()
        };
        match self.0.manager.update(name, &limits).await {
            Ok(()) => {
                tracing::debug!(%uid, "the cgroup of a pod that is gone waits for its volumes")
            }
            Err(error) => {
                tracing::warn!(%uid, "the CPU of a pod that is gone stays as it is: {error}")
            }
        }
    }

    /// Whether no process is in the cgroup of any pod, by whichever driver it was made; none where that cannot be told.
    pub async fn are_empty(&self) -> Option<bool> {
        let policy = self.0.policy.as_ref()?;
        let is_known = self.0.manager.hierarchy().is_some() && !self.is_refused();
        match self.0.manager.is_empty(&tree::root(policy)).await {
            Ok(empty) => is_known.then_some(empty),
            Err(error) => {
                tracing::warn!("whether pods have processes is unknown: {error}");
                None
            }
        }
    }

    /// The pods that have a process in their cgroup; none where that cannot be told.
    pub async fn with_processes(&self) -> Option<BTreeSet<PodUid>> {
        let mut pods = BTreeSet::new();
        for (uid, name) in self.list().await {
            if !self.0.manager.is_empty(&name).await.ok()? {
                pods.insert(uid);
            }
        }
        // Processes beside the pods' groups may be any pod's.
        (!pods.is_empty()).then_some(pods)
    }

    /// The pod's cgroup; none if the runtime manages it.
    fn managed(&self, pod: &Pod) -> Option<CgroupName> {
        self.name(pod).filter(|_| !self.is_refused())
    }

    fn name(&self, pod: &Pod) -> Option<CgroupName> {
        pod_cgroup(pod, self.0.policy.as_ref()?)
    }

    fn is_refused(&self) -> bool {
        self.0.refused.get().is_some()
    }

    fn refuse(&self, error: &PodCgroupError) {
        if self.0.refused.set(()).is_ok() {
            tracing::warn!(
                "this machine does not let the agent make cgroups, pods' groups are left to the runtime: {error}"
            );
        }
    }

    /// A slice has to be named: the runtime has systemd make it.
    fn left_to_runtime(&self, parent: String) -> String {
        match self.0.manager.driver() {
            CgroupDriver::Systemd => parent,
            CgroupDriver::Cgroupfs => String::new(),
        }
    }
}

#[cfg(test)]
mod tests;
