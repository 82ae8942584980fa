//! Image pulls, and the records of pods' access to images. Upstream: pkg/kubelet/metrics, pkg/kubelet/images (1.36).

use std::sync::LazyLock;

use prometheus::{Gauge, HistogramVec, IntCounterVec};

use crate::registry::{SECONDS, counters, gauge, histograms};

/// Seconds of a pull with its time in the queue; by the image's size, as [`size`] words it.
pub static PULL_DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "kubelet_image_pull_duration_seconds",
        "Duration in seconds to pull an image.",
        &["image_size_in_bytes"],
        &[
            1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0,
            900.0, 1200.0, 1800.0, 2700.0, 3600.0,
        ],
    )
});

pub static ENSURED: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_image_manager_ensure_image_requests_total",
        "Number of ensure-image requests processed by the kubelet.",
        &["pull_policy", "present_locally", "pull_required"],
    )
});

/// Images removed, by the reason: `space` or `age`.
pub static GARBAGE_COLLECTED: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_image_garbage_collected_total",
        "Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
        &["reason"],
    )
});

/// Failed runs of credential provider plugins.
pub static PROVIDER_ERRORS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_credential_provider_plugin_errors_total",
        "Number of errors from credential provider plugin",
        &["plugin_name"],
    )
});

pub static PROVIDER_DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "kubelet_credential_provider_plugin_duration",
        "Duration of execution in seconds for credential provider plugin",
        &["plugin_name"],
        &SECONDS,
    )
});

/// Pulls under way, by the records.
static INTENTS: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_imagemanager_ondisk_pullintents",
        "Number of ImagePullIntents stored on disk.",
    )
});

static PULLED_RECORDS: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_imagemanager_ondisk_pulledrecords",
        "Number of ImagePulledRecords stored on disk.",
    )
});

/// Checks whether an image must be pulled, by result: `credentialPolicyAllowed`, `credentialRecordFound`,
/// `mustAuthenticate`, `error`.
pub static MUST_PULL_CHECKS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_imagemanager_image_mustpull_checks_total",
        "Counter for how many times kubelet checked whether credentials need to be re-verified to access an image",
        &["result"],
    )
});

/// The result of checking whether a pod may use an image that is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MustPullCheck {
    /// The policy needs no check.
    Allowed,
    /// A record has the pod's credentials, or allows every pod.
    Found,
    /// The image must be pulled with the pod's credentials.
    Denied,
    InError,
}

/// Counts a check.
pub fn checked(check: MustPullCheck) {
    let result = match check {
        MustPullCheck::Allowed => "credentialPolicyAllowed",
        MustPullCheck::Found => "credentialRecordFound",
        MustPullCheck::Denied => "mustAuthenticate",
        MustPullCheck::InError => "error",
    };
    MUST_PULL_CHECKS.with_label_values(&[result]).inc();
}

/// Sets the number of records of pulls under way.
pub fn intents(count: usize) {
    INTENTS.set(count as f64);
}

/// Sets the number of records of pulled images.
pub fn pulled_records(count: usize) {
    PULLED_RECORDS.set(count as f64);
}

/// Returns upstream's size class of an image with so many bytes.
pub fn size(bytes: u64) -> &'static str {
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    match bytes {
        0 => "N/A",
        _ if bytes > 100 * GIB => "GT100GB",
        _ if bytes > 60 * GIB => "60GB-100GB",
        _ if bytes > 40 * GIB => "40GB-60GB",
        _ if bytes > 30 * GIB => "30GB-40GB",
        _ if bytes > 20 * GIB => "20GB-30GB",
        _ if bytes > 10 * GIB => "10GB-20GB",
        _ if bytes > 5 * GIB => "5GB-10GB",
        _ if bytes > GIB => "1GB-5GB",
        _ if bytes > 500 * MIB => "500MB-1GB",
        _ if bytes > 100 * MIB => "100MB-500MB",
        _ if bytes > 10 * MIB => "10MB-100MB",
        _ => "0-10MB",
    }
}

pub(crate) fn declare() {
    for histograms in [&PULL_DURATION, &PROVIDER_DURATION] {
        LazyLock::force(histograms);
    }
    for counters in [
        &ENSURED,
        &GARBAGE_COLLECTED,
        &PROVIDER_ERRORS,
        &MUST_PULL_CHECKS,
    ] {
        LazyLock::force(counters);
    }
    for gauge in [&INTENTS, &PULLED_RECORDS] {
        LazyLock::force(gauge);
    }
}

#[cfg(test)]
mod tests {
    use super::{PULL_DURATION, size};

    /// Upstream's TestImageSizesAreSorted and TestGetImageSizeBucket.
    #[test]
    fn an_images_size_falls_into_one_class() {
        let rows: [(u64, &str); 8] = [
            (0, "N/A"),
            (1, "0-10MB"),
            (10 << 20, "0-10MB"),
            ((10 << 20) + 1, "10MB-100MB"),
            (200 << 20, "100MB-500MB"),
            (15 << 30, "10GB-20GB"),
            (100 << 30, "60GB-100GB"),
            ((100 << 30) + 1, "GT100GB"),
        ];
        for (bytes, expected) in rows {
            assert_eq!(size(bytes), expected, "{bytes}");
        }
    }

    /// Upstream's TestImagePullDurationMetric: the buckets that each pull falls into.
    #[test]
    fn a_pull_is_measured_in_the_class_of_its_image() {
        const MIB: u64 = 1 << 20;
        // An image's bytes, its pull's seconds, its class, and the bucket before and at them.
        let points = [
            (0, 0.0, "N/A", None, Some("1")),
            (5 * MIB, 10.0, "0-10MB", Some("5"), Some("10")),
            (15 * MIB, 20.0, "10MB-100MB", Some("10"), Some("20")),
            (500 * MIB, 200.0, "100MB-500MB", Some("180"), Some("240")),
            (15 << 30, 6000.0, "10GB-20GB", Some("3600"), None),
            (200 << 30, 10_000.0, "GT100GB", Some("3600"), None),
        ];
        for (bytes, seconds, ..) in points {
            let duration = PULL_DURATION.with_label_values(&[size(bytes)]);
            duration.observe(seconds);
        }
        let text = crate::text();
        let has = |line: &str| text.lines().any(|there| there == line);
        let name = "kubelet_image_pull_duration_seconds";
        for (_, seconds, class, before, at) in points {
            let bucket = |le: &str, count: u64| {
                format!("{name}_bucket{{image_size_in_bytes=\"{class}\",le=\"{le}\"}} {count}")
            };
            let buckets = format!("{name}_bucket{{image_size_in_bytes=\"{class}\",");
            let buckets = text
                .lines()
                .filter(|line| line.starts_with(&buckets))
                .count();
            assert_eq!(buckets, 19, "{class}");
            assert!(before.is_none_or(|le| has(&bucket(le, 0))), "{class}");
            assert!(has(&bucket(at.unwrap_or("+Inf"), 1)), "{class}");
            assert!(has(&format!(
                "{name}_sum{{image_size_in_bytes=\"{class}\"}} {seconds}"
            )));
        }
    }
}
