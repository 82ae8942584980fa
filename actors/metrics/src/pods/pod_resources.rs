//! Requests at the pod resources API's socket. Upstream: pkg/kubelet/metrics (1.36).

use std::sync::LazyLock;

use prometheus::IntCounterVec;

use crate::registry::counters;

const LABELS: [&str; 1] = ["server_api_version"];

pub static REQUESTS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_pod_resources_endpoint_requests_total",
        "Cumulative number of requests to the PodResource endpoint. Broken down by server api version.",
        &LABELS,
    )
});

pub static LISTS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_pod_resources_endpoint_requests_list",
        "Number of requests to the PodResource List endpoint. Broken down by server api version.",
        &LABELS,
    )
});

pub static GETS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_pod_resources_endpoint_requests_get",
        "Number of requests to the PodResource Get endpoint. Broken down by server api version.",
        &LABELS,
    )
});

pub static ALLOCATABLES: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_pod_resources_endpoint_requests_get_allocatable",
        "Number of requests to the PodResource GetAllocatableResources endpoint. Broken down by server api version.",
        &LABELS,
    )
});

pub static LIST_ERRORS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_pod_resources_endpoint_errors_list",
        "Number of requests to the PodResource List endpoint which returned error. Broken down by server api version.",
        &LABELS,
    )
});

pub static GET_ERRORS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_pod_resources_endpoint_errors_get",
        "Number of requests to the PodResource Get endpoint which returned error. Broken down by server api version.",
        &LABELS,
    )
});

pub static ALLOCATABLE_ERRORS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_pod_resources_endpoint_errors_get_allocatable",
        "Number of requests to the PodResource GetAllocatableResources endpoint which returned error. Broken down by server api version.",
        &LABELS,
    )
});

pub(crate) fn declare() {
    for counters in [
        &REQUESTS,
        &LISTS,
        &GETS,
        &ALLOCATABLES,
        &LIST_ERRORS,
        &GET_ERRORS,
        &ALLOCATABLE_ERRORS,
    ] {
        LazyLock::force(counters);
    }
}
