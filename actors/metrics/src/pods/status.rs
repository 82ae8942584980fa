//! Patches of pods' statuses. Upstream: pkg/kubelet/metrics (1.36).

use std::sync::LazyLock;

use prometheus::Histogram;

use crate::registry::histogram;

/// Seconds from a change to its arrival in the API, whatever changed meanwhile.
pub static SYNC_DURATION: LazyLock<Histogram> = LazyLock::new(|| {
    histogram(
        "kubelet_pod_status_sync_duration_seconds",
        "Duration in seconds to sync a pod status update. Measures time from detection of a change to pod status until the API is successfully updated for that pod, even if multiple intevening changes to pod status occur.",
        &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0],
    )
});

pub(crate) fn declare() {
    LazyLock::force(&SYNC_DURATION);
}
