//! Metrics of simulated containers, as a runtime makes them for the kubelet's `/metrics/cadvisor`.

use proto::cri::{
    ContainerMetrics, Metric, MetricDescriptor, MetricType, PodSandboxMetrics, UInt64Value,
};

use crate::node::{SimulatedNode, stats};
use crate::state::{FakeContainer, FakeSandbox};

/// The memory that a container uses.
const MEMORY: &str = "container_memory_usage_bytes";
/// The CPU time that a container has used.
const CPU: &str = "container_cpu_usage_seconds_total";

/// Returns the families.
pub(crate) fn descriptors() -> Vec<MetricDescriptor> {
    let family = |(name, help): (&str, &str)| MetricDescriptor {
        name: name.to_owned(),
        help: help.to_owned(),
        label_keys: ["container", "id", "namespace", "pod"]
            .map(str::to_owned)
            .into(),
    };
    let families = [
        (
            MEMORY,
            "Current memory usage in bytes, including all memory regardless of when it was accessed",
        ),
        (CPU, "Cumulative cpu time consumed in seconds."),
    ];
    families.into_iter().map(family).collect()
}

/// Returns the samples of a pod's running containers.
pub(crate) fn sandbox(node: &SimulatedNode, sandbox: &FakeSandbox) -> PodSandboxMetrics {
    let containers = sandbox
        .containers
        .iter()
        .filter_map(|seq| node.state.containers.get(seq));
    let running = containers.filter(|container| container.running());
    PodSandboxMetrics {
        pod_sandbox_id: node.state.id(sandbox.record.seq),
        metrics: Vec::new(),
        container_metrics: running
            .map(|container| of_container(node, sandbox, container))
            .collect(),
    }
}

fn of_container(
    node: &SimulatedNode,
    sandbox: &FakeSandbox,
    container: &FakeContainer,
) -> ContainerMetrics {
    let stats = stats::container(node, container, "");
    let id = node.state.id(container.record.seq);
    let pod = sandbox.config().metadata.unwrap_or_default();
    let name = container.config().metadata.unwrap_or_default().name;
    let labels = vec![name, id.clone(), pod.namespace, pod.name];
    let sample = |name: &str, kind: MetricType, value: Option<UInt64Value>| Metric {
        name: name.to_owned(),
        timestamp: 0,
        metric_type: kind.into(),
        label_values: labels.clone(),
        value,
    };
    let seconds = |nanoseconds: UInt64Value| UInt64Value {
        value: nanoseconds.value / 1_000_000_000,
    };
    let memory = stats.memory.and_then(|memory| memory.usage_bytes);
    let cpu = stats.cpu.and_then(|cpu| cpu.usage_core_nano_seconds);
    ContainerMetrics {
        container_id: id,
        metrics: vec![
            sample(MEMORY, MetricType::Gauge, memory),
            sample(CPU, MetricType::Counter, cpu.map(seconds)),
        ],
    }
}
