//! Random machines, and the managers of a node on each.

use std::collections::BTreeMap;

use logic_api::pod::requests::{ResourceAmounts, quantity};
use logic_api::quantity::QuantityFormat;
use logic_api::testing::string_map;
use proptest::prelude::*;
use proptest::sample::select;

use crate::NodePlacement;
use crate::cpus::{
    CoreId, CpuMachine, CpuManager, CpuPlace, CpuSet, CpuSettings, ExclusiveQuota, OptionGate,
    OptionGates, SocketId, UncoreCacheId,
};
use crate::devices::ListedDevice;
use crate::memory::{MachineMemory, MemoryManager, MemoryReservation, MemorySettings, NumaMemory};
use crate::topology::{
    NumaNodeId, NumaTopology, PodLevelManagers, TopologyManager, TopologySettings,
};

const MI: u64 = 1 << 20;
const GI: u64 = 1 << 30;

/// Options of the CPU manager; those that a machine does not take are left out.
type CpuOptions = &'static [&'static str];

const CPU_OPTIONS: [CpuOptions; 7] = [
    &[],
    &["full-pcpus-only"],
    &["distribute-cpus-across-numa"],
    &["distribute-cpus-across-cores"],
    &["prefer-align-cpus-by-uncorecache", "full-pcpus-only"],
    &["align-by-socket"],
    &["strict-cpu-reservation"],
];

/// A machine and its node's configuration.
#[derive(Clone, Debug)]
pub(super) struct MachinePlan {
    /// MiB of memory that pods may have, and huge pages of 1 GiB, of each NUMA node.
    pub(super) memory: Vec<(u64, u64)>,
    /// Of each NUMA node.
    pub(super) cores: u32,
    pub(super) threads: u32,
    pub(super) nodes_a_socket: u32,
    pub(super) caches_a_node: u32,
    pub(super) reserved_cpus: u32,
    pub(super) reserved_mib: u64,
    pub(super) cpu_policy: &'static str,
    pub(super) cpu_options: CpuOptions,
    pub(super) memory_policy: &'static str,
    pub(super) topology: (&'static str, &'static str),
    pub(super) pod_level: PodLevelManagers,
    /// Of each resource of [`RESOURCES`]: the bits of the NUMA nodes that each device is close to. Where the first one has
    /// none, the plugin says nothing about any.
    pub(super) devices: [Vec<u8>; 2],
}

/// What device plugins have.
pub(super) const RESOURCES: [&str; 2] = ["vendor.com/gpu", "vendor.com/nic"];

pub(super) fn machines() -> impl Strategy<Value = MachinePlan> {
    let memory = prop::collection::vec((1000..9000_u64, 0..4_u64), 1..5);
    let cpus = (1..7_u32, 1..3_u32, 1..3_u32, 1..3_u32, 1..3_u32);
    let policies = (
        select(vec!["static", "static", "static", "none"]),
        select(CPU_OPTIONS.to_vec()),
        select(vec!["Static", "Static", "Static", "None"]),
        select(vec![
            "none",
            "best-effort",
            "restricted",
            "single-numa-node",
        ]),
        select(vec!["container", "pod"]),
        select(vec![PodLevelManagers::On, PodLevelManagers::Off]),
    );
    let devices = || prop::collection::vec(0..16_u8, 0..6);
    let rest = (0..600_u64, [devices(), devices()]);
    (memory, cpus, policies, rest).prop_map(|(memory, cpus, policies, rest)| MachinePlan {
        memory,
        cores: cpus.0,
        threads: cpus.1,
        nodes_a_socket: cpus.2,
        caches_a_node: cpus.3,
        reserved_cpus: cpus.4,
        reserved_mib: rest.0,
        cpu_policy: policies.0,
        cpu_options: policies.1,
        memory_policy: policies.2,
        topology: (policies.3, policies.4),
        pod_level: policies.5,
        devices: rest.1,
    })
}

fn node(number: u32) -> NumaNodeId {
    NumaNodeId::new(number.into()).unwrap()
}

impl MachinePlan {
    /// The managers, as an agent makes them whenever it starts.
    pub(super) fn placement(&self) -> NodePlacement {
        let (scope, options) = (self.topology.1, BTreeMap::new());
        let settings = TopologySettings {
            policy: self.topology.0,
            scope,
            options: &options,
            pod_level: self.pod_level,
        };
        let topology = TopologyManager::new(&settings, self.numa()).unwrap();
        let cpus = self.cpus(&topology, self.cpu_options);
        let cpus = cpus.or_else(|| self.cpus(&topology, &[])).unwrap();
        NodePlacement::new(topology, self.machine(), cpus, self.memory())
    }

    fn nodes(&self) -> u32 {
        u32::try_from(self.memory.len()).unwrap()
    }

    fn machine(&self) -> CpuMachine {
        let cores = self.nodes() * self.cores;
        let place = |cpu: u32| {
            let core = cpu % cores;
            let on = core / self.cores;
            let of_node = core % self.cores * self.caches_a_node / self.cores;
            CpuPlace {
                core: CoreId(core),
                socket: SocketId(on / self.nodes_a_socket),
                node: node(on),
                cache: UncoreCacheId(on * self.caches_a_node + of_node),
            }
        };
        let cpus = 0..cores * self.threads;
        CpuMachine::new(cpus.map(|cpu| (cpu, place(cpu))).collect())
    }

    fn numa(&self) -> NumaTopology {
        let row = |from: u32| {
            let to = |to: u32| (node(to), if from == to { 10 } else { 20 });
            (node(from), (0..self.nodes()).map(to).collect())
        };
        NumaTopology {
            distances: (0..self.nodes()).map(row).collect(),
        }
    }

    /// None where these options do not go with the rest.
    fn cpus(&self, topology: &TopologyManager, options: CpuOptions) -> Option<CpuManager> {
        let options = options.iter().map(|option| (*option, "true"));
        let settings = CpuSettings {
            policy: self.cpu_policy,
            options: &string_map(&options.collect::<Vec<_>>()),
            gates: OptionGates {
                alpha: OptionGate::Open,
                beta: OptionGate::Open,
            },
            reserved_milli: Some(i64::from(self.reserved_cpus.min(self.cores)) * 1000),
            reserved: &CpuSet::default(),
            topology: topology.policy(),
            pod_level: self.pod_level,
            quota: ExclusiveQuota::Off,
        };
        CpuManager::new(&settings, self.machine()).ok()
    }

    fn memory(&self) -> MemoryManager {
        let reserved = (self.reserved_mib + 1) * MI;
        let amount = |bytes: u64| {
            let amount = quantity(i64::try_from(bytes).unwrap(), QuantityFormat::BinarySI);
            ResourceAmounts::from([("memory".to_owned(), amount)])
        };
        let nodes = 0..self.nodes();
        let reservation = |number: u32| MemoryReservation {
            node: number.try_into().unwrap(),
            limits: amount(reserved),
        };
        let reservations: Vec<_> = nodes.clone().map(reservation).collect();
        let settings = MemorySettings {
            policy: self.memory_policy,
            of_node: &amount(reserved * u64::from(self.nodes())),
            reservations: &reservations,
            pod_level: self.pod_level,
        };
        let memory = |(mib, huge): &(u64, u64)| NumaMemory {
            bytes: mib * MI + huge * GI + reserved,
            huge_pages: BTreeMap::from([(GI, *huge)]),
        };
        let machine: MachineMemory = nodes
            .map(node)
            .zip(self.memory.iter().map(memory))
            .collect();
        MemoryManager::new(&settings, &machine).unwrap()
    }

    /// What a plugin lists: of its devices those whose bit is in `there`, healthy where it is in `healthy` too.
    pub(super) fn listed(&self, resource: usize, there: u8, healthy: u8) -> Vec<ListedDevice> {
        let devices = &self.devices[resource];
        let is_placed = devices.first().is_some_and(|close| *close != 0);
        let devices = devices.iter().enumerate();
        let listed = devices.filter(|(bit, _)| there >> bit & 1 == 1);
        let device = |(bit, close): (usize, &u8)| ListedDevice {
            id: format!("{}-{bit}", ["gpu", "nic"][resource]),
            health: match healthy >> bit & 1 {
                1 => "Healthy".to_owned(),
                _ => "Unhealthy".to_owned(),
            },
            nodes: match is_placed {
                true => self.close(*close),
                false => Vec::new(),
            },
        };
        listed.map(device).collect()
    }

    /// The nodes of these bits; the first one where the machine has none of them.
    fn close(&self, bits: u8) -> Vec<i64> {
        let nodes = (0..self.nodes()).filter(|node| bits >> node & 1 == 1);
        let nodes: Vec<i64> = nodes.map(i64::from).collect();
        if nodes.is_empty() { vec![0] } else { nodes }
    }
}
