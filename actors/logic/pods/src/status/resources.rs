//! CPU and memory as statuses show them: what the runtime enforces over what is allocated.
//!
//! Mirrors upstream's `convertContainerStatusResources` and `convertToAPIPodLevelResourcesStatus`
//! (kubelet_pods.go) and `toKubeContainerResources` (kuberuntime_container_linux.go) at v1.36.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{self as core, ContainerStatus, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use logic_api::pod::PodView;
use logic_api::pod::requests::{
    CPU, MEMORY, OverheadPolicy, RequestBasis, ResourceAmounts, pod_limits, pod_requests,
};
use logic_api::quantity::{self, QuantityFormat, QuantityValue, bytes, milli};
use logic_api::types::{ContainerState, EnforcedResources, RuntimeContainer};
use logic_resources::cgroups::all_limited;

use super::StatusInput;

/// Thousandths of CPU that a runtime makes of everything below: there the allocated amount is shown.
const MIN_LIMIT: i64 = 10;
const MIN_REQUEST: i64 = 2;

type StatusResourceList = BTreeMap<String, Quantity>;

/// A container's resources: those allocated to it, and while it runs, those that are enforced.
pub(super) fn of_container(
    input: &StatusInput<'_>,
    spec: &core::Container,
    container: &RuntimeContainer,
    old: Option<&ContainerStatus>,
) -> ResourceRequirements {
    let mut shown = spec.resources.clone().unwrap_or_default();
    if container.state != ContainerState::Running {
        return shown;
    }
    let actual = container
        .enforced
        .map(ActualResources::of)
        .unwrap_or_default();
    // What the runtime does not tell is as it was before a resize that is not done yet.
    let id = Some(input.full_id(container));
    let same = old.filter(|old| input.resize.in_progress && old.container_id == id);
    let before = same.and_then(|old| old.resources.as_ref());
    if let Some(limits) = &mut shown.limits {
        let before = before.and_then(|r| r.limits.as_ref());
        put_cpu(limits, actual.cpu_limit, MIN_LIMIT, before);
        put_memory(limits, actual.memory_limit, before);
    }
    if let Some(requests) = &mut shown.requests {
        let before = before.and_then(|r| r.requests.as_ref());
        put_cpu(requests, actual.cpu_request, MIN_REQUEST, before);
        put_memory(requests, None, before);
    }
    shown
}

/// The enforced resources in the API's units; none where the runtime reports none or there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ActualResources {
    /// CPU request in millicores.
    cpu_request: Option<i64>,
    /// CPU limit in millicores.
    cpu_limit: Option<i64>,
    /// Memory limit in bytes.
    memory_limit: Option<i64>,
}

impl ActualResources {
    fn of(enforced: EnforcedResources) -> Self {
        let EnforcedResources {
            cpu_shares,
            cpu_quota,
            cpu_period,
            memory_limit,
        } = enforced;
        let some = |value: i64| (value > 0).then_some(value);
        let request = match cpu_shares {
            shares if shares >= MIN_REQUEST => {
                shares.saturating_mul(1000).saturating_add(1023) / 1024
            }
            _ => 0,
        };
        let limit = match cpu_period {
            period if period > 0 => cpu_quota.saturating_mul(1000) / period,
            _ => 0,
        };
        Self {
            cpu_request: some(request),
            cpu_limit: some(limit),
            memory_limit: some(memory_limit),
        }
    }
}

fn put_cpu(
    list: &mut StatusResourceList,
    actual: Option<i64>,
    least: i64,
    before: Option<&StatusResourceList>,
) {
    let allocated = milli(list.get(CPU)).unwrap_or(0);
    match actual {
        Some(actual) if actual > least || allocated > least => {
            if actual != allocated {
                let amount = QuantityValue::Small {
                    value: actual,
                    scale: -3,
                };
                put(list, CPU, amount, QuantityFormat::DecimalSI);
            }
        }
        Some(_) => {}
        None => keep(list, CPU, before),
    }
}

fn put_memory(
    list: &mut StatusResourceList,
    actual: Option<i64>,
    before: Option<&StatusResourceList>,
) {
    match actual {
        Some(actual) if bytes(list.get(MEMORY)) != Some(actual) => {
            let amount = QuantityValue::Small {
                value: actual,
                scale: 0,
            };
            put(list, MEMORY, amount, QuantityFormat::BinarySI);
        }
        Some(_) => {}
        None => keep(list, MEMORY, before),
    }
}

fn put(list: &mut StatusResourceList, name: &str, amount: QuantityValue, format: QuantityFormat) {
    let quantity = quantity::Quantity {
        amount,
        format,
        text: None,
    };
    list.insert(name.to_owned(), Quantity(quantity.to_string()));
}

fn keep(list: &mut StatusResourceList, name: &str, before: Option<&StatusResourceList>) {
    if let Some(quantity) = before.and_then(|before| before.get(name)) {
        list.insert(name.to_owned(), quantity.clone());
    }
}

/// The pod-level resources in the status: requests and limits.
///
/// Upstream reads the amounts of a running pod back from its control group, which has CPU and memory alone; here they
/// are what is allocated, and thus what is written there.
pub(super) fn of_pod(input: &StatusInput<'_>) -> ResourceRequirements {
    let pod = input.pod;
    let given = pod.spec().and_then(|spec| spec.resources.clone());
    let given = given.unwrap_or_default();
    let requests = pod_requests(pod, RequestBasis::Spec, OverheadPolicy::Counted);
    let limits = pod_limits(pod, RequestBasis::Spec, OverheadPolicy::Counted);
    let runs = input.given().and_then(|status| status.phase.as_deref()) == Some("Running");
    let (requests, limits) = match runs {
        false => (list(requests), list(limits)),
        true => (
            enforced(given.requests, requests, |name, amount| {
                name != CPU || amount.milli_value() > MIN_REQUEST
            }),
            enforced(given.limits, limits, |name, _| all_limited(pod, name)),
        ),
    };
    ResourceRequirements {
        requests,
        limits,
        claims: given.claims,
    }
}

/// What the pod's definition says for the pod as a whole, with the CPU and memory that its control group has.
fn enforced(
    given: Option<StatusResourceList>,
    amounts: ResourceAmounts,
    has: impl Fn(&str, &quantity::Quantity) -> bool,
) -> Option<StatusResourceList> {
    let mut shown = given.unwrap_or_default();
    let of_cgroup = amounts.into_iter().filter(|(name, amount)| {
        [CPU, MEMORY].contains(&name.as_str()) && has(name.as_str(), amount)
    });
    shown.extend(list(of_cgroup.collect()).unwrap_or_default());
    (!shown.is_empty()).then_some(shown)
}

/// The pod's `allocatedResources`: its requests and overhead.
pub(super) fn allocated(pod: &Pod) -> Option<StatusResourceList> {
    list(pod_requests(
        pod,
        RequestBasis::Spec,
        OverheadPolicy::Counted,
    ))
}

fn list(amounts: ResourceAmounts) -> Option<StatusResourceList> {
    let amounts = amounts.into_iter();
    let list: StatusResourceList = amounts
        .map(|(name, amount)| (name, Quantity(amount.to_string())))
        .collect();
    (!list.is_empty()).then_some(list)
}

#[cfg(test)]
mod tests {
    use logic_resources::resources::cpu_shares;

    use super::*;

    fn actual(cpu_shares: i64, cpu_quota: i64, cpu_period: i64) -> (Option<i64>, Option<i64>) {
        let actual = ActualResources::of(EnforcedResources {
            cpu_shares,
            cpu_quota,
            cpu_period,
            memory_limit: 0,
        });
        assert_eq!(actual.memory_limit, None);
        (actual.cpu_request, actual.cpu_limit)
    }

    /// Upstream's TestSharesToMilliCPU.
    #[test]
    fn a_request_comes_back_from_its_shares_as_it_was() {
        let known = [
            (0, 2),
            (1, 2),
            (2, 2),
            (3, 3),
            (4, 4),
            (32, 32),
            (64, 65),
            (100, 102),
            (250, 256),
            (500, 512),
            (1000, 1024),
            (1500, 1536),
            (2000, 2048),
        ];
        for (milli, shares) in known {
            assert_eq!(cpu_shares(milli), shares, "{milli}");
        }
        for milli in 0..=2000 {
            let found = actual(cpu_shares(milli), 0, 0).0;
            assert_eq!(found, Some(milli.max(MIN_REQUEST)), "{milli}");
        }
    }

    /// Upstream's TestQuotaToMilliCPU.
    #[test]
    fn a_limit_is_the_quota_in_each_period() {
        for (quota, milli) in [(5000, 50), (75_000, 750), (100_000, 1000), (150_000, 1500)] {
            assert_eq!(actual(0, quota, 100_000).1, Some(milli));
        }
        assert_eq!(actual(0, -1, 100_000), (None, None), "no limit");
    }

    /// Upstream's TestToKubeContainerStatusWithResources: what the runtime tells goes before what was carried out.
    #[test]
    fn the_runtime_may_tell_of_cpu_of_memory_or_of_both() {
        let told = |cpu_shares, cpu_quota, memory_limit| {
            let actual = ActualResources::of(EnforcedResources {
                cpu_shares,
                cpu_quota,
                cpu_period: if cpu_quota == 0 { 0 } else { 100_000 },
                memory_limit,
            });
            (actual.cpu_request, actual.cpu_limit, actual.memory_limit)
        };
        const MEMORY_LIMIT: i64 = 524_288_000;
        let both = (None, Some(250), Some(MEMORY_LIMIT));
        assert_eq!(told(0, 25_000, MEMORY_LIMIT), both);
        let cpu = (Some(500), Some(500), None);
        assert_eq!(told(cpu_shares(500), 50_000, 0), cpu);
        assert_eq!(told(0, 0, MEMORY_LIMIT), (None, None, Some(MEMORY_LIMIT)));
    }
}
