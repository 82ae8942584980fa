//! How far an allocated change is carried out, and when it must wait.
//!
//! Mirrors upstream's `isPodResizeInProgress` and `validateMemoryResizeAction` (kuberuntime_manager.go at
//! v1.36).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use logic_api::pod::requests::MEMORY;
use logic_api::quantity::bytes;
use logic_api::types::{ContainerState, RuntimePod};

use super::allocation::resizable;
use super::change::{
    Actuated, ResizeAction, allocated_and_actuated, container_change, pod_level_differs,
};

/// Whether a running container, or its pod, still has other resources than it is allocated. One that does not run gets
/// the right ones when it starts.
pub fn in_progress(pod: &Pod, actuated: &Actuated, runtime: &RuntimePod) -> bool {
    let pod_differs = pod_level_differs(pod, actuated);
    resizable(pod).any(|container| {
        let newest = runtime.newest(&container.name);
        let runs = newest.is_some_and(|c| c.state == ContainerState::Running);
        let (allocated, actual) = allocated_and_actuated(pod, container, actuated);
        let change = container_change(&allocated, &actual.unwrap_or_default(), &[]);
        runs && (pod_differs || change != ResizeAction::None)
    })
}

/// The memory limits in bytes of a pod as a whole, the one in force and the one that is wanted; none for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodMemoryLimits {
    pub from: Option<i64>,
    pub to: Option<i64>,
}

/// Why memory limits cannot go down now: a limit below what is in use would kill what uses it. `used` is
/// the memory in use by container; one that is missing from it is not known.
pub fn memory_refusal(
    pod: &Pod,
    actuated: &Actuated,
    used: &BTreeMap<String, u64>,
    whole: PodMemoryLimits,
) -> Option<String> {
    let error = |container: &Container| {
        let name = &container.name;
        let limit = tightened(pod, container, actuated)?;
        below(name, limit, used.get(name).copied())
    };
    let of_pod = pod_refusal(whole, used).into_iter();
    let errors: Vec<String> = of_pod.chain(resizable(pod).filter_map(error)).collect();
    let all = match errors.as_slice() {
        [] => return None,
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    Some(format!("cannot decrease memory limits: {all}"))
}

fn pod_refusal(whole: PodMemoryLimits, used: &BTreeMap<String, u64>) -> Option<String> {
    let limit = whole.to?;
    if whole.from.is_some_and(|from| from <= limit) {
        return None;
    }
    if used.is_empty() {
        return Some("missing pod memory usage".to_owned());
    }
    let used: u64 = used.values().sum();
    (used >= u64::try_from(limit).unwrap_or(0)).then(|| {
        format!("attempting to set pod memory limit ({limit}) below current usage ({used})")
    })
}

/// The container's new memory limit where it is narrower than the one in force, and no restart brings it.
fn tightened(pod: &Pod, container: &Container, actuated: &Actuated) -> Option<i64> {
    let (allocated, actual) = allocated_and_actuated(pod, container, actuated);
    let actual = actual.unwrap_or_default();
    let policy = container.resize_policy.as_deref().unwrap_or_default();
    let limit = |r: &ResourceRequirements| {
        let limits = r.limits.as_ref();
        bytes(limits.and_then(|list| list.get(MEMORY))).unwrap_or(0)
    };
    let (to, from) = (limit(&allocated), limit(&actual));
    let in_place = container_change(&allocated, &actual, policy) == ResizeAction::InPlace;
    (in_place && to != 0 && (from == 0 || to < from)).then_some(to)
}

fn below(name: &str, limit: i64, used: Option<u64>) -> Option<String> {
    let Some(used) = used else {
        return Some(format!("missing container {name:?} memory usage"));
    };
    let limit = u64::try_from(limit).unwrap_or(0);
    (used >= limit).then(|| {
        format!(
            "attempting to set container {name:?} memory limit ({limit}) below current usage ({used})"
        )
    })
}
