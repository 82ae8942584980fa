//! What a pod may take as a whole (upstream's `ResourceConfigForPod`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use logic_api::pod::PodView;
use logic_api::pod::requests::{
    self, CPU, HUGE_PAGES, MEMORY, OverheadPolicy, RequestBasis, ResourceAmounts,
};
use logic_api::quantity::Quantity;
use serde::{Deserialize, Serialize};

use crate::node_policy::NodePolicy;
use crate::qos::{Qos, pod_qos};
use crate::resources::{cpu_quota, cpu_shares};

/// The period of a quota that is not enforced.
const DEFAULT_PERIOD: i64 = 100_000;

/// A share of the CPU's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuQuota {
    /// Microseconds of CPU in each period; -1 for no limit.
    pub quota: i64,
    /// The CFS period in microseconds.
    pub period: i64,
}

/// The limits of a pod's cgroup; one that is none is not written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodLimits {
    /// In the unit of cgroup version 1: 1024 for one CPU.
    pub cpu_shares: i64,
    /// None for no limit.
    pub cpu: Option<CpuQuota>,
    /// Memory limit in bytes.
    pub memory: Option<i64>,
    /// Bytes of pages, by the page's size in bytes.
    pub huge_pages: BTreeMap<i64, i64>,
    /// None for no limit.
    pub pids: Option<u64>,
}

/// The pod's limits: all that its containers and its overhead may take together.
pub fn pod_limits(pod: &Pod, node: &NodePolicy) -> PodLimits {
    let asked = requests::pod_requests(pod, RequestBasis::Spec, OverheadPolicy::Counted);
    let limits = requests::pod_limits(pod, RequestBasis::Spec, OverheadPolicy::Counted);
    let quota = || quota(limits.get(CPU), node);
    let memory = || limits.get(MEMORY).map_or(0, Quantity::value);
    let shares = cpu_shares(asked.get(CPU).map_or(0, Quantity::milli_value));
    let (cpu_shares, cpu, memory) = match pod_qos(pod) {
        Qos::Guaranteed => (shares, Some(quota()), Some(memory())),
        Qos::Burstable => (
            shares,
            all_limited(pod, CPU).then(quota),
            all_limited(pod, MEMORY).then(memory),
        ),
        Qos::BestEffort => (cpu_shares(0), None, None),
    };
    PodLimits {
        cpu_shares,
        cpu,
        memory,
        huge_pages: huge_pages(&asked),
        pids: node
            .cgroups
            .as_ref()
            .and_then(|policy| policy.pids)
            .filter(|pids| *pids > 0),
    }
}

fn quota(limit: Option<&Quantity>, node: &NodePolicy) -> CpuQuota {
    let Some(period) = node.cpu_quota_period else {
        return CpuQuota {
            quota: -1,
            period: DEFAULT_PERIOD,
        };
    };
    let period = i64::try_from(period.as_micros()).unwrap_or(DEFAULT_PERIOD);
    CpuQuota {
        quota: cpu_quota(limit.map_or(0, Quantity::milli_value), period),
        period,
    }
}

/// Whether nothing in the pod may take the resource without limit.
pub fn all_limited(pod: &Pod, resource: &str) -> bool {
    let is_limited = |resources: Option<&ResourceRequirements>| {
        let limit = resources.and_then(|r| r.limits.as_ref()?.get(resource));
        let amount = limit.and_then(requests::parse);
        amount.is_some_and(|amount| !amount.is_zero())
    };
    is_limited(pod.spec().and_then(|spec| spec.resources.as_ref()))
        || pod
            .all_containers()
            .all(|(_, c)| is_limited(c.resources.as_ref()))
}

fn huge_pages(asked: &ResourceAmounts) -> BTreeMap<i64, i64> {
    let mut pages = BTreeMap::new();
    for (name, amount) in asked {
        let size = name
            .strip_prefix(HUGE_PAGES)
            .and_then(|size| Quantity::parse(size).ok());
        if let Some(size) = size {
            // Two names may mean one size.
            *pages.entry(size.value()).or_insert(0_i64) += amount.value();
        }
    }
    pages
}
