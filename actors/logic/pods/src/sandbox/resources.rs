//! What a sandbox tells its runtime of the pod's size (upstream's kuberuntime_sandbox_linux.go).

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_api::pod::requests::{
    self, CPU, MEMORY, OverheadPolicy, RequestBasis, ResourceAmounts, pod_limits, pod_requests,
};
use logic_api::quantity::Quantity;
use logic_resources::node_policy::NodePolicy;
use logic_resources::resources::{LinuxResources, cpu_quota, cpu_shares};

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
