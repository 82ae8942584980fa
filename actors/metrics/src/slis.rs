//! Results of health checks: a registry of its own, served at `/metrics/slis`. Upstream:
//! component-base/metrics/prometheus/slis (1.36).

use std::sync::LazyLock;

use prometheus::{GaugeVec, IntCounterVec, Opts, Registry};

use crate::registry::{encode, enter_in};
use crate::runtime::CallResult;

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::new);

static HEALTHCHECK: LazyLock<GaugeVec> = LazyLock::new(|| {
    let text = "[STABLE] This metric records the result of a single healthcheck.";
    let options = Opts::new("kubernetes_healthcheck", text);
    let last = GaugeVec::new(options, &["name", "type"]).expect("names and labels are literals");
    enter_in(&REGISTRY, last)
});

static HEALTHCHECKS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    let text = "[STABLE] This metric records the results of all healthcheck.";
    let options = Opts::new("kubernetes_healthchecks_total", text);
    let all = IntCounterVec::new(options, &["name", "type", "status"]);
    enter_in(&REGISTRY, all.expect("names and labels are literals"))
});

/// Counts a check's result by name, as a part of `healthz`.
pub fn checked(name: &str, end: CallResult) {
    let (value, status) = match end {
        CallResult::Well => (1.0, "success"),
        CallResult::InError => (0.0, "error"),
    };
    let last = HEALTHCHECK.with_label_values(&[name, "healthz"]);
    last.set(value);
    HEALTHCHECKS
        .with_label_values(&[name, "healthz", status])
        .inc();
}

/// Removes every result.
pub fn reset() {
    HEALTHCHECK.reset();
    HEALTHCHECKS.reset();
}

/// Returns the results, in the text format 0.0.4.
pub fn text() -> String {
    encode(&REGISTRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_outcome_of_a_check_shows_beside_all_of_them() {
        checked("ping", CallResult::Well);
        checked("ping", CallResult::InError);
        let text = text();
        for line in [
            "kubernetes_healthcheck{name=\"ping\",type=\"healthz\"} 0",
            "kubernetes_healthchecks_total{name=\"ping\",status=\"error\",type=\"healthz\"} 1",
            "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"healthz\"} 1",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} in {text}");
        }
        reset();
        assert_eq!(super::text(), "");
    }
}
