//! From which NUMA nodes so many CPUs could come.
//!
//! Mirrors upstream's generateCPUTopologyHints of cpumanager/policy_static.go at v1.36. All sets of nodes are looked at,
//! which are 2^n - 1 of n: the topology manager lets no policy ask for them on more nodes than its options allow.

use std::collections::BTreeMap;

use super::cpu_set::CpuSet;
use super::options::CpuPolicyOption;
use super::policy::StaticPolicy;
use crate::topology::{NumaMask, NumaNodeId, TopologyHint};

/// Finds hints for so many CPUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct HintFinder<'a> {
    policy: &'a StaticPolicy,
    count: u32,
}

impl<'a> HintFinder<'a> {
    pub(super) fn new(policy: &'a StaticPolicy, count: u32) -> Self {
        Self { policy, count }
    }

    /// Every set of nodes that has all of the CPUs that are used again, and enough with those that are available. Sets as
    /// small as this machine allows are preferred.
    pub(super) fn hints(&self, available: &CpuSet, reused: &CpuSet) -> Vec<TopologyHint> {
        let nodes = self.policy.machine.nodes();
        let count_of = |cpus: &CpuSet| -> BTreeMap<NumaNodeId, u32> {
            let of_node = |(id, all): (&NumaNodeId, &CpuSet)| (*id, all.common(cpus));
            nodes.iter().map(of_node).collect()
        };
        let (free, again) = (count_of(available), count_of(reused));
        let has_again = again.iter().filter(|(_, count)| **count > 0);
        let has_again: NumaMask = has_again.map(|(id, _)| *id).collect();
        let fits = |mask: &NumaMask| {
            let free = sum(&free, *mask) + sum(&again, *mask);
            has_again & *mask == has_again && free >= self.count
        };
        let least = self.least_nodes();
        let hint = |mask| TopologyHint {
            nodes: Some(mask),
            preferred: mask.len() == least || self.is_socket_aligned(mask, least),
        };
        let all = self.policy.machine.node_mask();
        all.subsets().filter(fits).map(hint).collect()
    }

    /// How many nodes would have enough CPUs at least if all of them were free.
    fn least_nodes(&self) -> u32 {
        let nodes = self.policy.machine.nodes().values();
        let mut sizes: Vec<u32> = nodes.map(CpuSet::len).collect();
        sizes.sort_unstable_by(|one, other| other.cmp(one));
        let (mut count, mut sum) = (0, 0_u32);
        for size in sizes {
            if sum >= self.count {
                break;
            }
            sum += size;
            count += 1;
        }
        count
    }

    /// Whether the nodes lie on as few sockets as that many nodes would need.
    fn is_socket_aligned(&self, mask: NumaMask, least: u32) -> bool {
        let machine = &self.policy.machine;
        let per_socket = machine.nodes().len().checked_div(machine.sockets().len());
        let per_socket = per_socket.and_then(|count| u32::try_from(count).ok());
        let Some(per_socket) = per_socket.filter(|count| *count > 0) else {
            return false;
        };
        let sockets = u32::try_from(machine.sockets_in_nodes(mask).len());
        self.policy.has(CpuPolicyOption::AlignBySocket) && sockets == Ok(least.div_ceil(per_socket))
    }
}

fn sum(counts: &BTreeMap<NumaNodeId, u32>, mask: NumaMask) -> u32 {
    mask.nodes().filter_map(|node| counts.get(&node)).sum()
}
