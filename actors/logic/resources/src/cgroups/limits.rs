//! What a cgroup may use, and what a pod may as a whole (upstream's `ResourceConfigForPod`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use logic_api::pod::PodView;
use logic_api::pod::requests::{
    self, CPU, HUGE_PAGES, MEMORY, OverheadPolicy, RequestBasis, ResourceAmounts,
};
use logic_api::quantity::Quantity;
use serde::{Deserialize, Serialize};

use super::burst;
use crate::node::policy::NodePolicy;
use crate::qos::{Qos, pod_qos};
use crate::resources::{
    MEMORY_LOW, MEMORY_MIN, MemoryReservationPolicy, NodeCgroupVersion, cpu_quota, cpu_shares,
};

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

/// The limits of a cgroup; one that is none is not written (upstream's `ResourceConfig`, cm/types.go).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupLimits {
    /// In the unit of cgroup version 1: 1024 for one CPU.
    pub cpu_shares: Option<i64>,
    pub cpu: Option<CpuQuota>,
    /// Microseconds of CPU that a period may take beyond its quota, saved up in earlier ones; version 2 alone.
    pub cpu_burst: Option<i64>,
    /// The CPUs as a list of ranges: `0-3,8`.
    pub cpus: Option<String>,
    /// Memory limit in bytes.
    pub memory: Option<i64>,
    /// Bytes of pages, by the page's size in bytes; of a size that is missing none may be used.
    pub huge_pages: BTreeMap<i64, i64>,
    /// Processes and threads.
    pub pids: Option<i64>,
    /// Files of version 2 alone, by name: `memory.low`.
    pub unified: BTreeMap<String, String>,
}

/// The pod's limits: all that its containers and its overhead may take together.
pub fn pod_limits(pod: &Pod, node: &NodePolicy) -> CgroupLimits {
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
    let policy = node.cgroups.as_ref();
    let pids = policy.and_then(|policy| policy.pids);
    CgroupLimits {
        cpu_shares: Some(cpu_shares),
        cpu,
        cpu_burst: burst::of_pod(pod, cpu),
        cpus: None,
        memory,
        huge_pages: huge_pages(&asked),
        pids: pids
            .and_then(|pids| i64::try_from(pids).ok())
            .filter(|pids| *pids > 0),
        unified: protection(pod, &asked, node),
    }
}

/// The pod's memory that the kernel keeps for it, where the configuration says so and the kernel can.
fn protection(pod: &Pod, asked: &ResourceAmounts, node: &NodePolicy) -> BTreeMap<String, String> {
    let enforcement = &node.enforcement;
    let qos = enforcement.memory_qos.as_ref();
    let tiered = qos.is_some_and(|qos| qos.reservation == MemoryReservationPolicy::Tiered);
    let request = asked.get(MEMORY).map_or(0, Quantity::value);
    if !tiered || enforcement.cgroups == NodeCgroupVersion::V1 || request <= 0 {
        return BTreeMap::new();
    }
    let file = match pod_qos(pod) {
        Qos::Guaranteed => MEMORY_MIN,
        Qos::Burstable | Qos::BestEffort => MEMORY_LOW,
    };
    BTreeMap::from([(file.to_owned(), request.to_string())])
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

/// Bytes by the page's size in bytes.
pub(super) fn huge_pages(asked: &ResourceAmounts) -> BTreeMap<i64, i64> {
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
