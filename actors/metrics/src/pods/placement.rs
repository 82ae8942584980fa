//! What pods get to themselves: CPUs, memory, and whether it lies together. Upstream: pkg/kubelet/metrics/metrics.go
//! (1.36).

use std::sync::LazyLock;

use prometheus::{Gauge, GaugeVec, Histogram, IntCounter, IntCounterVec};

use crate::registry::{counter, counters, gauge, gauges, histogram};

/// Containers that were to have CPUs to themselves.
pub static CPU_REQUESTS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_cpu_manager_pinning_requests_total",
        "The number of cpu core allocations which required pinning.",
    )
});

/// Those of them that could not have them.
pub static CPU_ERRORS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_cpu_manager_pinning_errors_total",
        "The number of cpu core allocations which required pinning failed.",
    )
});

/// Thousandths of CPU that all containers without CPUs of their own share.
pub static SHARED_CPUS: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_cpu_manager_shared_pool_size_millicores",
        "The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.",
    )
});

/// CPUs that containers have to themselves.
pub static EXCLUSIVE_CPUS: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_cpu_manager_exclusive_cpu_allocation_count",
        "The total number of CPUs exclusively allocated to containers running on this node",
    )
});

/// The same of each NUMA node.
pub static CPUS_BY_NODE: LazyLock<GaugeVec> = LazyLock::new(|| {
    gauges(
        "kubelet_cpu_manager_allocation_per_numa",
        "Number of CPUs allocated per NUMA node",
        &["numa_node"],
    )
});

/// Containers that were to have memory of certain NUMA nodes.
pub static MEMORY_REQUESTS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_memory_manager_pinning_requests_total",
        "The number of memory pages allocations which required pinning.",
    )
});

/// Those of them that could not have it.
pub static MEMORY_ERRORS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_memory_manager_pinning_errors_total",
        "The number of memory pages allocations which required pinning that failed.",
    )
});

/// Containers and pods that were assigned what lies within one core, NUMA node or cache.
pub static ALIGNED: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_container_aligned_compute_resources_count",
        "Cumulative number of aligned compute resources allocated to containers by alignment type.",
        &["scope", "boundary"],
    )
});

/// Those that were refused because theirs would not.
pub static NOT_ALIGNED: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_container_aligned_compute_resources_failure_count",
        "Cumulative number of failures to allocate aligned compute resources to containers by alignment type.",
        &["scope", "boundary"],
    )
});

/// Allocations out of what the node has, or a pod as a whole. This and the two below have series under the feature gate
/// `PodLevelResourceManagers` alone.
pub static ALLOCATIONS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "resource_manager_allocations_total",
        "Number of exclusive resource allocations performed by a resource manager.",
        &["resource_name", "source"],
    )
});

/// Allocations that failed.
pub static ALLOCATION_ERRORS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "resource_manager_allocation_errors_total",
        "Number of errors encountered during exclusive resource allocation.",
        &["resource_name", "source"],
    )
});

/// Containers by whether they share what they were allocated.
pub static ASSIGNMENTS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "resource_manager_container_assignments",
        "Number of containers with a specific type of resource assignment.",
        &["resource_name", "assignment_type"],
    )
});

/// Pods that the topology manager had to admit.
pub static ADMISSIONS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_topology_manager_admission_requests_total",
        "The number of admission requests where resources have to be aligned.",
    )
});

/// Those of them that it refused.
pub static REFUSALS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_topology_manager_admission_errors_total",
        "The number of admission request failures where resources could not be aligned.",
    )
});

/// How long they took, in milliseconds.
pub static ADMISSION_DURATION: LazyLock<Histogram> = LazyLock::new(|| {
    histogram(
        "kubelet_topology_manager_admission_duration_ms",
        "Duration in milliseconds to serve a pod admission request.",
        &BUCKETS,
    )
});

const BUCKETS: [f64; 15] = [
    0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6, 819.2,
];

pub(crate) fn declare() {
    for counter in [
        &CPU_REQUESTS,
        &CPU_ERRORS,
        &MEMORY_REQUESTS,
        &MEMORY_ERRORS,
        &ADMISSIONS,
        &REFUSALS,
    ] {
        LazyLock::force(counter);
    }
    for counters in [
        &ALIGNED,
        &NOT_ALIGNED,
        &ALLOCATIONS,
        &ALLOCATION_ERRORS,
        &ASSIGNMENTS,
    ] {
        LazyLock::force(counters);
    }
    for gauge in [&SHARED_CPUS, &EXCLUSIVE_CPUS] {
        LazyLock::force(gauge);
    }
    LazyLock::force(&CPUS_BY_NODE);
    LazyLock::force(&ADMISSION_DURATION);
}
