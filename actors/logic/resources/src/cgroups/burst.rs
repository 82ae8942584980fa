//! CPU burst: time that a throttled group has saved up, for periods in which it needs more than its quota.
//!
//! Upstream has none. A pod asks for it by the annotation [`ANNOTATION`], as CPUs beyond its limit. The kernel's files:
//! Documentation/admin-guide/cgroup-v2.rst, `cpu.max.burst`.

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_api::quantity::Quantity;

use super::CpuQuota;
use crate::resources::cpu_quota;

/// CPUs that the pod and its containers may take beyond their limits for a while: `500m`.
pub const ANNOTATION: &str = "oxlet.dev/cpu-burst";

/// The kernel's file of it, in cgroup version 2.
pub const FILE: &str = "cpu.max.burst";

/// Microseconds beyond the quota of a period; none without a quota, and where the annotation is no quantity above 0.
/// The kernel takes no more than the quota itself.
pub fn of_pod(pod: &Pod, cpu: Option<CpuQuota>) -> Option<i64> {
    let cpu = cpu.filter(|cpu| cpu.quota > 0)?;
    let amount = Quantity::parse(pod.annotations().get(ANNOTATION)?).ok()?;
    let milli = amount.milli_value();
    (milli > 0).then(|| cpu_quota(milli, cpu.period).min(cpu.quota))
}

#[cfg(test)]
mod tests {
    use logic_api::testing::*;

    use super::*;

    #[test]
    fn a_burst_is_asked_for_in_cpus_and_is_no_more_than_the_quota() {
        let cpu = |quota| CpuQuota {
            quota,
            period: 100_000,
        };
        let cases = [
            ("500m", Some(cpu(100_000)), Some(50_000)),
            ("2", Some(cpu(100_000)), Some(100_000)),
            ("1m", Some(cpu(100_000)), Some(1_000)),
            ("0", Some(cpu(100_000)), None),
            ("-1", Some(cpu(100_000)), None),
            ("much", Some(cpu(100_000)), None),
            ("500m", Some(cpu(-1)), None),
            ("500m", Some(cpu(0)), None),
            ("500m", None, None),
        ];
        for (asked, quota, expected) in cases {
            let mut pod = pod("p").app("c");
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.insert(ANNOTATION.to_owned(), asked.to_owned());
            assert_eq!(of_pod(&pod, quota), expected, "{asked} {quota:?}");
        }
        assert_eq!(of_pod(&pod("p").app("c"), Some(cpu(100_000))), None);
    }
}
