//! Graceful node shutdown, and the longest restart back-off: settings behind feature gates.

use super::FieldErrors;
use crate::feature_gates::FeatureGates;
use crate::kubelet_configuration::{GoDuration, KubeletConfiguration};

pub(super) fn check(c: &KubeletConfiguration, gates: &FeatureGates, checks: &mut FieldErrors) {
    let (total, critical) = (
        c.shutdown_grace_period,
        c.shutdown_grace_period_critical_pods,
    );
    let requested = total > GoDuration::ZERO || critical > GoDuration::ZERO;
    if gates.enabled("GracefulNodeShutdown") {
        if critical > total {
            checks.refuse(
                "shutdownGracePeriodCriticalPods",
                format!("is {critical}; it must not exceed shutdownGracePeriod, which is {total}"),
            );
        }
        for (field, period) in [
            ("shutdownGracePeriod", total),
            ("shutdownGracePeriodCriticalPods", critical),
        ] {
            if period != GoDuration::ZERO && period < GoDuration::from_secs(1) {
                checks.refuse(
                    field,
                    format!("is {period}; it must be zero, or at least 1s"),
                );
            }
        }
    } else if requested {
        checks.refuse(
            "shutdownGracePeriod",
            "requires feature gate GracefulNodeShutdown",
        );
    }
    if !c.shutdown_grace_period_by_pod_priority.is_empty() {
        let field = "shutdownGracePeriodByPodPriority";
        if !gates.enabled("GracefulNodeShutdownBasedOnPodPriority") {
            checks.refuse(
                field,
                "requires feature gate GracefulNodeShutdownBasedOnPodPriority",
            );
        } else if requested {
            checks.refuse(field, "cannot be set together with shutdownGracePeriod");
        }
    }
    back_off(c, gates, checks);
}

fn back_off(c: &KubeletConfiguration, gates: &FeatureGates, checks: &mut FieldErrors) {
    let field = "crashLoopBackOff.maxContainerRestartPeriod";
    let allowed = GoDuration::from_secs(1)..=GoDuration::from_secs(300);
    match c.crash_loop_back_off.max_container_restart_period {
        period if !gates.enabled("KubeletCrashLoopBackOffMax") => checks.require(
            period.is_none(),
            field,
            "requires feature gate KubeletCrashLoopBackOffMax",
        ),
        None => checks.refuse(
            field,
            "must be set: feature gate KubeletCrashLoopBackOffMax is on",
        ),
        Some(period) if !allowed.contains(&period) => {
            checks.refuse(
                field,
                format!("is {period}; it must be between 1s and 300s"),
            );
        }
        Some(_) => {}
    }
}
