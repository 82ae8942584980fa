//! The managers of what pods have to themselves: CPUs, memory, and where both lie.
//!
//! Upstream: pkg/kubelet/cm/container_manager_linux.go (`NewContainerManager`, `Start`), 1.36.

use std::cell::RefCell;
use std::error::Error;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use config::{FeatureGates, NodeConfig};
use host::cpus::topology::CpuTopologyError;
use kernel::error_chain;
use logic_api::pod::requests::CPU;
use logic_api::quantity::Quantity;
use logic_placement::NodePlacement;
use logic_placement::claims::ClaimGates;
use logic_placement::cpus::{
    CpuMachine, CpuManager, CpuPolicy, CpuSet, CpuSettings, ExclusiveQuota, OptionGate, OptionGates,
};
use logic_placement::memory::{MemoryManager, MemoryReservation, MemorySettings};
use logic_placement::topology::{PodLevelManagers, TopologyManager, TopologySettings};
use logic_resources::node::NodeFacts;
use resources::dynamic_resources::{DynamicResourcesConfig, HealthWatch};
use state::assignments::Assignments;

use super::node;

/// Bytes; many times what a thousand pods take.
const MAX_STATE_FILE: u64 = 64 << 20;

/// The managers, and what pods hold from an earlier life.
///
/// # Errors
///
/// In upstream's words: a setting is unknown or does not suit the machine, or a state file is of no use.
pub(super) fn assignments(config: &NodeConfig, facts: &NodeFacts) -> Result<Assignments, String> {
    let placement = placement(config, facts).map_err(|error| error_chain(&*error))?;
    let root_dir = Path::new(&config.flags.root_dir);
    let unread = RefCell::new(None);
    let earlier = placement.restore(|name| {
        let path = root_dir.join(name);
        read(&path).unwrap_or_else(|error| {
            unread.replace(Some(format!("{}: {error}", path.display())));
            None
        })
    });
    let earlier = earlier.map_err(|error| error_chain(&error))?;
    match unread.into_inner() {
        Some(why) => Err(why),
        None => Ok(Assignments::new(placement, earlier)),
    }
}

/// None where there is no such file: one that cannot be read may say who has what.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(MAX_STATE_FILE).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

fn placement(config: &NodeConfig, facts: &NodeFacts) -> Result<NodePlacement, Box<dyn Error>> {
    let (kubelet, sys) = (&config.kubelet, Path::new("/sys"));
    let pod_level = match config.gates.enabled("PodLevelResourceManagers") {
        true => PodLevelManagers::On,
        false => PodLevelManagers::Off,
    };
    let numa = host::cpus::numa::read(Path::new("/proc"), sys);
    let topology = TopologySettings {
        policy: &kubelet.topology_manager_policy,
        scope: &kubelet.topology_manager_scope,
        options: &kubelet.topology_manager_policy_options,
        pod_level,
    };
    let topology = TopologyManager::new(&topology, numa.topology)?;
    let machine = machine(sys, &kubelet.cpu_manager_policy)?;
    let reservations = node::reservations(config);
    let cpus = CpuSettings {
        policy: &kubelet.cpu_manager_policy,
        options: &kubelet.cpu_manager_policy_options,
        gates: option_gates(&config.gates),
        reserved_milli: reservations.all().get(CPU).map(Quantity::milli_value),
        reserved: &kubelet.reserved_system_cpus.parse::<CpuSet>()?,
        topology: topology.policy(),
        pod_level,
        quota: match config.gates.enabled("DisableCPUQuotaWithExclusiveCPUs") {
            true => ExclusiveQuota::Off,
            false => ExclusiveQuota::On,
        },
    };
    let cpus = CpuManager::new(&cpus, machine.clone())?;
    let reserved = kubelet.reserved_memory.iter();
    let reserved: Vec<MemoryReservation> = reserved
        .map(|reservation| MemoryReservation {
            node: reservation.numa_node,
            limits: reservation.limits.clone(),
        })
        .collect();
    let memory = MemorySettings {
        policy: &kubelet.memory_manager_policy,
        of_node: &reservations.with_eviction(&facts.capacity),
        reservations: &reserved,
        pod_level,
    };
    let memory = MemoryManager::new(&memory, &numa.memory)?;
    Ok(NodePlacement::new(topology, machine, cpus, memory))
}

/// The machine's CPUs. Nobody needs to know where they lie on a node that assigns none.
fn machine(sys: &Path, policy: &str) -> Result<CpuMachine, CpuTopologyError> {
    match host::cpus::topology::read(sys) {
        Err(error) if policy == CpuPolicy::None.as_str() => {
            tracing::warn!("the machine's CPUs cannot be told: {}", error_chain(&error));
            Ok(CpuMachine::default())
        }
        machine => machine,
    }
}

/// What decides about ResourceClaims. `DynamicResourceAllocation` itself is locked on, as upstream.
pub(super) fn claims(config: &NodeConfig, root_dir: &Path) -> DynamicResourcesConfig {
    let gates = &config.gates;
    DynamicResourcesConfig {
        node_name: config.node_name.clone(),
        root_dir: root_dir.to_owned(),
        gates: ClaimGates {
            extended_resources: gates.enabled("DRAExtendedResource"),
            pod_groups: gates.enabled("DRAWorkloadResourceClaims"),
            health_messages: gates.enabled("ResourceHealthStatusMessage"),
        },
        health: match gates.enabled("ResourceHealthStatus") {
            true => HealthWatch::On,
            false => HealthWatch::Off,
        },
    }
}

fn option_gates(gates: &FeatureGates) -> OptionGates {
    let gate = |name: &str| match gates.enabled(name) {
        true => OptionGate::Open,
        false => OptionGate::Closed,
    };
    OptionGates {
        alpha: gate("CPUManagerPolicyAlphaOptions"),
        beta: gate("CPUManagerPolicyBetaOptions"),
    }
}
