//! The groups above the pods: the root of all pods, and the classes of which pods may be pushed aside.
//!
//! Mirrors upstream's cm/node_container_manager_linux.go and cm/qos_container_manager_linux.go at v1.36. Otherwise than
//! upstream, limits follow the pods at once and not each minute.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::requests::{
    CPU, MEMORY, OverheadPolicy, PODS, RequestBasis, ResourceAmounts, pod_requests,
};
use logic_api::quantity::{Quantity, compare};
use serde::{Deserialize, Serialize};

use super::limits::huge_pages;
use super::{CgroupLimits, CgroupName, CgroupPolicy};
use crate::qos::{Qos, pod_qos};
use crate::resources::{MEMORY_LOW, MEMORY_MIN, MIN_SHARES, MemoryReservationPolicy, cpu_shares};

/// Upstream's name of process ids as a resource.
pub const PIDS: &str = "pid";
/// Huge pages of a class are not limited: its pods' are.
const UNBOUNDED: i64 = 1 << 62;

/// What `enforceNodeAllocatable` has enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Enforcement {
    /// The pods' root gets the node's allocatable, not its capacity.
    Pods,
    SystemReserved,
    KubeReserved,
    /// CPU alone.
    SystemReservedCompressible,
    KubeReservedCompressible,
}

impl Enforcement {
    /// Reads a word of the configuration; `none` and others are none.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "pods" => Self::Pods,
            "system-reserved" => Self::SystemReserved,
            "kube-reserved" => Self::KubeReserved,
            "system-reserved-compressible" => Self::SystemReservedCompressible,
            "kube-reserved-compressible" => Self::KubeReservedCompressible,
            _ => return None,
        })
    }

    /// Upstream's name of it when it fails.
    pub fn title(self) -> &'static str {
        match self {
            Self::Pods => "Node Allocatable",
            Self::SystemReserved => "System Reserved",
            Self::KubeReserved => "Kube Reserved",
            Self::SystemReservedCompressible => "System Reserved Compressible",
            Self::KubeReservedCompressible => "Kube Reserved Compressible",
        }
    }

    /// Upstream's name of the reservation, for events.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::SystemReserved | Self::SystemReservedCompressible => "system reserved",
            Self::KubeReserved | Self::KubeReservedCompressible => "kube reserved",
        }
    }
}

/// The node's section of the groups' limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLimits {
    /// Capacity with process ids.
    pub capacity: ResourceAmounts,
    /// Capacity without what is reserved; eviction's thresholds are not taken off.
    pub allocatable: ResourceAmounts,
    /// Whether [`Enforcement::Pods`] is on.
    pub pods_enforced: bool,
    /// Percent of the requested memory of better classes that worse ones may not take (`qosReserved`).
    pub qos_reserved_memory: Option<u8>,
    /// None without the feature MemoryQoS, or on version 1.
    pub memory_reservation: Option<MemoryReservationPolicy>,
    /// The machine's CPUs as a list of ranges; none where it cannot be told.
    pub cpus: Option<String>,
    /// The machine's sizes of huge pages in bytes.
    pub page_sizes: Vec<i64>,
}

/// A group above the pods, and its limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupLimits {
    pub name: CgroupName,
    pub limits: CgroupLimits,
}

/// The pods' root.
pub fn root(policy: &CgroupPolicy) -> CgroupName {
    CgroupName::parse(&policy.root).child("kubepods")
}

/// A class's group, in which its pods' are.
pub fn class(policy: &CgroupPolicy, qos: Qos) -> CgroupName {
    match qos {
        Qos::Guaranteed => root(policy),
        Qos::Burstable => root(policy).child("burstable"),
        Qos::BestEffort => root(policy).child("besteffort"),
    }
}

/// The limits of a list of resources (upstream's `getCgroupConfig`).
pub fn of_amounts(amounts: &ResourceAmounts, cpus: Option<&str>) -> CgroupLimits {
    let value = |name: &str| amounts.get(name).map(Quantity::value);
    CgroupLimits {
        memory: value(MEMORY),
        pids: value(PIDS),
        huge_pages: huge_pages(amounts),
        ..of_compressible(amounts, cpus)
    }
}

/// The same, but CPU alone.
pub fn of_compressible(amounts: &ResourceAmounts, cpus: Option<&str>) -> CgroupLimits {
    let milli = amounts.get(CPU).map(Quantity::milli_value);
    CgroupLimits {
        cpu_shares: milli.map(cpu_shares),
        cpus: cpus.map(str::to_owned),
        ..CgroupLimits::default()
    }
}

/// The limits of the reserved part of the node; `amounts` are kubeReserved or systemReserved.
pub fn of_reserved(
    kind: Enforcement,
    amounts: &ResourceAmounts,
    node: &NodeLimits,
) -> CgroupLimits {
    let cpus = node.cpus.as_deref();
    let mut limits = match kind {
        Enforcement::Pods | Enforcement::SystemReserved | Enforcement::KubeReserved => {
            of_amounts(amounts, cpus)
        }
        Enforcement::SystemReservedCompressible | Enforcement::KubeReservedCompressible => {
            of_compressible(amounts, cpus)
        }
    };
    if let (Some(_), Some(memory)) = (node.memory_reservation, limits.memory) {
        limits
            .unified
            .insert(MEMORY_MIN.to_owned(), memory.to_string());
    }
    limits
}

/// The pods' root and the two classes below it, in the order in which they are made; `pods` are those that run or will.
pub fn groups<'a>(
    policy: &CgroupPolicy,
    node: &NodeLimits,
    pods: impl IntoIterator<Item = &'a Pod>,
) -> [GroupLimits; 3] {
    let demand = Demand::of(pods);
    let unbounded: BTreeMap<i64, i64> = node
        .page_sizes
        .iter()
        .map(|size| (*size, UNBOUNDED))
        .collect();
    let amounts = match node.pods_enforced {
        true => &node.allocatable,
        false => &node.capacity,
    };
    let (mut burstable, mut best_effort) = (CgroupLimits::default(), CgroupLimits::default());
    let mut root_limits = of_amounts(amounts, node.cpus.as_deref());
    root_limits.huge_pages.clone_from(&unbounded);
    burstable.huge_pages.clone_from(&unbounded);
    best_effort.huge_pages = unbounded;
    burstable.cpu_shares = Some(cpu_shares(demand.burstable_cpu));
    best_effort.cpu_shares = Some(MIN_SHARES);
    if let Some(policy) = node.memory_reservation {
        let (least, low) = match policy {
            MemoryReservationPolicy::Tiered => demand.protected(),
            MemoryReservationPolicy::None => (0, 0),
        };
        root_limits
            .unified
            .insert(MEMORY_MIN.to_owned(), least.to_string());
        burstable
            .unified
            .insert(MEMORY_LOW.to_owned(), low.to_string());
    }
    if let Some(percent) = node.qos_reserved_memory {
        let left = demand.left(percent, &node.allocatable);
        (burstable.memory, best_effort.memory) = left.unzip();
    }
    let group = |qos, limits| GroupLimits {
        name: class(policy, qos),
        limits,
    };
    [
        group(Qos::Guaranteed, root_limits),
        group(Qos::Burstable, burstable),
        group(Qos::BestEffort, best_effort),
    ]
}

/// What the pods of each class ask for together.
#[derive(Default)]
struct Demand {
    /// Thousandths of CPU.
    burstable_cpu: i64,
    /// Bytes.
    burstable_memory: i64,
    guaranteed_memory: i64,
}

impl Demand {
    fn of<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Self {
        let mut demand = Self::default();
        for pod in pods {
            let qos = pod_qos(pod);
            if qos == Qos::BestEffort {
                continue;
            }
            let asked = pod_requests(pod, RequestBasis::Spec, OverheadPolicy::Counted);
            let memory = asked.get(MEMORY).map_or(0, Quantity::value);
            match qos {
                Qos::Guaranteed => add(&mut demand.guaranteed_memory, memory),
                Qos::Burstable | Qos::BestEffort => {
                    let cpu = asked.get(CPU).map_or(0, Quantity::milli_value);
                    add(&mut demand.burstable_cpu, cpu);
                    add(&mut demand.burstable_memory, memory);
                }
            }
        }
        demand
    }

    /// `memory.min` of the root, which has to cover all that is protected below it, and `memory.low` of burstable pods.
    fn protected(&self) -> (i64, i64) {
        let all = self.guaranteed_memory.saturating_add(self.burstable_memory);
        (all, self.burstable_memory)
    }

    /// What burstable and best-effort pods may take of the node's memory; none where that is unknown.
    fn left(&self, percent: u8, allocatable: &ResourceAmounts) -> Option<(i64, i64)> {
        let memory = allocatable.get(MEMORY).map(Quantity::value);
        let memory = memory.filter(|memory| *memory != 0)?;
        let reserved = |requests: i64| {
            let part = i128::from(requests) * i128::from(percent) / 100;
            i64::try_from(part).unwrap_or(i64::MAX)
        };
        let burstable = memory.saturating_sub(reserved(self.guaranteed_memory));
        let best_effort = burstable.saturating_sub(reserved(self.burstable_memory));
        Some((burstable, best_effort))
    }
}

fn add(sum: &mut i64, amount: i64) {
    *sum = sum.saturating_add(amount);
}

/// Resources that are reserved beyond the node's capacity: upstream refuses to start with such (`validateNodeAllocatable`).
pub fn overcommitted(capacity: &ResourceAmounts, reserved: &ResourceAmounts) -> Vec<String> {
    let more = reserved.iter().filter_map(|(name, reserved)| {
        let capacity = capacity.get(name)?;
        (compare(reserved, capacity) == Ordering::Greater && name != PODS).then(|| {
            format!(
                "Resource {name:?} has a reservation of {reserved} but capacity of {capacity}. Expected capacity >= reservation."
            )
        })
    });
    more.collect()
}
