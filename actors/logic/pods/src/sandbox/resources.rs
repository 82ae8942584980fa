//! What a sandbox tells its runtime of the pod's size (upstream's kuberuntime_sandbox_linux.go).

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_api::pod::requests::{
    self, CPU, MEMORY, OverheadPolicy, RequestBasis, ResourceAmounts, pod_limits, pod_requests,
};
use logic_api::quantity::Quantity;
use logic_resources::cgroups::{CgroupLimits, CpuQuota};
use logic_resources::node::policy::NodePolicy;
use logic_resources::resources::{LinuxResources, cpu_quota, cpu_shares};

use super::SandboxResources;

/// What the runtime is told when the pod as a whole is resized: its new limits without its overhead, and that.
///
/// Upstream's `generateUpdatePodSandboxResourcesRequest` and `subtractOverheadFromResourceConfig`.
pub fn resized(pod: &Pod, limits: &CgroupLimits, node: &NodePolicy) -> SandboxResources {
    let overhead = pod.spec().and_then(|spec| spec.overhead.as_ref());
    let overhead = requests::read(overhead);
    let cpu = overhead.get(CPU).map(Quantity::milli_value);
    let without = |shares: i64| match cpu {
        Some(cpu) => cpu_shares(milli_cpu(shares).saturating_sub(cpu).max(0)),
        None => shares,
    };
    let quota = |limit: CpuQuota| {
        let less = cpu.map_or(0, |cpu| cpu_quota(cpu, limit.period));
        limit.quota.saturating_sub(less)
    };
    let memory = overhead.get(MEMORY).map_or(0, Quantity::value);
    SandboxResources {
        overhead: self::overhead(pod, node),
        resources: LinuxResources {
            cpu_shares: limits.cpu_shares.map_or(0, without),
            cpu_quota: limits.cpu.map_or(0, quota),
            cpu_period: limits.cpu.map_or(0, |limit| limit.period),
            memory_limit: limits
                .memory
                .map_or(0, |limit| limit.saturating_sub(memory)),
            ..LinuxResources::default()
        },
    }
}

/// The request in thousandths that these shares came from.
fn milli_cpu(shares: i64) -> i64 {
    shares.saturating_mul(1000).saturating_add(1023) / 1024
}

/// Of the containers together, without overhead.
pub(super) fn of_containers(pod: &Pod, node: &NodePolicy) -> LinuxResources {
    let requests = pod_requests(pod, RequestBasis::Spec, OverheadPolicy::Left);
    let limits = pod_limits(pod, RequestBasis::Spec, OverheadPolicy::Left);
    let limit = milli(limits.get(CPU));
    let request = requests
        .get(CPU)
        .map_or(limit, |amount| amount.milli_value());
    linux(request, limit, &limits, node)
}

/// The pod's overhead, as request and as limit.
pub(super) fn overhead(pod: &Pod, node: &NodePolicy) -> LinuxResources {
    let Some(overhead) = pod.spec().and_then(|spec| spec.overhead.as_ref()) else {
        return LinuxResources::default();
    };
    let amounts = requests::read(Some(overhead));
    let cpu = milli(amounts.get(CPU));
    linux(cpu, cpu, &amounts, node)
}

fn linux(request: i64, limit: i64, limits: &ResourceAmounts, node: &NodePolicy) -> LinuxResources {
    let micros = |period: Duration| i64::try_from(period.as_micros()).unwrap_or(i64::MAX);
    let period = node.cpu_quota_period.map(micros);
    LinuxResources {
        cpu_shares: cpu_shares(request),
        cpu_quota: period.map_or(0, |period| cpu_quota(limit, period)),
        cpu_period: period.unwrap_or(0),
        memory_limit: limits.get(MEMORY).map_or(0, Quantity::value),
        ..LinuxResources::default()
    }
}

fn milli(amount: Option<&Quantity>) -> i64 {
    amount.map_or(0, Quantity::milli_value)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
    use logic_api::testing::*;
    use logic_resources::cgroups::pod_limits;

    use super::*;

    type SandboxResourceList = &'static [(&'static str, &'static str)];

    fn asks(
        requests: SandboxResourceList,
        limits: SandboxResourceList,
    ) -> impl FnOnce(&mut Container) {
        move |container| {
            container.resources = Some(ResourceRequirements {
                requests: Some(quantities(requests)),
                limits: Some(quantities(limits)),
                claims: None,
            });
        }
    }

    fn numbers(made: LinuxResources) -> (i64, i64, i64, i64) {
        (
            made.cpu_shares,
            made.cpu_quota,
            made.cpu_period,
            made.memory_limit,
        )
    }

    /// Upstream's TestSubtractOverheadFromResourceConfig.
    #[test]
    fn a_resized_sandbox_is_told_its_overhead_apart() {
        let node = NodePolicy::default();
        let limits = CgroupLimits {
            cpu_shares: Some(306),
            cpu: Some(CpuQuota {
                quota: 30_000,
                period: 100_000,
            }),
            memory: Some(335_544_320),
            ..CgroupLimits::default()
        };
        let told = |overhead: SandboxResourceList, limits: &CgroupLimits| {
            let overhead = (!overhead.is_empty()).then(|| quantities(overhead));
            let pod = pod("p").app("c").spec_with(|spec| spec.overhead = overhead);
            numbers(resized(&pod, limits, &node).resources)
        };
        const CPU_AND_MEMORY: SandboxResourceList = &[("cpu", "100m"), ("memory", "64Mi")];
        let cases: [(SandboxResourceList, _); 4] = [
            (&[], (306, 30_000, 100_000, 335_544_320)),
            (&CPU_AND_MEMORY[1..], (306, 30_000, 100_000, 268_435_456)),
            (&CPU_AND_MEMORY[..1], (203, 20_000, 100_000, 335_544_320)),
            (CPU_AND_MEMORY, (203, 20_000, 100_000, 268_435_456)),
        ];
        for (overhead, expected) in cases {
            assert_eq!(told(overhead, &limits), expected, "{overhead:?}");
        }
        let free = CgroupLimits {
            cpu: None,
            memory: None,
            ..limits
        };
        assert_eq!(told(CPU_AND_MEMORY, &free), (203, 0, 0, 0));
    }

    /// Upstream's TestGenerateUpdatePodSandboxResourcesRequest.
    #[test]
    fn a_resized_sandbox_is_told_what_a_new_one_would_be() {
        const CPU: (&str, &str) = ("cpu", "400m");
        const MORE_CPU: (&str, &str) = ("cpu", "800m");
        const MEMORY: (&str, &str) = ("memory", "128Mi");
        const MORE_MEMORY: (&str, &str) = ("memory", "256Mi");
        const OVERHEAD: SandboxResourceList = &[("cpu", "100m"), ("memory", "64Mi")];
        let lists: [(SandboxResourceList, SandboxResourceList); 5] = [
            (&[], &[]),
            (&[CPU, MORE_MEMORY], &[CPU, MORE_MEMORY]),
            (&[CPU], &[MORE_CPU]),
            (&[MEMORY], &[MORE_MEMORY]),
            (&[CPU, MEMORY], &[MORE_CPU, MORE_MEMORY]),
        ];
        let node = NodePolicy::default();
        for (requests, limits) in lists {
            let one = pod("p").app_with("c", asks(requests, limits));
            let two = one.clone().app_with("d", asks(requests, limits));
            let mut init = one.clone().init("i");
            let inits = &mut init.spec.as_mut().unwrap().init_containers;
            asks(OVERHEAD, OVERHEAD)(&mut inits.as_mut().unwrap()[0]);
            for pod in [one, two, init] {
                for overhead in [None, Some(quantities(OVERHEAD))] {
                    let pod = pod.clone().spec_with(|spec| spec.overhead = overhead);
                    let limits = pod_limits(&pod, &node);
                    let told = resized(&pod, &limits, &node);
                    let mut expected = of_containers(&pod, &node);
                    if limits.cpu.is_none() {
                        (expected.cpu_period, expected.cpu_quota) = (0, 0);
                    }
                    if limits.memory.is_none() {
                        expected.memory_limit = 0;
                    }
                    assert_eq!(told.resources, expected, "{pod:?}");
                    assert_eq!(told.overhead, super::overhead(&pod, &node));
                }
            }
        }
    }

    /// Upstream's TestApplySandboxResources.
    #[test]
    fn overhead_is_apart_from_what_the_containers_take() {
        let node = NodePolicy::default();
        let pod = pod("p").app_with(
            "c",
            asks(
                &[("cpu", "2"), ("memory", "128Mi")],
                &[("cpu", "4"), ("memory", "256Mi")],
            ),
        );
        assert_eq!(
            numbers(of_containers(&pod, &node)),
            (2048, 400_000, 100_000, 268_435_456)
        );
        assert_eq!(numbers(overhead(&pod, &node)), (0, 0, 0, 0));
        let heavy = pod.spec_with(|spec| {
            spec.overhead = Some(quantities(&[("cpu", "200m"), ("memory", "128Mi")]));
        });
        assert_eq!(
            numbers(of_containers(&heavy, &node)),
            (2048, 400_000, 100_000, 268_435_456)
        );
        assert_eq!(
            numbers(overhead(&heavy, &node)),
            (204, 20_000, 100_000, 134_217_728)
        );
        let free = NodePolicy {
            cpu_quota_period: None,
            ..node
        };
        assert_eq!(
            numbers(of_containers(&heavy, &free)),
            (2048, 0, 0, 268_435_456)
        );
    }

    #[test]
    fn a_limit_stands_for_a_request_that_is_not_there_and_pod_level_amounts_for_containers() {
        let node = NodePolicy::default();
        let limited = pod("p").app_with("c", asks(&[], &[("cpu", "1")]));
        assert_eq!(
            numbers(of_containers(&limited, &node)),
            (1024, 100_000, 100_000, 0)
        );
        let shared = limited.app("d").spec_with(|spec| {
            spec.resources = Some(ResourceRequirements {
                limits: Some(quantities(&[("cpu", "3"), ("memory", "1Gi")])),
                ..ResourceRequirements::default()
            });
        });
        assert_eq!(
            numbers(of_containers(&shared, &node)),
            (3072, 300_000, 100_000, 1 << 30)
        );
        assert_eq!(
            numbers(of_containers(&pod("q").app("c"), &node)),
            (2, 0, 100_000, 0)
        );
    }
}
