//! Decisions about the resources of the node: QoS classes, what a runtime and a cgroup enforce, when the node runs
//! short and which pod goes, what is collected as garbage, and how usage is summed up (upstream's pkg/kubelet/cm,
//! eviction, stats).

pub mod cgroups;
pub mod container_gc;
pub mod eviction;
pub mod gc;
pub mod group_stats;
pub mod image_gc;
pub mod node;
pub mod oom;
pub mod qos;
pub mod resources;
pub mod summary;
#[cfg(test)]
mod testing;
pub mod thresholds;
