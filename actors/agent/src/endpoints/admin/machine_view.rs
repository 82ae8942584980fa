//! `GET /cpus`: the machine's CPUs and memory, and which containers have what of it to themselves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kernel::Addr;
use logic_api::pod::PodView;
use logic_placement::topology::{AssignedResources, HeldAssignments, NumaMask};
use pods::pod_manager;
use serde::{Deserialize, Serialize};
use state::assignments::Assignments;

use super::route::AdminError;

/// The pod manager answers from memory.
const POD_MANAGER_TIMEOUT: Duration = Duration::from_secs(5);

/// The machine, and what is taken of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct MachineView {
    pub cpu_policy: String,
    pub memory_policy: String,
    pub topology_policy: String,
    pub topology_scope: String,
    /// By their numbers.
    pub cpus: Vec<CpuRow>,
    /// By NUMA node and resource.
    pub memory: Vec<MemoryRow>,
}

/// One logical CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuRow {
    pub cpu: u32,
    pub socket: u32,
    pub node: u8,
    /// The lowest CPU of its core.
    pub core: u32,
    /// The last-level cache.
    pub cache: u32,
    pub usage: CpuUsage,
    /// Namespace, pod and container of each container that has it; an init container and those after it may share it.
    pub holders: Vec<String>,
}

/// Who runs on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuUsage {
    /// The system, and containers that have none of their own.
    Reserved,
    /// Containers that have none of their own.
    Shared,
    /// Its holders alone.
    Exclusive,
}

/// Memory, or huge pages of one size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRow {
    /// The NUMA nodes that it comes from together.
    pub nodes: Vec<u8>,
    pub resource: String,
    /// Bytes.
    pub bytes: u64,
    /// Namespace, pod and container; empty for all that containers may have.
    pub holder: String,
}

/// The machine as it is now.
pub(super) async fn view(
    assignments: &Assignments,
    pod_manager: &Addr<pod_manager::Msg>,
) -> Result<MachineView, AdminError> {
    let pods = pod_manager.ask(POD_MANAGER_TIMEOUT, pod_manager::Msg::all);
    let pods = pods.await.map_err(|source| AdminError::Silent {
        who: "the pod manager",
        source,
    })?;
    let (placement, held) = (&assignments.placement, assignments.held());
    let owners = owners(&pods, &held);
    let mut holders: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (name, own) in &owners {
        for cpu in &own.cpus {
            holders.entry(*cpu).or_default().push(name.clone());
        }
    }
    let reserved = placement.reserved_cpus();
    let machine = placement.machine();
    let row = |cpu: u32| {
        let place = machine.place(cpu)?;
        let holders = holders.remove(&cpu).unwrap_or_default();
        Some(CpuRow {
            cpu,
            socket: place.socket.0,
            node: place.node.get(),
            core: place.core.0,
            cache: place.cache.0,
            usage: match (reserved.contains(cpu), holders.is_empty()) {
                (true, _) => CpuUsage::Reserved,
                (false, true) => CpuUsage::Shared,
                (false, false) => CpuUsage::Exclusive,
            },
            holders,
        })
    };
    Ok(MachineView {
        cpu_policy: placement.cpu_policy().to_owned(),
        memory_policy: placement.memory_policy().to_owned(),
        topology_policy: placement.topology.policy().as_str().to_owned(),
        topology_scope: placement.topology.scope().as_str().to_owned(),
        cpus: machine.cpus().iter().filter_map(row).collect(),
        memory: memory(assignments, &owners),
    })
}

/// What each container holds, and each pod as a whole, by namespace, pod and container.
fn owners<'a>(
    pods: &[Arc<Pod>],
    held: &'a HeldAssignments,
) -> Vec<(String, &'a AssignedResources)> {
    let mut owners = Vec::new();
    for (uid, assigned) in held {
        let pod = pods.iter().find(|pod| pod.uid() == *uid);
        let pod = pod.map_or_else(
            || uid.to_string(),
            |pod| format!("{}/{}", pod.namespace(), pod.name()),
        );
        let containers = assigned.containers.iter();
        owners.extend(containers.map(|(name, own)| (format!("{pod} {name}"), own)));
        if !assigned.pod.is_empty() {
            owners.push((pod, &assigned.pod));
        }
    }
    owners
}

fn memory(assignments: &Assignments, owners: &[(String, &AssignedResources)]) -> Vec<MemoryRow> {
    let nodes = |mask: NumaMask| mask.nodes().map(|node| node.get()).collect();
    let mut rows = Vec::new();
    for block in assignments.placement.allocatable_memory() {
        rows.push(MemoryRow {
            nodes: nodes(block.nodes),
            resource: block.resource,
            bytes: block.bytes,
            holder: String::new(),
        });
    }
    for (holder, own) in owners {
        rows.extend(own.memory.iter().map(|block| MemoryRow {
            nodes: nodes(block.nodes),
            resource: block.resource.clone(),
            bytes: block.bytes,
            holder: holder.clone(),
        }));
    }
    rows
}
