//! Dynamic resource allocation. Upstream: pkg/kubelet/metrics, pkg/kubelet/cm/dra/claiminfo.go (1.36).

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use prometheus::{GaugeVec, HistogramVec};

use crate::registry::{gauges, histograms};
use crate::runtime::CallResult;

/// Seconds: fifteen bounds from 0.1 to 40, each as many times the one before.
static BUCKETS: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let (least, most, count) = (0.1_f64, 40.0_f64, 15);
    let factor = (most / least).powf(1.0 / f64::from(count - 1));
    (0..count).map(|step| least * factor.powi(step)).collect()
});

static OPERATIONS: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "dra_operations_duration_seconds",
        "Latency histogram in seconds for the duration of handling all ResourceClaims referenced by a pod when the pod starts or stops. Identified by the name of the operation (PrepareResources or UnprepareResources) and separated by the success of the operation. The number of failed operations is provided through the histogram's overall count.",
        &["operation_name", "is_error"],
        &BUCKETS,
    )
});

static CALLS: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "dra_grpc_operations_duration_seconds",
        "Duration in seconds of the DRA gRPC operations",
        &["driver_name", "method_name", "grpc_status_code"],
        &BUCKETS,
    )
});

static IN_USE: LazyLock<GaugeVec> = LazyLock::new(|| {
    gauges(
        "dra_resource_claims_in_use",
        "The number of ResourceClaims that are currently in use on the node, by driver name (driver_name label value) and across all drivers (special value <any> for driver_name). Note that the sum of all by-driver counts is not the total number of in-use ResourceClaims because the same ResourceClaim might use devices from different drivers. Instead, use the count for the <any> driver_name.",
        &["driver_name"],
    )
});

/// Counts what was done to a pod's claims: `PrepareResources` or `UnprepareResources`.
pub fn operated(operation: &str, took: Duration, end: CallResult) {
    let is_error = match end {
        CallResult::Well => "false",
        CallResult::InError => "true",
    };
    let duration = OPERATIONS.with_label_values(&[operation, is_error]);
    duration.observe(took.as_secs_f64());
}

/// Counts a driver's call by its full method name and the name of its status code.
pub fn called(driver: &str, method: &str, code: &str, took: Duration) {
    let duration = CALLS.with_label_values(&[driver, method, code]);
    duration.observe(took.as_secs_f64());
}

/// Shows the number of prepared claims by driver, and no driver that has none.
pub fn in_use(counts: &BTreeMap<String, usize>) {
    IN_USE.reset();
    for (driver, count) in counts {
        let gauge = IN_USE.with_label_values(&[driver]);
        gauge.set(u32::try_from(*count).unwrap_or(u32::MAX).into());
    }
}

pub(crate) fn declare() {
    LazyLock::force(&OPERATIONS);
    LazyLock::force(&CALLS);
    LazyLock::force(&IN_USE);
}
