//! Metrics of containers, by cAdvisor's names, as runtimes make them for the kubelet's `/metrics/cadvisor`.

use proto::cri::{ContainerMetrics, Metric, MetricDescriptor, MetricType, PodSandboxMetrics};

use super::{Measured, wire};
use crate::clock;
use crate::record::SandboxRecord;

/// One family: its name, its help, its kind, and its value.
struct Family {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    value: fn(&Measured) -> Option<u64>,
}

const FAMILIES: [Family; 5] = [
    Family {
        name: "container_memory_usage_bytes",
        help: "Current memory usage in bytes, including all memory regardless of when it was accessed",
        kind: MetricType::Gauge,
        value: |measured| measured.usage.memory_bytes,
    },
    Family {
        name: "container_memory_working_set_bytes",
        help: "Current working set in bytes.",
        kind: MetricType::Gauge,
        value: |measured| measured.usage.working_set_bytes,
    },
    Family {
        name: "container_memory_rss",
        help: "Size of RSS in bytes.",
        kind: MetricType::Gauge,
        value: |measured| measured.usage.rss_bytes,
    },
    Family {
        name: "container_cpu_usage_seconds_total",
        help: "Cumulative cpu time consumed in seconds.",
        kind: MetricType::Counter,
        value: |measured| {
            let nanos = measured.usage.cpu_nanos?;
            Some(nanos / 1_000_000_000)
        },
    },
    Family {
        name: "container_processes",
        help: "Number of processes running inside the container.",
        kind: MetricType::Gauge,
        value: |measured| measured.usage.processes,
    },
];

/// Returns the families.
pub(crate) fn descriptors() -> Vec<MetricDescriptor> {
    let labels = ["container", "id", "namespace", "pod"].map(str::to_owned);
    let family = |family: &Family| MetricDescriptor {
        name: family.name.to_owned(),
        help: family.help.to_owned(),
        label_keys: labels.to_vec(),
    };
    FAMILIES.iter().map(family).collect()
}

/// Returns the samples of a pod's containers.
pub(crate) fn of_pod(sandbox: &SandboxRecord, measured: &[Measured]) -> PodSandboxMetrics {
    PodSandboxMetrics {
        pod_sandbox_id: sandbox.id.clone(),
        metrics: Vec::new(),
        container_metrics: measured
            .iter()
            .map(|one| of_container(sandbox, one))
            .collect(),
    }
}

fn of_container(sandbox: &SandboxRecord, measured: &Measured) -> ContainerMetrics {
    let pod = sandbox.config.0.metadata.clone().unwrap_or_default();
    let own = measured.record.config.0.metadata.clone();
    let id = measured.record.id.clone();
    let labels = vec![
        own.unwrap_or_default().name,
        id.clone(),
        pod.namespace,
        pod.name,
    ];
    let known = FAMILIES
        .iter()
        .filter_map(|family| Some((family, (family.value)(measured)?)));
    let metrics = known.map(|(family, value)| Metric {
        name: family.name.to_owned(),
        timestamp: clock::now(),
        metric_type: family.kind.into(),
        label_values: labels.clone(),
        value: wire(Some(value)),
    });
    ContainerMetrics {
        container_id: id,
        metrics: metrics.collect(),
    }
}
