//! Disk usage of containers' logs. Upstream: pkg/kubelet/metrics/collectors/log_metrics.go (1.36).

use crate::exposition::{Exposition, MetricKind};

/// The logs of one container, and their size in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogUsage {
    pub uid: String,
    pub namespace: String,
    pub pod: String,
    pub container: String,
    /// Of all files of the container's log.
    pub bytes: u64,
}

/// Writes the sizes of all logs.
pub fn write(all: &[LogUsage], exposition: &mut Exposition) {
    exposition.family(
        MetricKind::Gauge,
        "kubelet_container_log_filesystem_used_bytes",
        "Bytes used by the container's logs on the filesystem.",
    );
    for logs in all {
        let labels = [
            ("container", logs.container.as_str()),
            ("namespace", logs.namespace.as_str()),
            ("pod", logs.pod.as_str()),
            ("uid", logs.uid.as_str()),
        ];
        exposition.sample(&labels, logs.bytes as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestMetricsCollected, TestNoMetricsCollected (log_metrics_test.go).
    #[test]
    fn logs_are_shown_by_their_containers() {
        let logs = LogUsage {
            uid: "UID_some_id".to_owned(),
            namespace: "some-namespace".to_owned(),
            pod: "podName1".to_owned(),
            container: "containerName1".to_owned(),
            bytes: 18,
        };
        let mut exposition = Exposition::default();
        write(&[], &mut exposition);
        write(&[logs], &mut exposition);
        let expected = r#"# HELP kubelet_container_log_filesystem_used_bytes [ALPHA] Bytes used by the container's logs on the filesystem.
# TYPE kubelet_container_log_filesystem_used_bytes gauge
kubelet_container_log_filesystem_used_bytes{container="containerName1",namespace="some-namespace",pod="podName1",uid="UID_some_id"} 18
"#;
        assert_eq!(exposition.into_text(), expected);
    }
}
