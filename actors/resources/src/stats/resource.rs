//! `/metrics/resource`: what the node, its pods and their containers take, for the metrics server. Upstream:
//! pkg/kubelet/metrics/collectors/resource_metrics.go (1.36).

use std::time::SystemTime;

use jiff::Timestamp;
use logic_resources::summary::{
    ContainerStats, CpuStats, MemoryStats, PodStats, StatsSummary, SwapStats,
};
use metrics::exposition::{Exposition, MetricKind};

/// A family of metrics: its kind, name and help text.
type MetricHead = (MetricKind, &'static str, &'static str);
/// A value, and when it was measured.
type TimedSample = (f64, Option<Timestamp>);

const CPU_OF_CONTAINER: MetricHead = (
    MetricKind::Counter,
    "container_cpu_usage_seconds_total",
    "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
);
const MEMORY_OF_CONTAINER: MetricHead = (
    MetricKind::Gauge,
    "container_memory_working_set_bytes",
    "[STABLE] Current working set of the container in bytes",
);
const START_OF_CONTAINER: MetricHead = (
    MetricKind::Gauge,
    "container_start_time_seconds",
    "[STABLE] Start time of the container since unix epoch in seconds",
);
const SWAP_OF_CONTAINER: MetricHead = (
    MetricKind::Gauge,
    "container_swap_usage_bytes",
    "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems",
);
const SWAP_LIMIT_OF_CONTAINER: MetricHead = (
    MetricKind::Gauge,
    "container_swap_limit_bytes",
    "[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems",
);
const CPU_OF_NODE: MetricHead = (
    MetricKind::Counter,
    "node_cpu_usage_seconds_total",
    "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
);
const MEMORY_OF_NODE: MetricHead = (
    MetricKind::Gauge,
    "node_memory_working_set_bytes",
    "[STABLE] Current working set of the node in bytes",
);
const SWAP_OF_NODE: MetricHead = (
    MetricKind::Gauge,
    "node_swap_usage_bytes",
    "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems",
);
const CPU_OF_POD: MetricHead = (
    MetricKind::Counter,
    "pod_cpu_usage_seconds_total",
    "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
);
const MEMORY_OF_POD: MetricHead = (
    MetricKind::Gauge,
    "pod_memory_working_set_bytes",
    "[STABLE] Current working set of the pod in bytes",
);
const SWAP_OF_POD: MetricHead = (
    MetricKind::Gauge,
    "pod_swap_usage_bytes",
    "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
);
const ERROR: MetricHead = (
    MetricKind::Gauge,
    "resource_scrape_error",
    "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
);
/// The metrics of a summary; without one only `resource_scrape_error`, which tells too that the machine was not measured.
pub(super) fn text(summary: Option<&StatsSummary>) -> String {
    let mut text = Exposition::default();
    if let Some(summary) = summary {
        let pods = &summary.pods;
        containers(&mut text, CPU_OF_CONTAINER, pods, |c| {
            seconds(c.cpu.as_ref())
        });
        containers(&mut text, MEMORY_OF_CONTAINER, pods, |c| {
            working_set(c.memory.as_ref())
        });
        containers(&mut text, START_OF_CONTAINER, pods, |c| {
            Some((start(c.start_time?), None))
        });
        containers(&mut text, SWAP_OF_CONTAINER, pods, |c| {
            swap(c.swap.as_ref())
        });
        containers(&mut text, SWAP_LIMIT_OF_CONTAINER, pods, |c| {
            swap_limit(c.swap.as_ref())
        });
        let node = &summary.node;
        one(&mut text, CPU_OF_NODE, seconds(node.cpu.as_ref()));
        one(&mut text, MEMORY_OF_NODE, working_set(node.memory.as_ref()));
        one(&mut text, SWAP_OF_NODE, swap(node.swap.as_ref()));
        of_pods(&mut text, CPU_OF_POD, pods, |pod| seconds(pod.cpu.as_ref()));
        of_pods(&mut text, MEMORY_OF_POD, pods, |pod| {
            working_set(pod.memory.as_ref())
        });
        of_pods(&mut text, SWAP_OF_POD, pods, |pod| swap(pod.swap.as_ref()));
    }
    let is_measured = |all: &StatsSummary| all.node.cpu.is_some() || all.node.memory.is_some();
    let error = match summary.is_some_and(is_measured) {
        true => 0.0,
        false => 1.0,
    };
    one(&mut text, ERROR, Some((error, None)));
    text.into_text()
}

fn seconds(cpu: Option<&CpuStats>) -> Option<TimedSample> {
    let cpu = cpu?;
    Some((cpu.usage_core_nano_seconds? as f64 / 1e9, cpu.time))
}

fn working_set(memory: Option<&MemoryStats>) -> Option<TimedSample> {
    let memory = memory?;
    Some((memory.working_set_bytes? as f64, memory.time))
}

fn swap(swap: Option<&SwapStats>) -> Option<TimedSample> {
    let swap = swap?;
    Some((swap.swap_usage_bytes? as f64, swap.time))
}

fn swap_limit(swap: Option<&SwapStats>) -> Option<TimedSample> {
    let swap = swap?;
    let used = swap.swap_usage_bytes.unwrap_or_default();
    let limit = swap.swap_available_bytes?.saturating_add(used);
    Some((limit as f64, swap.time))
}

fn start(at: Timestamp) -> f64 {
    at.as_microsecond() as f64 / 1e6
}

fn one(text: &mut Exposition, (kind, name, help): MetricHead, figure: Option<TimedSample>) {
    text.family(kind, name, help);
    if let Some((value, at)) = figure {
        text.sample_at(&[], value, at.map(SystemTime::from));
    }
}

fn of_pods(
    text: &mut Exposition,
    (kind, name, help): MetricHead,
    pods: &[PodStats],
    figure: impl Fn(&PodStats) -> Option<TimedSample>,
) {
    text.family(kind, name, help);
    for pod in pods {
        if let Some((value, at)) = figure(pod) {
            let labels = [
                ("namespace", pod.pod_ref.namespace.as_str()),
                ("pod", pod.pod_ref.name.as_str()),
            ];
            text.sample_at(&labels, value, at.map(SystemTime::from));
        }
    }
}

fn containers(
    text: &mut Exposition,
    (kind, name, help): MetricHead,
    pods: &[PodStats],
    figure: impl Fn(&ContainerStats) -> Option<TimedSample>,
) {
    text.family(kind, name, help);
    let all = pods
        .iter()
        .flat_map(|pod| pod.containers.iter().map(move |c| (pod, c)));
    for (pod, container) in all {
        if let Some((value, at)) = figure(container) {
            let labels = [
                ("container", container.name.as_str()),
                ("namespace", pod.pod_ref.namespace.as_str()),
                ("pod", pod.pod_ref.name.as_str()),
            ];
            text.sample_at(&labels, value, at.map(SystemTime::from));
        }
    }
}

#[cfg(test)]
mod tests {
    use logic_resources::summary::{NodeStats, PodReference};

    use super::*;

    fn at() -> Option<Timestamp> {
        Timestamp::from_millisecond(1_700_000_000_123).ok()
    }

    fn cpu(nanoseconds: u64) -> Option<CpuStats> {
        Some(CpuStats {
            time: at(),
            usage_core_nano_seconds: Some(nanoseconds),
            ..CpuStats::default()
        })
    }

    fn memory(bytes: u64) -> Option<MemoryStats> {
        Some(MemoryStats {
            time: at(),
            working_set_bytes: Some(bytes),
            ..MemoryStats::default()
        })
    }

    /// Upstream's TestCollectResourceMetrics.
    #[test]
    fn a_summary_becomes_metrics_with_the_time_of_each_figure() {
        let container = ContainerStats {
            name: "app".to_owned(),
            start_time: at(),
            cpu: cpu(10_000_000_000),
            memory: memory(1000),
            swap: Some(SwapStats {
                time: at(),
                swap_usage_bytes: Some(100),
                swap_available_bytes: Some(900),
            }),
            ..ContainerStats::default()
        };
        let silent = ContainerStats {
            name: "silent".to_owned(),
            ..ContainerStats::default()
        };
        let pod = PodStats {
            pod_ref: PodReference {
                name: "web".to_owned(),
                namespace: "shop".to_owned(),
                uid: "u1".to_owned(),
            },
            containers: vec![container, silent],
            cpu: cpu(20_500_000_000),
            memory: memory(2000),
            ..PodStats::default()
        };
        let summary = StatsSummary {
            node: NodeStats {
                cpu: cpu(1_000_000_000),
                memory: memory(7),
                swap: Some(SwapStats {
                    time: at(),
                    swap_usage_bytes: Some(500),
                    swap_available_bytes: None,
                }),
                ..NodeStats::default()
            },
            pods: vec![pod],
        };
        let expected = r#"# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the container in core-seconds
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="app",namespace="shop",pod="web"} 10 1700000000123
# HELP container_memory_working_set_bytes [STABLE] Current working set of the container in bytes
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="app",namespace="shop",pod="web"} 1000 1700000000123
# HELP container_start_time_seconds [STABLE] Start time of the container since unix epoch in seconds
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="app",namespace="shop",pod="web"} 1700000000.123
# HELP container_swap_usage_bytes [ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems
# TYPE container_swap_usage_bytes gauge
container_swap_usage_bytes{container="app",namespace="shop",pod="web"} 100 1700000000123
# HELP container_swap_limit_bytes [ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems
# TYPE container_swap_limit_bytes gauge
container_swap_limit_bytes{container="app",namespace="shop",pod="web"} 1000 1700000000123
# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the node in core-seconds
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 1 1700000000123
# HELP node_memory_working_set_bytes [STABLE] Current working set of the node in bytes
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 7 1700000000123
# HELP node_swap_usage_bytes [ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems
# TYPE node_swap_usage_bytes gauge
node_swap_usage_bytes 500 1700000000123
# HELP pod_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the pod in core-seconds
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="shop",pod="web"} 20.5 1700000000123
# HELP pod_memory_working_set_bytes [STABLE] Current working set of the pod in bytes
# TYPE pod_memory_working_set_bytes gauge
pod_memory_working_set_bytes{namespace="shop",pod="web"} 2000 1700000000123
# HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, 0 otherwise
# TYPE resource_scrape_error gauge
resource_scrape_error 0
"#;
        assert_eq!(text(Some(&summary)), expected);
    }

    /// Upstream's TestCollectResourceMetrics, the case of an error.
    #[test]
    fn without_a_summary_the_metrics_say_so() {
        let text = text(None);
        assert!(text.ends_with("\nresource_scrape_error 1\n"));
        assert!(!text.contains("node_"));
    }
}
