//! Every figure that is measured, in the order of the table, with what it should be.

mod cluster;
mod containerd;
mod many_pods;
mod node;

use std::sync::LazyLock;

use super::BenchPlan;

/// The node at rest.
pub const MEMORY: &str = "memory";
/// One thing happens.
pub const LATENCY: &str = "latency";
/// Probes, second after second.
pub const PROBES: &str = "probes";
/// Volumes of many pods.
pub const VOLUMES: &str = "volumes";
/// Everything happens at once.
pub const BURST: &str = "burst";
/// The kernel alone.
pub const KERNEL: &str = "kernel";
/// On a real runtime.
pub const CONTAINERD: &str = "containerd";
/// A node of a cluster.
pub const CLUSTER: &str = "cluster";
/// A node of a cluster, on a real runtime.
pub const CLUSTER_REAL: &str = "cluster-containerd";

/// The sections, in the order in which they are measured.
pub const SECTIONS: [&str; 9] = [
    MEMORY,
    LATENCY,
    PROBES,
    VOLUMES,
    BURST,
    KERNEL,
    CONTAINERD,
    CLUSTER,
    CLUSTER_REAL,
];

/// What a figure should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BenchGoal {
    /// No more than this.
    AtMost(f64),
    /// Less than this.
    Under(f64),
    /// It is only told.
    None,
}

impl BenchGoal {
    /// Whether a value is as it should be; none where nothing is asked of it.
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
    /// What programs call it.
    pub key: &'static str,
    /// Where it stands.
    pub section: &'static str,
    /// What people call it; `{many}` and the like are the plan's counts.
    pub text: &'static str,
    /// What it is counted in.
    pub unit: &'static str,
    /// What it should be.
    pub aim: BenchGoal,
}

impl Figure {
    /// Returns what people call it, in a run of this plan.
    pub fn name(&self, plan: &BenchPlan) -> String {
        self.text
            .replace("{many}", &plan.many.to_string())
            .replace("{most}", &plan.most.to_string())
            .replace("{real}", &plan.real_pods.to_string())
            .replace("{crowd}", &plan.api_crowd.to_string())
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

/// The table.
pub static FIGURES: LazyLock<Vec<Figure>> = LazyLock::new(|| {
    [
        node::FIGURES,
        many_pods::FIGURES,
        containerd::FIGURES,
        cluster::FIGURES,
    ]
    .concat()
});
