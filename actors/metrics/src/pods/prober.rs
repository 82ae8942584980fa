//! Probes of containers: a registry of its own, served at `/metrics/probes`. Upstream:
//! pkg/kubelet/prober/prober_manager.go (1.36).

use std::sync::LazyLock;
use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use crate::registry::{SECONDS, encode, enter_in, help};

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::new);

static RESULTS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    let name = "prober_probe_total";
    let text = "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.";
    let labels = [
        "probe_type",
        "result",
        "container",
        "pod",
        "namespace",
        "pod_uid",
    ];
    let results = IntCounterVec::new(Opts::new(name, help(name, text)), &labels);
    enter_in(&REGISTRY, results.expect("names and labels are literals"))
});

static DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    let name = "prober_probe_duration_seconds";
    let options = HistogramOpts::new(
        name,
        help(name, "Duration in seconds for a probe response."),
    );
    let labels = ["probe_type", "container", "pod", "namespace"];
    let durations = HistogramVec::new(options.buckets(SECONDS.to_vec()), &labels);
    enter_in(&REGISTRY, durations.expect("names and labels are literals"))
});

/// The labels of a probe's metrics.
#[derive(Clone, Copy, Debug)]
pub struct ProbeLabels<'a> {
    /// The type of the probe: `Liveness`, `Readiness` or `Startup`.
    pub kind: &'a str,
    pub container: &'a str,
    pub pod: &'a str,
    pub namespace: &'a str,
    pub uid: &'a str,
}

/// The result of a probe's attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeMetricResult {
    Successful,
    Failed,
    /// The attempt could not be made.
    Unknown,
}

impl ProbeMetricResult {
    const ALL: [ProbeMetricResult; 3] = [
        ProbeMetricResult::Successful,
        ProbeMetricResult::Failed,
        ProbeMetricResult::Unknown,
    ];

    fn as_str(self) -> &'static str {
        match self {
            ProbeMetricResult::Successful => "successful",
            ProbeMetricResult::Failed => "failed",
            ProbeMetricResult::Unknown => "unknown",
        }
    }
}

impl ProbeLabels<'_> {
    /// Counts an attempt. As upstream, a failure's duration is not measured.
    pub fn attempted(&self, finding: ProbeMetricResult, took: Duration) {
        RESULTS.with_label_values(&self.result(finding)).inc();
        match finding {
            ProbeMetricResult::Successful | ProbeMetricResult::Unknown => {
                let duration = DURATION.with_label_values(&self.labels());
                duration.observe(took.as_secs_f64());
            }
            ProbeMetricResult::Failed => {}
        }
    }

    /// Removes the metrics of a probe that has ended.
    pub fn forget(&self) {
        for finding in ProbeMetricResult::ALL {
            // A probe need not have had every result.
            drop(RESULTS.remove_label_values(&self.result(finding)));
        }
        drop(DURATION.remove_label_values(&self.labels()));
    }

    fn result(&self, finding: ProbeMetricResult) -> [&str; 6] {
        let ProbeLabels {
            kind,
            container,
            pod,
            namespace,
            uid,
        } = *self;
        [kind, finding.as_str(), container, pod, namespace, uid]
    }

    fn labels(&self) -> [&str; 4] {
        [self.kind, self.container, self.pod, self.namespace]
    }
}

/// Returns the metrics of all probes, in the text format 0.0.4.
pub fn text() -> String {
    LazyLock::force(&RESULTS);
    LazyLock::force(&DURATION);
    let mut text = encode(&REGISTRY);
    text.push_str(&crate::process::start());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_counted_until_it_ends() {
        let probe = ProbeLabels {
            kind: "Liveness",
            container: "app",
            pod: "web",
            namespace: "shop",
            uid: "u1",
        };
        probe.attempted(ProbeMetricResult::Successful, Duration::from_millis(20));
        probe.attempted(ProbeMetricResult::Failed, Duration::from_millis(20));
        probe.attempted(ProbeMetricResult::Failed, Duration::from_millis(20));
        let text = super::text();
        for line in [
            "# HELP prober_probe_total [BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
            "prober_probe_total{container=\"app\",namespace=\"shop\",pod=\"web\",pod_uid=\"u1\",probe_type=\"Liveness\",result=\"successful\"} 1",
            "prober_probe_total{container=\"app\",namespace=\"shop\",pod=\"web\",pod_uid=\"u1\",probe_type=\"Liveness\",result=\"failed\"} 2",
            "prober_probe_duration_seconds_bucket{container=\"app\",namespace=\"shop\",pod=\"web\",probe_type=\"Liveness\",le=\"0.025\"} 1",
            "prober_probe_duration_seconds_count{container=\"app\",namespace=\"shop\",pod=\"web\",probe_type=\"Liveness\"} 1",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} in {text}");
        }
        let start = "# HELP process_start_time_seconds [ALPHA] Start time of the process since unix epoch in seconds.";
        assert!(text.lines().any(|there| there == start), "{text}");
        probe.forget();
        assert!(!super::text().contains("u1"));
    }
}
