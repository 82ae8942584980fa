//! CPUs spread evenly over as few NUMA nodes as can give them (`distribute-cpus-across-numa`, KEP-2902).

use super::{Accumulator, CachePreference, CpuOrder, NotEnoughCpus, take_packed};
use crate::cpus::cpu_set::CpuSet;
use crate::cpus::machine::CpuMachine;
use crate::topology::NumaNodeId;

/// The most sets of NUMA nodes that are compared, each with every part of it that could give the remainder: on eight
/// nodes there are 6,560. A machine with so many more nodes that they do not suffice has its CPUs packed.
pub(super) const MAX_COMBINATIONS: usize = 10_000;

/// So many of the available CPUs, in groups of a size that stay on one NUMA node.
///
/// # Errors
///
/// Fewer are available.
pub(in crate::cpus) fn take_distributed(
    machine: &CpuMachine,
    available: &CpuSet,
    count: u32,
    group: u32,
    order: CpuOrder,
) -> Result<CpuSet, NotEnoughCpus> {
    let accumulator = Accumulator::new(machine, available, count, order)?;
    if count == 0 {
        return Ok(CpuSet::default());
    }
    let best = || NodeCombinations::new(&accumulator, group).best();
    match count.is_multiple_of(group).then(best).flatten() {
        Some(share) => Ok(accumulator.take_share(&share, group)),
        None => take_packed(machine, available, count, order, CachePreference::Any),
    }
}

/// How many CPUs come from which NUMA nodes.
#[derive(Clone, Debug)]
struct Share {
    /// Each gives the same number of CPUs.
    nodes: Vec<Node>,
    even: u32,
    /// Those that give a group of the remainder each, in turn; one may have several turns.
    turns: Vec<Node>,
    /// How unequal the free CPUs of all nodes are then: their standard deviation, to three decimals.
    imbalance: f64,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Its place among all nodes that are tried.
    index: usize,
    id: NumaNodeId,
}

/// Compares sets of NUMA nodes.
#[derive(Debug)]
pub(super) struct NodeCombinations {
    nodes: Vec<Node>,
    /// The free CPUs of each node.
    free: Vec<u32>,
    needed: u32,
    group: u32,
    /// How many nodes could suffice, at least and at most.
    sizes: (usize, usize),
    /// How many sets have been compared.
    tried: usize,
}

impl NodeCombinations {
    pub(super) fn new(accumulator: &Accumulator<'_>, group: u32) -> Self {
        let machine = accumulator.machine;
        let ids = accumulator.nodes().into_iter().enumerate();
        let nodes: Vec<Node> = ids.map(|(index, id)| Node { index, id }).collect();
        let free_of = |node: &Node| {
            let cpus = machine.nodes().get(&node.id);
            cpus.map_or(0, |cpus| cpus.common(&accumulator.free))
        };
        let needed = accumulator.needed.div_ceil(group);
        let per_node = machine.cpus().len().div_ceil(group);
        let per_node = per_node.div_ceil(u32::try_from(machine.nodes().len()).unwrap_or(u32::MAX));
        let least = usize::try_from(needed.div_ceil(per_node)).unwrap_or(usize::MAX);
        let most = usize::try_from(needed).unwrap_or(usize::MAX);
        Self {
            free: nodes.iter().map(free_of).collect(),
            sizes: (least, most.min(nodes.len())),
            nodes,
            needed: accumulator.needed,
            group,
            tried: 0,
        }
    }

    /// The most balanced share of the smallest number of nodes that there is one of.
    fn best(&mut self) -> Option<Share> {
        let (least, most) = self.sizes;
        (least..=most).find_map(|size| self.best_of_size(size))
    }

    /// How many sets it takes to find the best; for tests of the bound.
    #[cfg(test)]
    pub(super) fn count(mut self) -> usize {
        self.best();
        self.tried
    }

    fn best_of_size(&mut self, size: usize) -> Option<Share> {
        let mut best: Option<Share> = None;
        for nodes in subsets(&self.nodes, size) {
            if self.tried >= MAX_COMBINATIONS || best.as_ref().is_some_and(Share::is_perfect) {
                break;
            }
            self.tried += 1;
            let share = self.share(nodes);
            best = more_balanced(best, share);
        }
        best
    }

    /// What these nodes would give each; none where they have too little for that.
    fn share(&mut self, nodes: Vec<Node>) -> Option<Share> {
        let count = u32::try_from(nodes.len()).ok()?;
        let even = self.needed / count / self.group * self.group;
        let free = |node: &Node| self.free[node.index];
        let groups: u32 = nodes.iter().map(|node| free(node) / self.group).sum();
        if groups * self.group < self.needed || nodes.iter().any(|node| free(node) < even) {
            return None;
        }
        let mut left = self.free.clone();
        nodes.iter().for_each(|node| left[node.index] -= even);
        let remainder = self.needed - even * count;
        if remainder == 0 {
            return Some(Share {
                imbalance: standard_deviation(&left),
                turns: Vec::new(),
                nodes,
                even,
            });
        }
        let able = nodes.iter().copied();
        let able: Vec<Node> = able.filter(|node| left[node.index] >= self.group).collect();
        let mut best = None;
        for extra in (1..=able.len()).rev().flat_map(|size| subsets(&able, size)) {
            if self.tried >= MAX_COMBINATIONS {
                break;
            }
            self.tried += 1;
            let given = give_in_turn(&extra, &left, remainder, self.group);
            let share = given.map(|(turns, left)| Share {
                nodes: nodes.clone(),
                even,
                turns,
                imbalance: standard_deviation(&left),
            });
            best = more_balanced(best, share);
        }
        best
    }
}

/// Whose turn it is until these nodes have given the remainder, and what every node has left then; none where they do
/// not have it.
fn give_in_turn(
    nodes: &[Node],
    left: &[u32],
    remainder: u32,
    group: u32,
) -> Option<(Vec<Node>, Vec<u32>)> {
    let (mut left, mut turns) = (left.to_vec(), Vec::new());
    let mut groups = remainder / group;
    while groups > 0 {
        let before = groups;
        for node in nodes {
            if groups > 0 && left[node.index] >= group {
                left[node.index] -= group;
                turns.push(*node);
                groups -= 1;
            }
        }
        if groups == before {
            return None;
        }
    }
    Some((turns, left))
}

impl Share {
    fn is_perfect(&self) -> bool {
        self.imbalance == 0.0
    }
}

/// The one that leaves the nodes less unequal; the first one of equals.
fn more_balanced(best: Option<Share>, other: Option<Share>) -> Option<Share> {
    match (best, other) {
        (Some(best), Some(other)) if other.imbalance < best.imbalance => Some(other),
        (Some(best), _) => Some(best),
        (None, other) => other,
    }
}

impl Accumulator<'_> {
    fn take_share(mut self, share: &Share, group: u32) -> CpuSet {
        for node in &share.nodes {
            self.take_from(node.id, share.even);
        }
        for node in &share.turns {
            self.take_from(node.id, group);
        }
        self.into_taken()
    }

    /// Takes CPUs of one node if it has that many.
    fn take_from(&mut self, node: NumaNodeId, count: u32) {
        let Some(cpus) = self.machine.nodes().get(&node) else {
            return;
        };
        let free = cpus.intersection(&self.free);
        let packed = take_packed(self.machine, &free, count, self.order, CachePreference::Any);
        if let Ok(cpus) = packed {
            self.take(&cpus);
        }
    }
}

/// Every set of so many of the nodes, in the order of the nodes.
fn subsets(nodes: &[Node], size: usize) -> impl Iterator<Item = Vec<Node>> + use<> {
    let mut chosen: Option<Vec<usize>> = (size <= nodes.len()).then(|| (0..size).collect());
    let nodes = nodes.to_vec();
    std::iter::from_fn(move || {
        let current = chosen.take()?;
        chosen = successor(&current, nodes.len());
        Some(current.iter().map(|index| nodes[*index]).collect())
    })
}

/// The choice after this one among so many: the last index that can go up does, and those after it follow.
fn successor(chosen: &[usize], among: usize) -> Option<Vec<usize>> {
    let size = chosen.len();
    let can_go_up = |at: &usize| chosen[*at] + size - *at < among;
    let at = (0..size).rev().find(can_go_up)?;
    let from = chosen[at] + 1;
    let tail = from..from + size - at;
    Some(chosen[..at].iter().copied().chain(tail).collect())
}

/// Rounded to three decimals at both steps, as upstream's, so that the same shares are equal.
fn standard_deviation(values: &[u32]) -> f64 {
    let count = f64::from(u32::try_from(values.len()).unwrap_or(u32::MAX));
    let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
    let mean = rounded(values.iter().copied().map(f64::from).sum::<f64>() / count);
    let squares = values
        .iter()
        .map(|value| (f64::from(*value) - mean).powi(2));
    rounded((squares.sum::<f64>() / count).sqrt())
}
