//! The node itself: its name, its build, its start and its end. Upstream: pkg/kubelet/metrics and
//! component-base/metrics (1.36).

pub mod cgroups;
pub mod device_plugins;
pub mod dynamic_resources;
pub mod queues;
pub mod startup;
pub mod volumes;

use std::sync::LazyLock;

use prometheus::{Gauge, GaugeVec};

use crate::registry::{gauge, gauges};

pub static NAME: LazyLock<GaugeVec> = LazyLock::new(|| {
    gauges(
        "kubelet_node_name",
        "The node's name. The count is always 1.",
        &["node"],
    )
});

pub static BUILD: LazyLock<GaugeVec> = LazyLock::new(|| {
    gauges(
        "kubernetes_build_info",
        "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
        &[
            "major",
            "minor",
            "git_version",
            "git_commit",
            "git_tree_state",
            "build_date",
            "go_version",
            "compiler",
            "platform",
        ],
    )
});

/// The provider of container metrics; cAdvisor stands for the reading of cgroups.
static PROVIDER: LazyLock<GaugeVec> = LazyLock::new(|| {
    gauges(
        "kubelet_metrics_provider",
        "Metrics provider used by kubelet to collect container stats. Values can be 'cadvisor' and 'cri'",
        &["provider"],
    )
});

/// Who tells what containers take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsProvider {
    Cadvisor,
    Cri,
}

/// Upstream: `SetMetricsProvider` of pkg/kubelet/server/metrics/metrics.go.
pub fn set_provider(provider: MetricsProvider) {
    let word = match provider {
        MetricsProvider::Cadvisor => "cadvisor",
        MetricsProvider::Cri => "cri",
    };
    PROVIDER.reset();
    PROVIDER.with_label_values(&[word]).set(1.0);
}

/// When the last graceful shutdown began, in seconds since the epoch.
pub static SHUTDOWN_BEGAN: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_graceful_shutdown_start_time_seconds",
        "Last graceful shutdown start time since unix epoch in seconds",
    )
});

/// When the last graceful shutdown ended, in seconds since the epoch.
pub static SHUTDOWN_ENDED: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_graceful_shutdown_end_time_seconds",
        "Last graceful shutdown end time since unix epoch in seconds",
    )
});

/// Sets the labels that do not change while the agent lives: the node's name, and its version (`v1.36.0+...`).
pub fn introduce(name: &str, version: &str) {
    NAME.with_label_values(&[name]).set(1.0);
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next(), numbers.next());
    if let Some(minor) = minor.and_then(|minor| minor.parse().ok()) {
        crate::component::version(minor);
    }
    let platform = format!("{}/{}", std::env::consts::OS, architecture());
    let labels = [
        major.unwrap_or_default(),
        minor.unwrap_or_default(),
        version,
        // Not made by Go, so without its version and git tree state.
        "",
        "",
        "",
        "",
        "",
        &platform,
    ];
    BUILD.with_label_values(&labels).set(1.0);
}

/// The architecture, as Go names it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub(crate) fn declare() {
    for gauges in [&NAME, &BUILD, &PROVIDER] {
        LazyLock::force(gauges);
    }
    for gauge in [&SHUTDOWN_BEGAN, &SHUTDOWN_ENDED] {
        LazyLock::force(gauge);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_node_is_introduced_with_its_name_and_version() {
        super::introduce("node-1", "v1.36.0+oxlet.0.1.0");
        let text = crate::text();
        assert!(text.contains("\nkubelet_node_name{node=\"node-1\"} 1\n"));
        assert!(text.contains(
            "git_version=\"v1.36.0+oxlet.0.1.0\",go_version=\"\",major=\"1\",minor=\"36\""
        ));
    }
}
