//! The metrics of pods and containers that a runtime makes itself, for `/metrics/cadvisor`.

use std::time::{Duration, SystemTime};

use metrics::exposition::MetricKind;
use proto::cri;

use super::{RuntimeClient, RuntimeError, runtime};

/// A family of the runtime's metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricDescriptor {
    pub name: String,
    pub help: String,
    /// In the order of the samples' values.
    pub label_keys: Vec<String>,
}

/// One sample of a family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricSample {
    /// The family's.
    pub name: String,
    pub kind: MetricKind,
    /// In the order of the family's keys.
    pub label_values: Vec<String>,
    pub value: u64,
    /// When it was measured; none where that was for this answer.
    pub at: Option<SystemTime>,
}

impl RuntimeClient {
    /// The families of [`RuntimeClient::container_metrics`].
    ///
    /// # Errors
    /// [`RuntimeError::Refused`] with the runtime's code, or [`RuntimeError::Unanswered`].
    pub async fn metric_descriptors(&self) -> Result<Vec<MetricDescriptor>, RuntimeError> {
        let request = cri::ListMetricDescriptorsRequest {};
        let method =
            async |channel, request| runtime(channel).list_metric_descriptors(request).await;
        let answer = self
            .idempotent("ListMetricDescriptors", self.within, request, method)
            .await?;
        let descriptors = answer.descriptors.into_iter();
        let descriptor = |one: cri::MetricDescriptor| MetricDescriptor {
            name: one.name,
            help: one.help,
            label_keys: one.label_keys,
        };
        Ok(descriptors.map(descriptor).collect())
    }

    /// The metrics of all pods and of their containers.
    ///
    /// # Errors
    /// [`RuntimeError::Refused`] with the runtime's code, or [`RuntimeError::Unanswered`].
    pub async fn container_metrics(&self) -> Result<Vec<MetricSample>, RuntimeError> {
        let request = cri::ListPodSandboxMetricsRequest {};
        let method =
            async |channel, request| runtime(channel).list_pod_sandbox_metrics(request).await;
        let answer = self
            .idempotent("ListPodSandboxMetrics", self.within, request, method)
            .await?;
        let of_pod = |pod: cri::PodSandboxMetrics| {
            let containers = pod.container_metrics.into_iter();
            let of_containers = containers.flat_map(|container| container.metrics);
            pod.metrics.into_iter().chain(of_containers)
        };
        let metrics = answer.pod_metrics.into_iter().flat_map(of_pod);
        Ok(metrics.map(sample).collect())
    }
}

fn sample(metric: cri::Metric) -> MetricSample {
    let kind = match metric.metric_type() {
        cri::MetricType::Counter => MetricKind::Counter,
        cri::MetricType::Gauge => MetricKind::Gauge,
    };
    let since = u64::try_from(metric.timestamp).unwrap_or(0);
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(since));
    MetricSample {
        name: metric.name,
        kind,
        label_values: metric.label_values,
        value: metric.value.map_or(0, |value| value.value),
        at: at.filter(|_| since > 0),
    }
}
