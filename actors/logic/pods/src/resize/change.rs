//! What a running container needs when its allocated CPU and memory are not what was last carried out.
//!
//! Mirrors upstream's `computePodResizeAction` (kuberuntime_manager.go at v1.36).

use std::cmp::Ordering;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerResizePolicy, Pod, ResourceRequirements};
use logic_api::pod::PodView;
use logic_api::pod::requests::{CPU, MEMORY};
use logic_api::quantity::{bytes, milli};
use serde::{Deserialize, Serialize};

/// How a running container gets its allocated resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResizeAction {
    None,
    /// The runtime enforces the new values while the container runs.
    InPlace,
    /// Its `resizePolicy` wants it stopped, and started with the new values.
    Restart,
}

/// The direction of a change; decreases are carried out before increases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ResizeDirection {
    Down,
    Same,
    Up,
}

/// Which way CPU and memory of a container go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResizeDirections {
    pub cpu: ResizeDirection,
    pub memory: ResizeDirection,
}

/// The action that gives the container its allocated resources.
pub fn container_change(
    allocated: &ResourceRequirements,
    actuated: &ResourceRequirements,
    policy: &[ContainerResizePolicy],
) -> ResizeAction {
    let ResizeDirections { cpu, memory } = directions(allocated, actuated);
    let changed = [(CPU, cpu), (MEMORY, memory)];
    let mut changed = changed
        .into_iter()
        .filter(|(_, way)| *way != ResizeDirection::Same)
        .map(|(name, _)| name)
        .peekable();
    if changed.peek().is_none() {
        return ResizeAction::None;
    }
    match changed.any(|name| restarts(policy, name)) {
        true => ResizeAction::Restart,
        false => ResizeAction::InPlace,
    }
}

/// Compares limit first, then request: the limit is what the kernel enforces hard.
pub fn directions(
    allocated: &ResourceRequirements,
    actuated: &ResourceRequirements,
) -> ResizeDirections {
    let (to, from) = (CpuAndMemory::of(allocated), CpuAndMemory::of(actuated));
    ResizeDirections {
        cpu: direction(
            (to.cpu_limit, to.cpu_request),
            (from.cpu_limit, from.cpu_request),
        ),
        memory: direction(
            (to.memory_limit, to.memory_request),
            (from.memory_limit, from.memory_request),
        ),
    }
}

/// CPU and memory as they were last carried out, by container; those of the pod as a whole under [`POD_LEVEL`].
pub type Actuated = BTreeMap<String, ResourceRequirements>;

/// What stands for a container's name where pod-level resources are meant: no container's name is empty.
pub const POD_LEVEL: &str = "";

/// A container's resources as they are allocated, and as they were last carried out, both with the pod's limits; none
/// where nobody noted that.
pub fn allocated_and_actuated(
    pod: &Pod,
    container: &Container,
    actuated: &Actuated,
) -> (ResourceRequirements, Option<ResourceRequirements>) {
    let level = pod.spec().and_then(|spec| spec.resources.as_ref());
    let own = container.resources.clone().unwrap_or_default();
    let noted = match (actuated.get(&container.name), actuated.get(POD_LEVEL)) {
        (Some(noted), old) => effective(noted, old.or(level)),
        // Default resources are not noted.
        (None, Some(old)) => effective(&ResourceRequirements::default(), Some(old)),
        (None, None) => return (own, None),
    };
    (effective(&own, level), Some(noted))
}

/// Whether the pod's own resources are not those last carried out.
pub fn pod_level_differs(pod: &Pod, actuated: &Actuated) -> bool {
    let none = ResourceRequirements::default();
    let allocated = pod.spec().and_then(|spec| spec.resources.as_ref());
    actuated.get(POD_LEVEL).is_some_and(|noted| {
        container_change(allocated.unwrap_or(&none), noted, &[]) != ResizeAction::None
    })
}

/// The container's resources with the pod's limits where it has none of its own: the runtime gets these where
/// pod-level resources can be resized.
fn effective(
    container: &ResourceRequirements,
    pod: Option<&ResourceRequirements>,
) -> ResourceRequirements {
    let mut limits = container.limits.clone().unwrap_or_default();
    for name in [CPU, MEMORY] {
        let shared = pod.and_then(|pod| pod.limits.as_ref()?.get(name));
        if let Some(shared) = shared.filter(|_| !limits.contains_key(name)) {
            limits.insert(name.to_owned(), shared.clone());
        }
    }
    ResourceRequirements {
        limits: (!limits.is_empty()).then_some(limits),
        ..container.clone()
    }
}

fn direction(to: (i64, i64), from: (i64, i64)) -> ResizeDirection {
    match to.cmp(&from) {
        Ordering::Less => ResizeDirection::Down,
        Ordering::Equal => ResizeDirection::Same,
        Ordering::Greater => ResizeDirection::Up,
    }
}

/// An absent amount counts as zero, as upstream has it.
struct CpuAndMemory {
    cpu_limit: i64,
    cpu_request: i64,
    memory_limit: i64,
    memory_request: i64,
}

impl CpuAndMemory {
    fn of(resources: &ResourceRequirements) -> Self {
        let limit = |name| resources.limits.as_ref().and_then(|list| list.get(name));
        let request = |name| resources.requests.as_ref().and_then(|list| list.get(name));
        Self {
            cpu_limit: milli(limit(CPU)).unwrap_or(0),
            cpu_request: milli(request(CPU)).unwrap_or(0),
            memory_limit: bytes(limit(MEMORY)).unwrap_or(0),
            memory_request: bytes(request(MEMORY)).unwrap_or(0),
        }
    }
}

/// Without a policy for the resource no restart is needed.
pub(super) fn restarts(policy: &[ContainerResizePolicy], resource: &str) -> bool {
    policy
        .iter()
        .find(|policy| policy.resource_name == resource)
        .is_some_and(|policy| policy.restart_policy == "RestartContainer")
}

#[cfg(test)]
mod tests {
    use logic_api::testing::*;

    use super::*;

    fn resources(cpu: (&str, &str), memory: (&str, &str)) -> ResourceRequirements {
        let list = |cpu: &str, memory: &str| {
            let mut list = quantities(&[("cpu", cpu), ("memory", memory)]);
            list.retain(|_, quantity| !quantity.0.is_empty());
            Some(list)
        };
        ResourceRequirements {
            requests: list(cpu.0, memory.0),
            limits: list(cpu.1, memory.1),
            claims: None,
        }
    }

    fn policy(cpu: &str, memory: &str) -> Vec<ContainerResizePolicy> {
        let policy = |name: &str, restart: &str| ContainerResizePolicy {
            resource_name: name.into(),
            restart_policy: restart.into(),
        };
        vec![policy("cpu", cpu), policy("memory", memory)]
    }

    const STAY: &str = "NotRequired";
    const RESTART: &str = "RestartContainer";

    /// Upstream's TestComputePodActionsForPodResize.
    #[test]
    fn a_changed_container_is_updated_in_place_unless_its_policy_wants_a_restart() {
        let old = resources(("100m", "200m"), ("100Mi", "200Mi"));
        let cpu = resources(("100m", "300m"), ("100Mi", "200Mi"));
        let cpu_request = resources(("50m", "200m"), ("100Mi", "200Mi"));
        let memory = resources(("100m", "200m"), ("100Mi", "300Mi"));
        let memory_request = resources(("100m", "200m"), ("50Mi", "200Mi"));
        let both = resources(("100m", "300m"), ("100Mi", "100Mi"));
        let same = resources(("0.1", "0.2"), ("102400Ki", "200Mi"));
        let unlimited = resources(("100m", ""), ("100Mi", ""));
        let cases = [
            (&old, policy(RESTART, RESTART), ResizeAction::None),
            (&same, policy(RESTART, RESTART), ResizeAction::None),
            (&cpu, vec![], ResizeAction::InPlace),
            (&cpu, policy(STAY, RESTART), ResizeAction::InPlace),
            (&cpu, policy(RESTART, STAY), ResizeAction::Restart),
            (&cpu_request, policy(RESTART, STAY), ResizeAction::Restart),
            (&memory, policy(RESTART, STAY), ResizeAction::InPlace),
            (&memory, policy(STAY, RESTART), ResizeAction::Restart),
            (
                &memory_request,
                policy(STAY, RESTART),
                ResizeAction::Restart,
            ),
            (&memory_request, vec![], ResizeAction::InPlace),
            (&both, policy(STAY, STAY), ResizeAction::InPlace),
            (&both, policy(STAY, RESTART), ResizeAction::Restart),
            (&unlimited, policy(STAY, STAY), ResizeAction::InPlace),
        ];
        for (allocated, policy, expected) in cases {
            let found = container_change(allocated, &old, &policy);
            assert_eq!(found, expected, "{allocated:?} {policy:?}");
        }
    }

    /// Upstream's TestCmpActuatedAllocated.
    #[test]
    fn what_is_absent_equals_what_is_empty_and_nothing_else() {
        let empty = ResourceRequirements::default();
        let lists = ResourceRequirements {
            requests: Some(quantities(&[])),
            limits: Some(quantities(&[])),
            claims: None,
        };
        let cpu = resources(("10m", ""), ("", ""));
        let requests = resources(("10m", ""), ("10Mi", ""));
        let limits = resources(("", "10m"), ("", "10Mi"));
        let both = resources(("10m", "20m"), ("20Mi", "10Mi"));
        let cases = [
            (&empty, &empty, ResizeAction::None),
            (&empty, &lists, ResizeAction::None),
            (&lists, &empty, ResizeAction::None),
            (&empty, &cpu, ResizeAction::InPlace),
            (&empty, &requests, ResizeAction::InPlace),
            (&requests, &requests, ResizeAction::None),
            (&requests, &limits, ResizeAction::InPlace),
            (&both, &both, ResizeAction::None),
        ];
        for (actuated, allocated, expected) in cases {
            let found = container_change(allocated, actuated, &[]);
            assert_eq!(found, expected, "{actuated:?} {allocated:?}");
        }
    }

    #[test]
    fn a_container_without_a_limit_has_its_pods_and_changes_with_it() {
        let limited = |amount: &str| resources(("", amount), ("", ""));
        let own = resources(("100m", ""), ("", ""));
        let with = |level: &str| {
            pod("p")
                .app_with("c", |c| c.resources = Some(own.clone()))
                .app("d")
                .spec_with(|spec| spec.resources = Some(limited(level)))
        };
        let noted = |level: Option<&str>| {
            let mut noted = Actuated::from([("c".to_owned(), own.clone())]);
            noted.extend(level.map(|level| (POD_LEVEL.to_owned(), limited(level))));
            noted
        };
        let found = |pod: &Pod, noted: &Actuated| {
            let changes = pod.app_containers().iter().map(|container| {
                let (allocated, actuated) = allocated_and_actuated(pod, container, noted);
                actuated.map(|actuated| container_change(&allocated, &actuated, &[]))
            });
            (changes.collect::<Vec<_>>(), pod_level_differs(pod, noted))
        };
        let (none, in_place) = (Some(ResizeAction::None), Some(ResizeAction::InPlace));
        let same = found(&with("1"), &noted(Some("1")));
        assert_eq!(same, (vec![none; 2], false));
        let grown = found(&with("2"), &noted(Some("1")));
        assert_eq!(grown, (vec![in_place; 2], true));
        let adopted = found(&with("2"), &noted(None));
        assert_eq!(adopted, (vec![none, None], false));
    }

    #[test]
    fn the_limit_gives_the_direction_and_the_request_where_limits_are_equal() {
        use ResizeDirection::{Down, Same, Up};
        let old = resources(("100m", "200m"), ("100Mi", "200Mi"));
        let cases = [
            (
                resources(("100m", "200m"), ("100Mi", "200Mi")),
                (Same, Same),
            ),
            (resources(("50m", "300m"), ("150Mi", "100Mi")), (Up, Down)),
            (resources(("150m", "200m"), ("50Mi", "200Mi")), (Up, Down)),
            (resources(("100m", ""), ("100Mi", "")), (Down, Down)),
        ];
        for (allocated, (cpu, memory)) in cases {
            assert_eq!(
                directions(&allocated, &old),
                ResizeDirections { cpu, memory }
            );
        }
    }
}
