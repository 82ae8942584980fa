//! Samples of memory use for eviction; of the pods only while a threshold is met.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clients::runtime::{RuntimeClient, RuntimeError};
use host::meminfo::{MemInfo, MemInfoError};
use k8s_openapi::api::core::v1::Pod;
use kernel::{Addr, AskError};
use logic_api::pod::PodView;
use logic_resources::eviction::{ContainerUsage, EvictionClass, MeasuredUsage, PodUsage};
use logic_resources::resources::memory_requests;
use logic_resources::thresholds::{
    Observation, Observations, Reclaim, Signal, Threshold, thresholds_met,
};
use pods::pod_manager;
use thiserror::Error;

use crate::eviction::UsageSample;

const POD_MANAGER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no sample.
#[derive(Debug, Error)]
pub enum SampleError {
    #[error(transparent)]
    Memory(#[from] MemInfoError),
    #[error("the pods are not known")]
    Pods(#[source] AskError),
    #[error("the pods' usage is not known")]
    Usage(#[source] RuntimeError),
}

/// Samples the node and its pods.
#[derive(Debug, Clone)]
pub struct UsageSampler {
    runtime: RuntimeClient,
    pod_manager: Addr<pod_manager::Msg>,
}

impl UsageSampler {
    pub fn new(runtime: RuntimeClient, pod_manager: Addr<pod_manager::Msg>) -> Self {
        UsageSampler {
            runtime,
            pod_manager,
        }
    }

    /// Samples the node; the pods too if a threshold is met, or was and is not resolved yet.
    pub async fn sample(
        &self,
        thresholds: &BTreeSet<Threshold>,
        unresolved: bool,
    ) -> Result<UsageSample, SampleError> {
        let observations = observe()?;
        let met = thresholds_met(thresholds, &observations, Reclaim::Ignored);
        let pods = match met.is_empty() && !unresolved {
            true => Vec::new(),
            false => self.pods().await?,
        };
        Ok(UsageSample { observations, pods })
    }

    async fn pods(&self) -> Result<Vec<PodUsage>, SampleError> {
        let pods = self
            .pod_manager
            .ask(POD_MANAGER_TIMEOUT, pod_manager::Msg::all);
        let pods = pods.await.map_err(SampleError::Pods)?;
        let used = self
            .runtime
            .memory_use()
            .await
            .map_err(SampleError::Usage)?;
        Ok(pods
            .iter()
            .map(|pod| pod_usage(pod, used.get(&pod.uid())))
            .collect())
    }
}

/// Reads `/proc/meminfo`, a file of the kernel's own, so it does not block.
fn observe() -> Result<Observations, SampleError> {
    let memory = MemInfo::read(Path::new("/proc"))?;
    let memory = Observation {
        capacity: memory.bytes("MemTotal")?,
        available: memory.bytes("MemAvailable")?,
        sampled_at: kernel::timestamp(),
    };
    Ok([(Signal::MemoryAvailable, memory)].into())
}

fn pod_usage(pod: &Arc<Pod>, used: Option<&BTreeMap<String, u64>>) -> PodUsage {
    let requests = memory_requests(pod);
    let container = |(name, memory): (&String, &u64)| ContainerUsage {
        name: name.clone(),
        memory: *memory,
        memory_request: requests.get(name).copied().unwrap_or(0),
    };
    let grace = pod
        .spec()
        .and_then(|spec| spec.termination_grace_period_seconds);
    PodUsage {
        uid: pod.uid(),
        standing: if pod.is_critical() {
            EvictionClass::Critical
        } else {
            EvictionClass::Evictable
        },
        priority: pod.priority(),
        termination_grace: grace
            .map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
        memory_request: requests.values().sum(),
        used: used.map(|used| MeasuredUsage {
            memory: used.values().sum(),
            pids: 0,
            containers: used.iter().map(container).collect(),
        }),
    }
}
