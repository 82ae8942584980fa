//! Operations on volumes, and their usage. Upstream: pkg/volume/util/metrics.go, pkg/kubelet/volumemanager/metrics,
//! pkg/kubelet/metrics/collectors/volume_stats.go (1.36).

use std::sync::LazyLock;
use std::time::Duration;

use prometheus::{Gauge, HistogramVec, IntCounter};

use crate::exposition::{Exposition, MetricKind};
use crate::registry::{SECONDS, counter, gauge, histograms};
use crate::runtime::CallResult;

pub static OPERATIONS: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "storage_operation_duration_seconds",
        "Storage operation duration",
        &["volume_plugin", "operation_name", "status", "migrated"],
        &[
            0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0,
        ],
    )
});

/// Seconds to measure a volume, by the source of the figures.
pub static MEASURING: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "kubelet_volume_metric_collection_duration_seconds",
        "Duration in seconds to calculate volume stats",
        &["metric_source"],
        &SECONDS,
    )
});

pub static RECONSTRUCTED: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "reconstruct_volume_operations_total",
        "The number of volumes that were attempted to be reconstructed from the operating system during kubelet startup. This includes both successful and failed reconstruction.",
    )
});

pub static RECONSTRUCTED_ERRORS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "reconstruct_volume_operations_errors_total",
        "The number of volumes that failed reconstruction from the operating system during kubelet startup.",
    )
});

pub static FORCE_CLEANED: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "force_cleaned_failed_volume_operations_total",
        "The number of volumes that were force cleaned after their reconstruction failed during kubelet startup. This includes both successful and failed cleanups.",
    )
});

pub static FORCE_CLEANED_ERRORS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "force_cleaned_failed_volume_operation_errors_total",
        "The number of volumes that failed force cleanup after their reconstruction failed during kubelet startup.",
    )
});

pub static IMAGES_REQUESTED: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_image_volume_requested_total",
        "[BETA] Number of requested image volumes.",
    )
});

pub static IMAGES_MOUNTED: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_image_volume_mounted_succeed_total",
        "[BETA] Number of successful image volume mounts.",
    )
});

pub static IMAGES_MOUNTED_ERRORS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_image_volume_mounted_errors_total",
        "[BETA] Number of failed image volume mounts.",
    )
});

/// Orphaned pods whose volumes were cleaned in the last sweep.
pub static ORPHANS_CLEANED: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_orphan_pod_cleaned_volumes",
        "The total number of orphaned Pods whose volumes were cleaned in the last periodic sweep.",
    )
});

pub static ORPHANS_CLEANED_ERRORS: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_orphan_pod_cleaned_volumes_errors",
        "The number of orphaned Pods whose volumes failed to be cleaned in the last periodic sweep.",
    )
});

/// Counts a plugin's operation on a volume (`kubernetes.io/csi:DRIVER`, `kubernetes.io/empty-dir`).
pub fn operated(plugin: &str, operation: &str, took: Duration, end: CallResult) {
    let status = match end {
        CallResult::Well => "success",
        CallResult::InError => "fail-unknown",
    };
    let duration = OPERATIONS.with_label_values(&[plugin, operation, status, "false"]);
    duration.observe(took.as_secs_f64());
}

/// Usage of a claim's volume: bytes and inodes; none where the plugin does not report it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimUsage {
    pub namespace: String,
    pub claim: String,
    /// Bytes; none where the volume does not tell, as for all figures.
    pub capacity: Option<u64>,
    /// Bytes.
    pub available: Option<u64>,
    /// Bytes.
    pub used: Option<u64>,
    /// Of the file system.
    pub inodes: Option<u64>,
    /// Of the file system.
    pub inodes_free: Option<u64>,
    /// Of the volume.
    pub inodes_used: Option<u64>,
    /// None where the plugin reports no health.
    pub abnormal: Option<VolumeHealthMetric>,
}

/// The health of a volume, as its plugin reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeHealthMetric {
    Normal,
    Abnormal,
}

type ClaimStat = fn(&ClaimUsage) -> Option<f64>;

fn number(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

fn abnormal(claimed: &ClaimUsage) -> Option<f64> {
    Some(match claimed.abnormal? {
        VolumeHealthMetric::Normal => 0.0,
        VolumeHealthMetric::Abnormal => 1.0,
    })
}

const STATS: [(&str, &str, ClaimStat); 7] = [
    (
        "kubelet_volume_stats_available_bytes",
        "Number of available bytes in the volume",
        |claimed| number(claimed.available),
    ),
    (
        "kubelet_volume_stats_capacity_bytes",
        "Capacity in bytes of the volume",
        |claimed| number(claimed.capacity),
    ),
    (
        "kubelet_volume_stats_health_status_abnormal",
        "Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates volume is healthy",
        abnormal,
    ),
    (
        "kubelet_volume_stats_inodes",
        "Maximum number of inodes in the volume",
        |claimed| number(claimed.inodes),
    ),
    (
        "kubelet_volume_stats_inodes_free",
        "Number of free inodes in the volume",
        |claimed| number(claimed.inodes_free),
    ),
    (
        "kubelet_volume_stats_inodes_used",
        "Number of used inodes in the volume",
        |claimed| number(claimed.inodes_used),
    ),
    (
        "kubelet_volume_stats_used_bytes",
        "Number of used bytes in the volume",
        |claimed| number(claimed.used),
    ),
];

/// Writes usage and health of the claims' volumes: each claim once.
pub fn write_stats(claims: &[ClaimUsage], exposition: &mut Exposition) {
    for (name, help, figure) in STATS {
        exposition.family(MetricKind::Gauge, name, help);
        for claimed in claims {
            if let Some(value) = figure(claimed) {
                let labels = [
                    ("namespace", claimed.namespace.as_str()),
                    ("persistentvolumeclaim", claimed.claim.as_str()),
                ];
                exposition.sample(&labels, value);
            }
        }
    }
}

/// Writes the numbers of volumes by plugin and state (`actual_state_of_world`, `desired_state_of_world`).
pub fn write_totals<'a>(
    totals: impl IntoIterator<Item = (&'a str, &'a str, usize)>,
    exposition: &mut Exposition,
) {
    exposition.family(
        MetricKind::Gauge,
        "volume_manager_total_volumes",
        "Number of volumes in Volume Manager",
    );
    for (plugin, state, count) in totals {
        exposition.sample(&[("plugin_name", plugin), ("state", state)], count as f64);
    }
}

pub(crate) fn declare() {
    for histograms in [&OPERATIONS, &MEASURING] {
        LazyLock::force(histograms);
    }
    for counter in [
        &RECONSTRUCTED,
        &RECONSTRUCTED_ERRORS,
        &FORCE_CLEANED,
        &FORCE_CLEANED_ERRORS,
        &IMAGES_REQUESTED,
        &IMAGES_MOUNTED,
        &IMAGES_MOUNTED_ERRORS,
    ] {
        LazyLock::force(counter);
    }
    for gauge in [&ORPHANS_CLEANED, &ORPHANS_CLEANED_ERRORS] {
        LazyLock::force(gauge);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed(abnormal: Option<VolumeHealthMetric>) -> ClaimUsage {
        ClaimUsage {
            namespace: "testns".to_owned(),
            claim: "testpvc".to_owned(),
            capacity: Some(10_434_699_264),
            available: Some(5_663_154_176),
            used: Some(4_217_896_960),
            inodes: Some(655_360),
            inodes_free: Some(655_344),
            inodes_used: Some(16),
            abnormal,
        }
    }

    fn samples(claims: &[ClaimUsage]) -> Vec<String> {
        let mut exposition = Exposition::default();
        write_stats(claims, &mut exposition);
        let text = exposition.into_text();
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(str::to_owned).collect()
    }

    /// Upstream's TestVolumeStatsCollector and TestVolumeStatsCollectorWithNullVolumeStatus.
    #[test]
    fn a_claims_volume_is_measured_and_its_health_shown_where_it_is_known() {
        let line = |name: &str, value: &str| {
            let labels = "{namespace=\"testns\",persistentvolumeclaim=\"testpvc\"}";
            format!("kubelet_volume_stats_{name}{labels} {value}")
        };
        let mut expected = vec![
            line("available_bytes", "5663154176"),
            line("capacity_bytes", "10434699264"),
            line("inodes", "655360"),
            line("inodes_free", "655344"),
            line("inodes_used", "16"),
            line("used_bytes", "4217896960"),
        ];
        assert_eq!(samples(&[claimed(None)]), expected);
        expected.insert(2, line("health_status_abnormal", "1"));
        let abnormal = claimed(Some(VolumeHealthMetric::Abnormal));
        assert_eq!(samples(&[abnormal]), expected);
        assert!(samples(&[]).is_empty());
    }
}
