//! The CPU manager, by upstream's cases.

mod counts;
mod cpu_set;
mod demand;
mod hints;
mod laws;
mod machine;
pub(in crate::cpus) mod machines;
mod options;
mod pod_level;
mod quota;
mod settings;
mod static_policy;
mod uncore;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use logic_api::pod::PodView;
use logic_api::testing::{PodBuilder, pod, quantities, string_map};

use self::machines::*;
use super::policy::StaticPolicy;
use super::*;
use crate::topology::{
    AssignedResources, Assignment, AssignmentError, AssignmentRequest, HeldAssignments,
    HintProvider, NumaMask, NumaNodeId, PodLevelManagers, ResourceHints, TopologyHint,
    TopologyPolicy,
};

/// The set that a text lists.
pub(in crate::cpus) fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

/// A node with the static policy.
pub(in crate::cpus) struct Node {
    pub(in crate::cpus) machine: CpuMachine,
    /// How many CPUs, and which ones; the lowest cores where none are named.
    pub(in crate::cpus) reserved: (u32, &'static str),
    /// The options that are on.
    pub(in crate::cpus) options: &'static [&'static str],
    pub(in crate::cpus) pod_level: PodLevelManagers,
}

impl Node {
    pub(in crate::cpus) fn new(machine: CpuMachine) -> Self {
        Self {
            machine,
            reserved: (0, ""),
            options: &[],
            pod_level: PodLevelManagers::Off,
        }
    }

    pub(in crate::cpus) fn manager(self) -> CpuManager {
        self.try_manager().unwrap()
    }

    /// Unlike a real one it may have nothing reserved.
    fn try_manager(self) -> Result<CpuManager, CpuManagerError> {
        let options = self.options.iter().map(|option| (*option, "true"));
        let options = string_map(&options.collect::<Vec<_>>());
        let (wanted, named) = self.reserved;
        let settings = CpuSettings {
            options: &options,
            reserved: &set(named),
            pod_level: self.pod_level,
            ..defaults()
        };
        let policy = StaticPolicy::with_reserved(&settings, self.machine, wanted)?;
        Ok(CpuManager::with_policy(&settings, Some(policy)))
    }
}

static NO_OPTIONS: BTreeMap<String, String> = BTreeMap::new();

/// Settings whose gates are open.
pub(in crate::cpus) fn defaults() -> CpuSettings<'static> {
    static NONE: std::sync::LazyLock<CpuSet> = std::sync::LazyLock::new(CpuSet::default);
    CpuSettings {
        policy: "static",
        options: &NO_OPTIONS,
        gates: OptionGates {
            alpha: OptionGate::Open,
            beta: OptionGate::Open,
        },
        reserved_milli: Some(1000),
        reserved: &NONE,
        topology: TopologyPolicy::None,
        pod_level: PodLevelManagers::Off,
        quota: ExclusiveQuota::Off,
    }
}

fn cpu(amounts: &str) -> ResourceRequirements {
    let (request, limit) = amounts.split_once('/').unwrap_or((amounts, amounts));
    let of = |amount| Some(quantities(&[("cpu", amount), ("memory", "1G")]));
    ResourceRequirements {
        requests: of(request),
        limits: of(limit),
        ..ResourceRequirements::default()
    }
}

/// A pod by its parts: `pod 4, init 2, sidecar 1, app 500m/1, app`. A container is named by its kind and its place.
pub(in crate::cpus) fn pod_of(name: &str, parts: &str) -> Pod {
    let mut made = pod(name);
    let parts = parts.split(", ").filter(|part| !part.is_empty());
    let (whole, containers): (Vec<&str>, Vec<&str>) =
        parts.partition(|part| part.starts_with("pod "));
    for part in whole {
        made = made.spec_with(|spec| spec.resources = Some(cpu(&part[4..])));
    }
    for (place, part) in containers.into_iter().enumerate() {
        let (kind, amounts) = part.split_once(' ').unwrap_or((part, ""));
        let container = Container {
            name: format!("{kind}-{place}"),
            resources: (!amounts.is_empty()).then(|| cpu(amounts)),
            restart_policy: (kind == "sidecar").then(|| "Always".to_owned()),
            ..Container::default()
        };
        made = made.spec_with(|spec| match kind {
            "app" => spec.containers.push(container),
            _ => spec.init_containers.get_or_insert_default().push(container),
        });
    }
    made
}

/// What is held where one other pod has all but these CPUs and the reserved ones.
pub(in crate::cpus) fn all_but(manager: &CpuManager, free: &CpuSet) -> HeldAssignments {
    held(&[(
        "other",
        "app-0",
        &manager.allocatable().difference(free).to_string(),
    )])
}

/// What pods hold, each by its name, a container and its CPUs.
pub(in crate::cpus) fn held(list: &[(&str, &str, &str)]) -> HeldAssignments {
    let mut pods: BTreeMap<String, Assignment> = BTreeMap::new();
    for (name, container, cpus) in list {
        let own = AssignedResources {
            cpus: set(cpus).numbers(),
            ..AssignedResources::default()
        };
        let pod = pods.entry(format!("{name}-uid")).or_default();
        pod.assign(container, own);
    }
    let pods = pods.into_iter();
    pods.map(|(uid, assigned)| (uid.as_str().into(), Arc::new(assigned)))
        .collect()
}

/// Assigns to one container after the other, as the topology manager does.
pub(in crate::cpus) fn admit(
    manager: &CpuManager,
    pod: &Pod,
    held: &HeldAssignments,
    hint: TopologyHint,
) -> Result<Assignment, AssignmentError> {
    let mut assigned = Assignment::default();
    for (_, container) in pod.all_containers() {
        let request = AssignmentRequest {
            devices: &crate::devices::DeviceInventory::EMPTY,
            preferences: &crate::devices::DevicePreferences::NONE,
            pod,
            held,
            assigned: &assigned,
        };
        let own = manager.assign(&request, container, hint)?;
        assigned.assign(&container.name, own);
    }
    Ok(assigned)
}

/// The CPUs of each container that has its own, as texts.
pub(in crate::cpus) fn shown(assigned: &Assignment) -> BTreeMap<&str, String> {
    let own = assigned.containers.iter();
    own.map(|(name, own)| (name.as_str(), list(own))).collect()
}

fn list(own: &AssignedResources) -> String {
    CpuSet::from_numbers(own.cpus.iter().copied()).to_string()
}

pub(in crate::cpus) fn with(
    mut held: HeldAssignments,
    pod: &Pod,
    assigned: &Assignment,
) -> HeldAssignments {
    held.insert(pod.uid(), Arc::new(assigned.clone()));
    held
}

fn mask(nodes: &[u8]) -> NumaMask {
    let nodes = nodes.iter().map(|node| NumaNodeId::new((*node).into()));
    nodes.map(Result::unwrap).collect()
}

/// A preferred hint.
fn on(nodes: &[u8]) -> TopologyHint {
    TopologyHint {
        nodes: Some(mask(nodes)),
        preferred: true,
    }
}

pub(in crate::cpus) fn anywhere() -> TopologyHint {
    TopologyHint {
        nodes: None,
        preferred: false,
    }
}
