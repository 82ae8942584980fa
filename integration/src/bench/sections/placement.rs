//! Admission of pods with CPUs and memory of their own on a large machine: the decision alone, without an agent.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_api::pod::requests::ResourceAmounts;
use logic_api::quantity::Quantity;
use logic_placement::NodePlacement;
use logic_placement::cpus::{
    CoreId, CpuMachine, CpuManager, CpuPlace, CpuSet, CpuSettings, ExclusiveQuota, OptionGates,
    SocketId, UncoreCacheId,
};
use logic_placement::memory::{
    MachineMemory, MemoryManager, MemoryReservation, MemorySettings, NumaMemory,
};
use logic_placement::topology::{
    HeldAssignments, NumaNodeId, NumaTopology, PodLevelManagers, TopologyManager, TopologySettings,
};
use serde_json::json;
use tokio::time::Instant;

use crate::bench::samples::Samples;
use crate::bench::{AgentColumn, BenchPlan, BenchReport};

/// Two sockets of four NUMA nodes, each of sixteen cores of two threads.
const NODES: u32 = 8;
const NODES_A_SOCKET: u32 = 4;
const CORES_A_NODE: u32 = 16;
const THREADS: u32 = 2;
const NODE_BYTES: u64 = 64 << 30;
const RESERVED: &str = "1Gi";

/// The policies that ask for hints: 2^8 sets of nodes for each resource.
const POLICIES: [&str; 3] = ["best-effort", "restricted", "single-numa-node"];

pub(super) fn measure(plan: &BenchPlan, report: &mut BenchReport) -> Result<()> {
    let mut took = Samples::default();
    for policy in POLICIES {
        fill(&node(policy)?, plan.many, &mut took)?;
    }
    let mut put = |key, value| report.put(AgentColumn::Oxlet, key, value);
    put("placement-median", took.median());
    put("placement-p99", took.p99());
    Ok(())
}

/// Admits so many pods one after the other, each of which keeps what it is assigned.
fn fill(node: &NodePlacement, pods: usize, took: &mut Samples) -> Result<()> {
    let mut held = HeldAssignments::new();
    for nth in 0..pods {
        let resources = json!({ "cpu": "2", "memory": "1Gi" });
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": format!("pod-{nth}"), "uid": format!("pod-{nth}") },
            "spec": { "containers": [{
                "name": "main",
                "image": "busybox",
                "resources": { "requests": resources, "limits": resources },
            }] },
        }))?;
        let before = Instant::now();
        let admission = node.topology.admit(&pod, &held);
        took.add(before.elapsed());
        let assignment = admission.with_context(|| format!("pod {nth} is refused"))?;
        held.insert(pod.uid(), Arc::new(assignment));
    }
    Ok(())
}

fn node(policy: &str) -> Result<NodePlacement> {
    let options = BTreeMap::new();
    let settings = TopologySettings {
        policy,
        scope: "container",
        options: &options,
        pod_level: PodLevelManagers::Off,
    };
    let topology = TopologyManager::new(&settings, distances()?)?;
    let settings = CpuSettings {
        policy: "static",
        options: &options,
        gates: OptionGates::default(),
        reserved_milli: Some(2_000),
        reserved: &CpuSet::default(),
        topology: topology.policy(),
        pod_level: PodLevelManagers::Off,
        quota: ExclusiveQuota::Off,
    };
    let cpus = CpuManager::new(&settings, machine()?)?;
    let amount = ResourceAmounts::from([("memory".to_owned(), Quantity::parse(RESERVED)?)]);
    let reservations = [MemoryReservation {
        node: 0,
        limits: amount.clone(),
    }];
    let settings = MemorySettings {
        policy: "Static",
        of_node: &amount,
        reservations: &reservations,
        pod_level: PodLevelManagers::Off,
    };
    let memory = NumaMemory {
        bytes: NODE_BYTES,
        huge_pages: BTreeMap::new(),
    };
    let memory = numa_nodes()?.into_iter().map(|node| (node, memory.clone()));
    let memory = MemoryManager::new(&settings, &memory.collect::<MachineMemory>())?;
    Ok(NodePlacement::new(topology, machine()?, cpus, memory))
}

fn numa_nodes() -> Result<Vec<NumaNodeId>> {
    let node = |number: u32| NumaNodeId::new(number.into()).context("no such NUMA node");
    (0..NODES).map(node).collect()
}

fn machine() -> Result<CpuMachine> {
    let (nodes, cores) = (numa_nodes()?, NODES * CORES_A_NODE);
    let place = |cpu: u32| {
        let core = cpu % cores;
        let on = core / CORES_A_NODE;
        let place = CpuPlace {
            core: CoreId(core),
            socket: SocketId(on / NODES_A_SOCKET),
            node: nodes[usize::try_from(on).unwrap_or(usize::MAX)],
            cache: UncoreCacheId(on),
        };
        (cpu, place)
    };
    Ok(CpuMachine::new((0..cores * THREADS).map(place).collect()))
}

fn distances() -> Result<NumaTopology> {
    let nodes = numa_nodes()?;
    let row = |from: &NumaNodeId| {
        let to = |to: &NumaNodeId| (*to, if from == to { 10 } else { 21 });
        (*from, nodes.iter().map(to).collect())
    };
    Ok(NumaTopology {
        distances: nodes.iter().map(row).collect(),
    })
}
