//! The node's capacity, allocatable, labels and taints.
//!
//! Input of admission, resize and the node's status. Mirrors upstream's nodestatus/setters.go
//! (`MachineInfo`), cm/node_container_manager_linux.go (`GetNodeAllocatableReservation`) and
//! kubelet_node_status.go (`initialNode`) at v1.36.

pub mod policy;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Taint;
use logic_api::pod::requests::{
    self, CPU, EPHEMERAL_STORAGE, HUGE_PAGES, MEMORY, PODS, ResourceAmounts, quantity,
};
use logic_api::quantity::{Quantity, QuantityFormat};
use logic_api::text::sysctls::{KernelVersion, SysctlAllowlist};

use crate::thresholds::ThresholdLimit;

pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const OS: &str = "kubernetes.io/os";
pub const ARCH: &str = "kubernetes.io/arch";

/// The machine's hardware and kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFacts {
    /// Logical CPUs that are online.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Swap in bytes.
    pub swap: u64,
    /// Reserved pages by their size in bytes.
    pub huge_pages: BTreeMap<u64, u64>,
    /// Bytes of the file system of the agent's root directory; none if it is unknown.
    pub ephemeral_storage: Option<u64>,
    /// The most processes and threads at a time.
    pub pids: u64,
    /// None where its version cannot be read.
    pub kernel: Option<KernelVersion>,
    pub app_armor: Support,
}

/// Whether the node can do something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Support {
    Yes,
    #[default]
    No,
}

/// Whether the room that pods write to on the node is counted out to them: `localStorageCapacityIsolation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalStorage {
    #[default]
    Counted,
    Uncounted,
}

/// How many pods the node takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodLimit {
    /// Pods on the node.
    pub max: u32,
    /// Zero for no such limit.
    pub per_core: u32,
}

impl PodLimit {
    /// The smaller of the two limits.
    pub fn on(self, cpus: u32) -> u32 {
        match self.per_core {
            0 => self.max,
            per_core => self.max.min(cpus.saturating_mul(per_core)),
        }
    }
}

/// The resources that are reserved: not allocatable to pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    /// The agent's and the runtime's share.
    pub kube: ResourceAmounts,
    /// The operating system's share.
    pub system: ResourceAmounts,
    /// The threshold of hard eviction's `memory.available`.
    pub memory_available: Option<ThresholdLimit>,
    /// The threshold of hard eviction's `nodefs.available`.
    pub nodefs_available: Option<ThresholdLimit>,
}

impl Reservations {
    /// Both shares together.
    pub fn all(&self) -> ResourceAmounts {
        let mut all = self.system.clone();
        requests::add(&mut all, &self.kube);
        all
    }

    /// Both shares and hard eviction's thresholds, of this capacity.
    pub fn with_eviction(&self, capacity: &ResourceAmounts) -> ResourceAmounts {
        let mut all = self.all();
        for (name, limit) in self.thresholds() {
            if let (Some(limit), Some(whole)) = (limit, capacity.get(name)) {
                let whole = u64::try_from(whole.value()).unwrap_or(0);
                let limit = ResourceAmounts::from([(name.to_owned(), bytes(limit.of(whole)))]);
                requests::add(&mut all, &limit);
            }
        }
        all
    }

    fn thresholds(&self) -> [(&'static str, Option<ThresholdLimit>); 2] {
        [
            (MEMORY, self.memory_available),
            (EPHEMERAL_STORAGE, self.nodefs_available),
        ]
    }
}

/// Whether the CPU or memory manager reserves exclusive resources for guaranteed pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExclusiveAllocation {
    /// The policy is `static` (CPU) or `Static` (memory).
    Static,
    #[default]
    None,
}

/// Whether containers get swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeSwap {
    #[default]
    None,
    /// Burstable pods get a share of it, as their memory request is one of the node's memory.
    Limited,
}

/// Whether pod-level CPU and memory may be resized in place (feature gate
/// `InPlacePodLevelResourcesVerticalScaling`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodLevelResize {
    #[default]
    Fixed,
    Resizable,
}

/// The node, as far as decisions about pods need it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    pub name: String,
    /// Before reservations.
    pub capacity: ResourceAmounts,
    /// The resources that all pods together may request.
    pub allocatable: ResourceAmounts,
    /// The allocatable without the reserve for eviction: a resize beyond it can never fit.
    pub allocatable_at_most: ResourceAmounts,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    /// As Go names it (`GOOS`): `linux`.
    pub os: String,
    pub sysctls: SysctlAllowlist,
    pub app_armor: Support,
    /// Whether the runtime keeps to `supplementalGroupsPolicy: Strict`.
    pub supplemental_groups_policy: Support,
    /// The feature gate `PodLevelResources`.
    pub pod_level_resources: Support,
    /// The features that the node declares; none where it declares none at all (feature gate `NodeDeclaredFeatures`),
    /// and then pods' needs are not checked.
    pub declared_features: Option<BTreeSet<String>>,
    /// Extended resources whose device plugin served them before, and has not come back yet.
    pub awaited: BTreeSet<String>,
    pub cpu_manager: ExclusiveAllocation,
    pub memory_manager: ExclusiveAllocation,
    pub swap: NodeSwap,
    pub pod_level_resize: PodLevelResize,
}

/// The node's capacity.
pub fn capacity(machine: &MachineFacts, pods: PodLimit, storage: LocalStorage) -> ResourceAmounts {
    let mut capacity = ResourceAmounts::from([
        (CPU.to_owned(), count(machine.cpus.into())),
        (MEMORY.to_owned(), bytes(machine.memory)),
        (PODS.to_owned(), count(pods.on(machine.cpus).into())),
    ]);
    let counted = machine
        .ephemeral_storage
        .filter(|_| storage == LocalStorage::Counted);
    if let Some(size) = counted {
        capacity.insert(EPHEMERAL_STORAGE.to_owned(), bytes(size));
    }
    for (size, pages) in &machine.huge_pages {
        let name = format!("{HUGE_PAGES}{}", bytes(*size));
        capacity.insert(name, bytes(size.saturating_mul(*pages)));
    }
    capacity
}

/// The allocatable part of the capacity. Huge pages are memory that has no other use.
pub fn allocatable(capacity: &ResourceAmounts, reserved: &Reservations) -> ResourceAmounts {
    let mut allocatable = allocatable_at_most(capacity, reserved);
    for (name, limit) in reserved.thresholds() {
        if let (Some(limit), Some(whole), Some(left)) =
            (limit, capacity.get(name), allocatable.get_mut(name))
        {
            let whole = u64::try_from(whole.value()).unwrap_or(0);
            *left = requests::left(left, &bytes(limit.of(whole)));
        }
    }
    let huge = capacity
        .iter()
        .filter(|(name, _)| name.starts_with(HUGE_PAGES));
    for (_, pages) in huge {
        if let Some(memory) = allocatable.get_mut(MEMORY) {
            *memory = requests::left(memory, pages);
        }
    }
    allocatable
}

/// The capacity without what is reserved for the agent and the system (`GetNodeAllocatableAbsolute`).
pub fn allocatable_at_most(capacity: &ResourceAmounts, reserved: &Reservations) -> ResourceAmounts {
    let mut most = capacity.clone();
    for list in [&reserved.system, &reserved.kube] {
        for (name, taken) in list {
            if let Some(amount) = most.get_mut(name) {
                *amount = requests::left(amount, taken);
            }
        }
    }
    most
}

/// The labels of the node: its own, and those that the operator gives it. A name or system that the
/// operator gives otherwise stays as the machine has it.
pub fn labels(
    hostname: &str,
    machine_arch: &str,
    given: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let arch = arch(machine_arch);
    let own = [
        (HOSTNAME, hostname),
        (OS, "linux"),
        (ARCH, arch),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", arch),
    ];
    let mut labels: BTreeMap<_, _> = own.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    labels.extend(given.clone());
    // Upstream puts the system's name right whenever it is not the machine's.
    labels.insert(OS.to_owned(), "linux".to_owned());
    labels
}

/// Go's name of an architecture (`GOARCH`), from Rust's.
pub fn arch(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        "loongarch64" => "loong64",
        same => same,
    }
}

fn count(value: u64) -> Quantity {
    quantity(
        i64::try_from(value).unwrap_or(i64::MAX),
        QuantityFormat::DecimalSI,
    )
}

fn bytes(value: u64) -> Quantity {
    quantity(
        i64::try_from(value).unwrap_or(i64::MAX),
        QuantityFormat::BinarySI,
    )
}

#[cfg(test)]
mod tests {
    use logic_api::testing::{quantities, string_map};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn machine() -> MachineFacts {
        MachineFacts {
            cpus: 4,
            memory: 1000 * MIB,
            huge_pages: BTreeMap::from([(2 * MIB, 50), (1 << 30, 0)]),
            ephemeral_storage: Some(5000),
            ..MachineFacts::default()
        }
    }

    fn printed(amounts: &ResourceAmounts) -> Vec<String> {
        let print = |(name, amount): (&String, &Quantity)| format!("{name}={amount}");
        amounts.iter().map(print).collect()
    }

    /// Upstream's TestMachineInfo.
    #[test]
    fn capacity_is_what_the_machine_has_and_the_smaller_limit_of_pods() {
        let limit = |max, per_core| PodLimit { max, per_core };
        assert_eq!(limit(110, 0).on(4), 110);
        assert_eq!(limit(110, 10).on(4), 40);
        assert_eq!(limit(10, 10).on(4), 10);
        assert_eq!(
            printed(&capacity(&machine(), limit(110, 0), LocalStorage::Counted)),
            [
                "cpu=4",
                "ephemeral-storage=5000",
                "hugepages-1Gi=0",
                "hugepages-2Mi=100Mi",
                "memory=1000Mi",
                "pods=110"
            ]
        );
    }

    /// Upstream's TestGetCapacity.
    #[test]
    fn room_that_is_not_counted_out_is_no_capacity_and_nothing_is_left_of_it() {
        let limit = PodLimit {
            max: 5,
            per_core: 0,
        };
        for (storage, named) in [
            (LocalStorage::Counted, true),
            (LocalStorage::Uncounted, false),
        ] {
            let capacity = capacity(&machine(), limit, storage);
            let reserved = Reservations {
                system: requests::read(Some(&quantities(&[("ephemeral-storage", "1")]))),
                nodefs_available: Some(ThresholdLimit::amount(1)),
                ..Reservations::default()
            };
            assert_eq!(capacity.contains_key(EPHEMERAL_STORAGE), named);
            let left = allocatable(&capacity, &reserved);
            assert_eq!(left.contains_key(EPHEMERAL_STORAGE), named);
            assert_eq!(left.len(), capacity.len());
        }
    }

    /// Upstream's TestNodeAllocatableReservationForScheduling and TestMachineInfo.
    #[test]
    fn allocatable_is_capacity_without_what_is_reserved_and_never_less_than_nought() {
        let list = |pairs: &[(&str, &str)]| requests::read(Some(&quantities(pairs)));
        let reserved = Reservations {
            kube: list(&[("cpu", "500m"), ("memory", "100Mi"), ("pid", "100")]),
            system: list(&[("cpu", "100m"), ("ephemeral-storage", "6000")]),
            memory_available: Some(ThresholdLimit::PerMillion(100_000)),
            nodefs_available: Some(ThresholdLimit::amount(1)),
        };
        let capacity = capacity(
            &machine(),
            PodLimit {
                max: 5,
                per_core: 0,
            },
            LocalStorage::Counted,
        );
        let expected = [
            "cpu=3400m",
            "ephemeral-storage=0",
            "hugepages-1Gi=0",
            "hugepages-2Mi=100Mi",
            "memory=700Mi",
            "pods=5",
        ];
        assert_eq!(printed(&allocatable(&capacity, &reserved)), expected);
        let most = allocatable_at_most(&capacity, &reserved);
        assert_eq!(most[MEMORY].to_string(), "900Mi");
    }

    #[test]
    fn the_nodes_own_labels_stay_true() {
        let given = string_map(&[("disk", "ssd"), (OS, "windows"), (HOSTNAME, "other")]);
        let labels = labels("edge", "aarch64", &given);
        let expected = [
            ("beta.kubernetes.io/arch", "arm64"),
            ("beta.kubernetes.io/os", "linux"),
            ("disk", "ssd"),
            (ARCH, "arm64"),
            (HOSTNAME, "other"),
            (OS, "linux"),
        ];
        assert_eq!(labels, string_map(&expected));
    }
}
