//! Metrics that every component of Kubernetes has. Upstream: component-base/metrics (registry.go),
//! component-base/metrics/prometheus/{controllers,feature}, component-base/compatibility (1.36).

use std::sync::{LazyLock, OnceLock};

use prometheus::{GaugeVec, IntCounter};

use crate::exposition::{Exposition, MetricKind};
use crate::registry::{counter, gauges, registered};

/// A feature gate, its stage (`ALPHA`, `BETA`, `DEPRECATED`; empty when it is generally available), and whether it is on.
pub type Feature = (&'static str, &'static str, bool);

/// All feature gates: written when metrics are scraped, since there are hundreds and none of them changes.
static FEATURES: OnceLock<Vec<Feature>> = OnceLock::new();

/// Metrics disabled by the configuration: always zero, Oxlet cannot disable any.
static DISABLED: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "disabled_metrics_total",
        "[BETA] The count of disabled metrics.",
    )
});

/// Metrics hidden because of an earlier version's deprecation: always zero.
static HIDDEN: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "hidden_metrics_total",
        "[BETA] The count of hidden metrics.",
    )
});

/// Controllers of the component: a node runs none.
static CONTROLLERS: LazyLock<GaugeVec> = LazyLock::new(|| {
    gauges(
        "running_managed_controllers",
        "[BETA] Indicates where instances of a controller are currently running",
        &["name", "manager"],
    )
});

static VERSION: LazyLock<GaugeVec> = LazyLock::new(|| {
    gauges(
        "version_info",
        "Provides the compatibility version info of the component. The component label is the name of the component, usually kube, but is relevant for aggregated-apiservers.",
        &["component", "binary", "emulation", "min_compat"],
    )
});

/// Sets the feature gates; later calls change nothing.
pub fn features(features: impl IntoIterator<Item = Feature>) {
    FEATURES.get_or_init(|| features.into_iter().collect());
}

/// Sets the emulated version of Kubernetes: the minor number of `1.`; the one before it is the oldest compatible.
pub(crate) fn version(minor: u32) {
    let (binary, before) = (
        format!("1.{minor}"),
        format!("1.{}", minor.saturating_sub(1)),
    );
    let labels = ["kube", binary.as_str(), binary.as_str(), before.as_str()];
    VERSION.with_label_values(&labels).set(1.0);
}

/// Returns the metrics that are made when they are scraped.
pub(crate) fn text() -> String {
    let mut text = Exposition::default();
    text.family(
        MetricKind::Gauge,
        "kubernetes_feature_enabled",
        "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
    );
    for (name, stage, on) in FEATURES.get().into_iter().flatten() {
        let value = f64::from(u8::from(*on));
        text.sample(&[("name", name), ("stage", stage)], value);
    }
    text.family(
        MetricKind::Counter,
        "registered_metrics_total",
        "[BETA] The count of registered metrics broken by stability level and deprecation version.",
    );
    for (stability, count) in registered() {
        if count > 0 {
            let labels = [("deprecated_version", ""), ("stability_level", stability)];
            text.sample(&labels, count as f64);
        }
    }
    text.into_text()
}

pub(crate) fn declare() {
    for counter in [&DISABLED, &HIDDEN] {
        LazyLock::force(counter);
    }
    for gauges in [&CONTROLLERS, &VERSION] {
        LazyLock::force(gauges);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_show_with_their_stage_and_metrics_by_their_stability() {
        features([("EventedPLEG", "ALPHA", false), ("NodeSwap", "", true)]);
        let text = crate::text();
        for line in [
            "kubernetes_feature_enabled{name=\"EventedPLEG\",stage=\"ALPHA\"} 0",
            "kubernetes_feature_enabled{name=\"NodeSwap\",stage=\"\"} 1",
            "disabled_metrics_total 0",
            "hidden_metrics_total 0",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} in {text}");
        }
        let registered = |stability: &str| {
            let sample = format!(
                "registered_metrics_total{{deprecated_version=\"\",stability_level=\"{stability}\"}} "
            );
            let count = text.lines().find_map(|line| line.strip_prefix(&sample));
            count.map_or(0, |count| count.parse::<u32>().unwrap())
        };
        assert!(
            registered("ALPHA") > 50 && registered("BETA") > 10,
            "{text}"
        );
    }
}
