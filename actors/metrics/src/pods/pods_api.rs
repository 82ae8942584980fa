//! The pods API's watches. Upstream: pkg/kubelet/metrics (1.36).

use std::sync::LazyLock;

use prometheus::IntCounter;

use crate::registry::counter;

pub static DROPPED_EVENTS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_pod_watch_events_dropped_total",
        "Cumulative number of pod watch events dropped.",
    )
});

pub(crate) fn declare() {
    LazyLock::force(&DROPPED_EVENTS);
}
