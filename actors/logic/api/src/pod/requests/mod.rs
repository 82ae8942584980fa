//! A pod's requests as a whole, and its limits.
//!
//! Containers add up; an init container counts only as far as it requests more than what runs beside it, and a sidecar
//! goes on counting. Pod-level amounts replace the containers', overhead comes on top. Mirrors upstream's
//! component-helpers `resource.PodRequests` and `PodLimits`, and `GetResourceRequest` of pkg/api/v1/resource, at
//! v1.36.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, Pod, PodStatus, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource as api;

use crate::pod::{PodView, is_sidecar};
use crate::quantity::{Quantity, QuantityFormat, QuantityValue, compare};

pub const PODS: &str = "pods";
pub const CPU: &str = "cpu";
pub const MEMORY: &str = "memory";
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
pub const HUGE_PAGES: &str = "hugepages-";

/// Quantities by resource name (`cpu`, `memory` ...).
pub type ResourceAmounts = BTreeMap<String, Quantity>;

/// By which resources a pod counts that is being resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBasis {
    /// By its spec alone.
    Spec,
    /// The largest of what is wanted, allocated and in force; a resize that is infeasible is not wanted.
    Status,
}

/// Whether the pod's overhead counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverheadPolicy {
    Counted,
    Left,
}

/// Everything that the pod asks for.
pub fn pod_requests(pod: &Pod, basis: RequestBasis, overhead: OverheadPolicy) -> ResourceAmounts {
    let mut sum = aggregate(pod, basis, &ResourceSide::REQUESTS);
    over(&mut sum, pod, basis, &ResourceSide::REQUESTS);
    if overhead == OverheadPolicy::Counted {
        add(
            &mut sum,
            &read(pod.spec().and_then(|s| s.overhead.as_ref())),
        );
    }
    sum
}

/// The most that the pod may take, where everything in it is limited; overhead counts where there is a limit.
pub fn pod_limits(pod: &Pod, basis: RequestBasis, overhead: OverheadPolicy) -> ResourceAmounts {
    let mut sum = aggregate(pod, basis, &ResourceSide::LIMITS);
    over(&mut sum, pod, basis, &ResourceSide::LIMITS);
    if overhead == OverheadPolicy::Counted {
        let mut more = read(pod.spec().and_then(|s| s.overhead.as_ref()));
        more.retain(|name, _| sum.get(name).is_some_and(|amount| !amount.is_zero()));
        add(&mut sum, &more);
    }
    sum
}

/// How much of one resource the pod asks for: thousandths of CPU, whole units otherwise; overhead comes on
/// top of what is asked for.
pub fn request(pod: &Pod, resource: &str) -> i64 {
    if resource == PODS {
        return 1;
    }
    let asked = pod_requests(pod, RequestBasis::Spec, OverheadPolicy::Left).remove(resource);
    let overhead = || pod.spec()?.overhead.as_ref()?.get(resource);
    let total = match asked.filter(|amount| !amount.is_zero()) {
        Some(amount) => match overhead().and_then(parse) {
            Some(more) => sum(&amount, &more),
            None => amount,
        },
        None => return 0,
    };
    whole(resource, &total)
}

/// The number that decisions compare: thousandths of CPU, whole units otherwise.
pub fn whole(resource: &str, amount: &Quantity) -> i64 {
    match resource {
        CPU => amount.milli_value(),
        _ => amount.value(),
    }
}

/// A whole number as a quantity; `BinarySI` for bytes.
pub fn quantity(value: i64, format: QuantityFormat) -> Quantity {
    Quantity {
        amount: QuantityValue::Small { value, scale: 0 },
        format,
        text: None,
    }
}

/// `amount` less `taken`; zero where it would be negative.
pub fn left(amount: &Quantity, taken: &Quantity) -> Quantity {
    let negative = match taken.amount {
        QuantityValue::Small { value, scale } => QuantityValue::Small {
            value: value.saturating_neg(),
            scale,
        },
        QuantityValue::Big { unscaled, scale } => QuantityValue::Big {
            unscaled: unscaled.saturating_neg(),
            scale,
        },
    };
    let taken = Quantity {
        amount: negative,
        ..taken.clone()
    };
    let left = sum(amount, &taken);
    match left.is_negative() {
        true => quantity(0, amount.format),
        false => left,
    }
}

/// Reads a list as the API writes it; an invalid quantity was refused by validation and counts as zero.
pub fn read(list: Option<&BTreeMap<String, api::Quantity>>) -> ResourceAmounts {
    let entries = list.into_iter().flatten();
    let read = |(name, amount)| Some((String::clone(name), parse(amount)?));
    entries.filter_map(read).collect()
}

pub fn parse(amount: &api::Quantity) -> Option<Quantity> {
    Quantity::parse(&amount.0).ok()
}

/// Adds every amount of `more`.
pub fn add(total: &mut ResourceAmounts, more: &ResourceAmounts) {
    for (name, amount) in more {
        let new = match total.get(name) {
            Some(old) => sum(old, amount),
            None => amount.clone(),
        };
        total.insert(name.clone(), new);
    }
}

/// The larger one of each resource.
pub fn raise(total: &mut ResourceAmounts, other: ResourceAmounts) {
    for (name, amount) in other {
        let larger = |old| compare(&amount, old) == Ordering::Greater;
        if total.get(&name).is_none_or(larger) {
            total.insert(name, amount);
        }
    }
}

/// A sum beyond 128 bits is as good as its larger part: nothing has so much.
fn sum(left: &Quantity, right: &Quantity) -> Quantity {
    left.plus(right)
        .unwrap_or_else(|| match compare(left, right) {
            Ordering::Less => right.clone(),
            Ordering::Equal | Ordering::Greater => left.clone(),
        })
}

/// Whether a pod may name the resource for all its containers together.
pub fn is_pod_level(resource: &str) -> bool {
    resource == CPU || resource == MEMORY || resource.starts_with(HUGE_PAGES)
}

/// Whether the pod names any resource for all its containers together.
pub fn has_pod_level(pod: &Pod) -> bool {
    let resources = pod.spec().and_then(|spec| spec.resources.as_ref());
    let lists = resources.map(|r| [r.requests.as_ref(), r.limits.as_ref()]);
    let mut names = lists
        .into_iter()
        .flatten()
        .flatten()
        .flat_map(BTreeMap::keys);
    names.any(|name| is_pod_level(name))
}

type ApiResourceList = BTreeMap<String, api::Quantity>;

/// Requests or limits: where each stands in the definition and in the status.
struct ResourceSide {
    of: fn(&ResourceRequirements) -> Option<&ApiResourceList>,
    allocated: fn(&ContainerStatus) -> Option<&ApiResourceList>,
    pod_allocated: fn(&PodStatus) -> Option<&ApiResourceList>,
}

impl ResourceSide {
    const REQUESTS: Self = Self {
        of: |resources| resources.requests.as_ref(),
        allocated: |status| status.allocated_resources.as_ref(),
        pod_allocated: |status| status.allocated_resources.as_ref(),
    };
    /// Only requests are allocated.
    const LIMITS: Self = Self {
        of: |resources| resources.limits.as_ref(),
        allocated: |_| None,
        pod_allocated: |_| None,
    };

    fn spec<'a>(&self, container: &'a Container) -> Option<&'a ApiResourceList> {
        container.resources.as_ref().and_then(self.of)
    }

    fn actuated<'a>(&self, status: &'a ContainerStatus) -> Option<&'a ApiResourceList> {
        let resources = status.resources.as_ref().and_then(self.of);
        resources.or_else(|| (self.allocated)(status))
    }
}

fn aggregate(pod: &Pod, basis: RequestBasis, side: &ResourceSide) -> ResourceAmounts {
    let wanted = containers(pod, |container| side.spec(container));
    let status = match (basis, pod.status.as_ref()) {
        (RequestBasis::Status, Some(status)) => status,
        (RequestBasis::Status, None) | (RequestBasis::Spec, _) => return wanted,
    };
    let infeasible = is_infeasible(status);
    let known = |container: &Container| find_status(status, &container.name);
    let fallback = |container| side.spec(container).filter(|_| !infeasible);
    let in_force = containers(pod, |c| {
        known(c)
            .and_then(|s| side.actuated(s))
            .or_else(|| fallback(c))
    });
    let allocated = containers(pod, |c| {
        known(c)
            .and_then(|s| (side.allocated)(s))
            .or_else(|| fallback(c))
    });
    let mut most = if infeasible {
        ResourceAmounts::new()
    } else {
        wanted
    };
    raise(&mut most, in_force);
    raise(&mut most, allocated);
    most
}

/// Puts the pod-level amounts in place of the containers'.
fn over(sum: &mut ResourceAmounts, pod: &Pod, basis: RequestBasis, side: &ResourceSide) {
    let wanted = pod.spec().and_then(|spec| spec.resources.as_ref());
    let mut wanted = read(wanted.and_then(side.of));
    if !wanted.keys().any(|name| is_pod_level(name)) {
        return;
    }
    if let (RequestBasis::Status, Some(status)) = (basis, pod.status.as_ref()) {
        if is_infeasible(status) {
            wanted.clear();
        }
        raise(
            &mut wanted,
            read(status.resources.as_ref().and_then(side.of)),
        );
        raise(&mut wanted, read((side.pod_allocated)(status)));
    }
    wanted.retain(|name, _| is_pod_level(name));
    sum.extend(wanted);
}

/// App containers and sidecars together, or the most that runs while the pod initialises.
fn containers<'a>(
    pod: &'a Pod,
    of: impl Fn(&'a Container) -> Option<&'a ApiResourceList>,
) -> ResourceAmounts {
    let mut total = ResourceAmounts::new();
    for container in pod.app_containers() {
        add(&mut total, &read(of(container)));
    }
    let (mut sidecars, mut initialising) = (ResourceAmounts::new(), ResourceAmounts::new());
    for container in pod.init_containers() {
        let own = read(of(container));
        if is_sidecar(container) {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            raise(&mut initialising, sidecars.clone());
        } else {
            let mut together = own;
            add(&mut together, &sidecars);
            raise(&mut initialising, together);
        }
    }
    raise(&mut total, initialising);
    total
}

fn find_status<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    let apps = status.container_statuses.iter().flatten();
    let init = status.init_container_statuses.iter().flatten();
    apps.chain(init).find(|status| status.name == name)
}

fn is_infeasible(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    let pending = conditions.find(|condition| condition.type_ == "PodResizePending");
    pending.is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"))
}

#[cfg(test)]
mod tests;
