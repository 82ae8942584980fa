//! Numbers within their ranges.

use super::FieldErrors;
use crate::feature_gates::FeatureGates;
use crate::kubelet_configuration::{GoDuration, KubeletConfiguration};

const PORT: std::ops::RangeInclusive<i64> = 1..=65535;

pub(super) fn check(c: &KubeletConfiguration, gates: &FeatureGates, checks: &mut FieldErrors) {
    for (field, value) in [
        ("eventBurst", c.event_burst.into()),
        ("eventRecordQPS", c.event_record_qps.into()),
        ("kubeAPIBurst", c.kube_api_burst.into()),
        ("kubeAPIQPS", c.kube_api_qps.into()),
        ("maxOpenFiles", c.max_open_files),
        ("maxPods", c.max_pods.into()),
        ("podsPerCore", c.pods_per_core.into()),
        ("registryBurst", c.registry_burst.into()),
        ("registryPullQPS", c.registry_pull_qps.into()),
        ("imageMinimumGCAge", c.image_minimum_gc_age.nanos()),
        ("imageMaximumGCAge", c.image_maximum_gc_age.nanos()),
    ] {
        checks.not_negative(field, value);
    }
    for (field, value, range) in [
        (
            "imageGCHighThresholdPercent",
            c.image_gc_high_threshold_percent,
            0..=100,
        ),
        (
            "imageGCLowThresholdPercent",
            c.image_gc_low_threshold_percent,
            0..=100,
        ),
        ("iptablesDropBit", c.iptables_drop_bit, 0..=31),
        ("iptablesMasqueradeBit", c.iptables_masquerade_bit, 0..=31),
        ("oomScoreAdj", c.oom_score_adj, -1000..=1000),
        ("port", c.port, PORT),
    ] {
        checks.within(field, value.into(), range);
    }
    for (field, port) in [
        ("healthzPort", c.healthz_port),
        ("readOnlyPort", c.read_only_port),
    ] {
        if port != 0 {
            checks.within(field, port.into(), PORT);
        }
    }
    checks.require(
        c.node_lease_duration_seconds > 0,
        "nodeLeaseDurationSeconds",
        "must be greater than 0",
    );
    checks.require(
        c.node_status_max_images >= -1,
        "nodeStatusMaxImages",
        "must be -1 or greater",
    );
    relations(c, checks);
    quota_period(c, gates, checks);
    container_logs(c, checks);
}

fn relations(c: &KubeletConfiguration, checks: &mut FieldErrors) {
    if c.image_gc_low_threshold_percent >= c.image_gc_high_threshold_percent {
        checks.refuse(
            "imageGCLowThresholdPercent",
            format!(
                "is {}; it must be less than imageGCHighThresholdPercent, which is {}",
                c.image_gc_low_threshold_percent, c.image_gc_high_threshold_percent
            ),
        );
    }
    if c.image_maximum_gc_age > GoDuration::ZERO && c.image_maximum_gc_age <= c.image_minimum_gc_age
    {
        checks.refuse(
            "imageMaximumGCAge",
            format!(
                "is {}; it must be greater than imageMinimumGCAge, which is {}",
                c.image_maximum_gc_age, c.image_minimum_gc_age
            ),
        );
    }
    for (field, period) in [
        ("syncFrequency", c.sync_frequency),
        ("fileCheckFrequency", c.file_check_frequency),
        ("httpCheckFrequency", c.http_check_frequency),
        ("runtimeRequestTimeout", c.runtime_request_timeout),
    ] {
        // Upstream panics in a ticker here.
        checks.require(
            period > GoDuration::ZERO,
            field,
            "must be greater than zero",
        );
    }
}

fn quota_period(c: &KubeletConfiguration, gates: &FeatureGates, checks: &mut FieldErrors) {
    let (field, period) = ("cpuCFSQuotaPeriod", c.cpu_cfs_quota_period);
    let allowed = GoDuration::from_millis(1)..=GoDuration::from_secs(1);
    if !gates.enabled("CustomCPUCFSQuotaPeriod") {
        if period != GoDuration::from_millis(100) {
            checks.refuse(
                field,
                format!("is {period}; it requires feature gate CustomCPUCFSQuotaPeriod"),
            );
        }
    } else if !allowed.contains(&period) {
        checks.refuse(
            field,
            format!("is {period}; it must be between 1ms and 1s, inclusive"),
        );
    }
}

fn container_logs(c: &KubeletConfiguration, checks: &mut FieldErrors) {
    checks.require(
        c.container_log_max_workers >= 1,
        "containerLogMaxWorkers",
        "must be greater than or equal to 1",
    );
    checks.require(
        c.container_log_monitor_interval >= GoDuration::from_secs(3),
        "containerLogMonitorInterval",
        "must be greater than or equal to 3s",
    );
    checks.require(
        c.container_log_max_files > 1,
        "containerLogMaxFiles",
        "must be greater than 1",
    );
}
