//! Every figure that is measured, in the order of the table, with what it should be.

mod cluster;
mod containerd;
mod full_node;
mod many_pods;
mod node;
mod runtimes;
mod scrapes;

use std::sync::LazyLock;

use super::BenchPlan;

/// Section: memory and processor time of a node at rest.
pub const MEMORY: &str = "memory";
/// Section: latency of single changes.
pub const LATENCY: &str = "latency";
/// Section: cost and punctuality of probes.
pub const PROBES: &str = "probes";
/// Section: volumes of many pods.
pub const VOLUMES: &str = "volumes";
/// Section: many pods at once, and restarts of the agent.
pub const BURST: &str = "burst";
/// Section: the actor kernel alone.
pub const KERNEL: &str = "kernel";
/// Section: admission of pods with CPUs and memory of their own, on a large machine.
pub const PLACEMENT: &str = "placement";
/// Section: a node on a real containerd.
pub const CONTAINERD: &str = "containerd";
/// Section: a node of a cluster, on the fake runtime.
pub const CLUSTER: &str = "cluster";
/// Section: a node of a cluster, on a real containerd.
pub const CLUSTER_REAL: &str = "cluster-containerd";

/// Section: what scrapes of a node on a real containerd take and cost.
pub const SCRAPES: &str = "scrapes";
/// Section: eviction against the kernel's OOM killer, on a real containerd.
pub const EVICTION: &str = "eviction";
/// Section: the same node on containerd and on the native runtime.
pub const RUNTIMES: &str = "runtimes";
/// Section: very many pods on the native runtime.
pub const FULL_NODE: &str = "full-node";

/// The sections, in the order in which they are measured.
pub const SECTIONS: [&str; 14] = [
    MEMORY,
    LATENCY,
    PROBES,
    VOLUMES,
    BURST,
    KERNEL,
    PLACEMENT,
    CONTAINERD,
    CLUSTER,
    CLUSTER_REAL,
    SCRAPES,
    EVICTION,
    RUNTIMES,
    FULL_NODE,
];

/// The goal of a figure, in the figure's unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BenchGoal {
    /// The value is at most this.
    AtMost(f64),
    /// The value is less than this.
    Under(f64),
    /// No goal: the value is only reported.
    None,
}

impl BenchGoal {
    /// Whether a value meets the goal; none if there is no goal.
    pub fn met(self, value: f64) -> Option<bool> {
        match self {
            BenchGoal::AtMost(most) => Some(value <= most),
            BenchGoal::Under(bound) => Some(value < bound),
            BenchGoal::None => None,
        }
    }
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The key in JSON.
    pub key: &'static str,
    /// The section, one of [`SECTIONS`].
    pub section: &'static str,
    /// The text in the table; `{many}` and the like are the plan's counts.
    pub text: &'static str,
    /// The unit, as printed.
    pub unit: &'static str,
    /// The goal that it is judged by.
    pub aim: BenchGoal,
}

impl Figure {
    /// Returns the text in the table, with the counts of this plan.
    pub fn name(&self, plan: &BenchPlan) -> String {
        self.text
            .replace("{many}", &plan.many.to_string())
            .replace("{most}", &plan.most.to_string())
            .replace("{real}", &plan.real_pods.to_string())
            .replace("{crowd}", &plan.api_crowd.to_string())
            .replace("{eaters}", &plan.eaters.to_string())
    }
}

const fn figure(
    key: &'static str,
    section: &'static str,
    text: &'static str,
    unit: &'static str,
    aim: BenchGoal,
) -> Figure {
    Figure {
        key,
        section,
        text,
        unit,
        aim,
    }
}

/// All figures, in the order of the table.
pub static FIGURES: LazyLock<Vec<Figure>> = LazyLock::new(|| {
    [
        node::FIGURES,
        many_pods::FIGURES,
        containerd::FIGURES,
        cluster::FIGURES,
        scrapes::FIGURES,
        runtimes::FIGURES,
        full_node::FIGURES,
    ]
    .concat()
});
