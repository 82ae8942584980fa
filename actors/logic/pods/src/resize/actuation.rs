//! How allocated resources are carried out in a running pod: step by step, memory before CPU.
//!
//! A pod as a whole grows before its containers and shrinks after them, so that no container ever has more than its
//! pod. Mirrors upstream's `doPodResizeAction` and `updatePodContainerResources` (kuberuntime_manager.go at v1.36).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use logic_api::pod::PodView;
use logic_api::pod::requests::{CPU, MEMORY};
use logic_resources::cgroups::{CgroupLimits, CpuQuota, pod_limits};
use logic_resources::node::policy::NodePolicy;

use super::allocation::{AllocatedResources, apply};
use super::change::{Actuated, POD_LEVEL, ResizeDirection, allocated_and_actuated, directions};

/// One step of a resize.
#[derive(Clone, Debug, PartialEq)]
pub enum ResizeStep {
    /// The runtime is told what the pod as a whole gets, then its control group gets it.
    Pod(Box<PodResize>),
    /// The runtime has the container enforce these.
    Container {
        name: String,
        resources: Box<ResourceRequirements>,
    },
}

/// A change of the pod as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodResize {
    /// `memory` or `cpu`.
    pub resource: &'static str,
    /// All limits, those that do not change too.
    pub limits: CgroupLimits,
    /// What the runtime is told again if the control group cannot be changed.
    pub before: CgroupLimits,
}

/// The steps that give a pod its allocated resources; `running` are the containers that are resized in place.
pub fn resize_steps(
    pod: &Pod,
    actuated: &Actuated,
    running: &[&str],
    node: &NodePolicy,
) -> Vec<ResizeStep> {
    let mut draft = StepBuilder {
        pod,
        running,
        in_force: actuated.clone(),
        current: limits_in_force(pod, actuated, node),
        wanted: pod_limits(pod, node),
        steps: Vec::new(),
    };
    draft.memory();
    draft.cpu();
    // One without a record was started without resources, or by another agent: whatever is in force, the pod's limits
    // are written once more.
    if running.iter().any(|name| !actuated.contains_key(*name)) {
        draft.resize_pod(CPU, |_| {});
    }
    draft.steps
}

/// The limits of the pod as a whole that were last carried out; a container without a record has what it is allocated.
pub fn limits_in_force(pod: &Pod, actuated: &Actuated, node: &NodePolicy) -> CgroupLimits {
    let level = || pod.spec().and_then(|spec| spec.resources.clone());
    let before = AllocatedResources {
        pod: actuated.get(POD_LEVEL).cloned().or_else(level),
        containers: actuated.clone(),
    };
    pod_limits(&apply(pod, &before), node)
}

struct StepBuilder<'a> {
    pod: &'a Pod,
    running: &'a [&'a str],
    in_force: Actuated,
    current: CgroupLimits,
    wanted: CgroupLimits,
    steps: Vec<ResizeStep>,
}

impl StepBuilder<'_> {
    /// A limit that goes away stays in force, as with upstream.
    fn memory(&mut self) {
        let memory = self.wanted.memory.or(self.current.memory);
        let bytes = |limit: Option<i64>| limit.unwrap_or(i64::MAX);
        let (from, to) = (bytes(self.current.memory), bytes(memory));
        let set = |limits: &mut CgroupLimits| limits.memory = memory;
        if to > from {
            self.resize_pod(MEMORY, set);
        }
        self.resize_containers(MEMORY);
        if to < from {
            self.resize_pod(MEMORY, set);
        }
    }

    /// The limit grows before the request and shrinks after it.
    fn cpu(&mut self) {
        let (cpu, shares) = (self.wanted.cpu.or(self.current.cpu), self.wanted.cpu_shares);
        let quota = |cpu: Option<CpuQuota>| cpu.map_or(-1, |cpu| cpu.quota);
        let (from, to) = (quota(self.current.cpu), quota(cpu));
        let old_shares = self.current.cpu_shares;
        let set_limit = |limits: &mut CgroupLimits| limits.cpu = cpu;
        let set_request = |limits: &mut CgroupLimits| limits.cpu_shares = shares;
        if to > from {
            self.resize_pod(CPU, set_limit);
        }
        if shares > old_shares {
            self.resize_pod(CPU, set_request);
        }
        self.resize_containers(CPU);
        if shares < old_shares {
            self.resize_pod(CPU, set_request);
        }
        if to < from {
            self.resize_pod(CPU, set_limit);
        }
    }

    fn resize_pod(&mut self, resource: &'static str, set: impl FnOnce(&mut CgroupLimits)) {
        let before = self.current.clone();
        set(&mut self.current);
        self.steps.push(ResizeStep::Pod(Box::new(PodResize {
            resource,
            limits: self.current.clone(),
            before,
        })));
    }

    /// Those that shrink come first.
    fn resize_containers(&mut self, resource: &str) {
        let mut changed: Vec<(ResizeDirection, String, ResourceRequirements)> = Vec::new();
        for name in self.running {
            let Some((_, spec)) = self.pod.container(name) else {
                continue;
            };
            let (allocated, actuated) = allocated_and_actuated(self.pod, &spec, &self.in_force);
            let ways = directions(&allocated, &actuated.unwrap_or_default());
            let way = if resource == CPU {
                ways.cpu
            } else {
                ways.memory
            };
            if way != ResizeDirection::Same {
                let other = if resource == CPU { MEMORY } else { CPU };
                let allocated = spec.resources.clone().unwrap_or_default();
                let resources = match self.in_force.get(*name) {
                    Some(actuated) => with_other(allocated, actuated, other),
                    // Nobody noted what is in force: a part of it would take the rest away.
                    None => allocated,
                };
                changed.push((way, (*name).to_owned(), resources));
            }
        }
        changed.sort_by_key(|(way, ..)| *way);
        for (_, name, resources) in changed {
            self.in_force.insert(name.clone(), resources.clone());
            self.steps.push(ResizeStep::Container {
                name,
                resources: Box::new(resources),
            });
        }
    }
}

/// The allocated resources, but for the one whose turn has not come.
fn with_other(
    allocated: ResourceRequirements,
    actuated: &ResourceRequirements,
    other: &str,
) -> ResourceRequirements {
    type List = BTreeMap<String, Quantity>;
    let mixed = |to: Option<List>, from: Option<&List>| {
        let mut list = to.unwrap_or_default();
        match from.and_then(|from| from.get(other)) {
            Some(amount) => list.insert(other.to_owned(), amount.clone()),
            None => list.remove(other),
        };
        (!list.is_empty()).then_some(list)
    };
    ResourceRequirements {
        requests: mixed(allocated.requests, actuated.requests.as_ref()),
        limits: mixed(allocated.limits, actuated.limits.as_ref()),
        claims: allocated.claims,
    }
}

#[cfg(test)]
mod tests {
    use logic_api::testing::*;

    use super::*;

    type Pairs = &'static [(&'static str, &'static str)];

    fn resources(requests: Pairs, limits: Pairs) -> ResourceRequirements {
        ResourceRequirements {
            requests: (!requests.is_empty()).then(|| quantities(requests)),
            limits: (!limits.is_empty()).then(|| quantities(limits)),
            claims: None,
        }
    }

    fn word(step: &ResizeStep) -> String {
        match step {
            ResizeStep::Pod(change) => {
                let CgroupLimits {
                    cpu_shares,
                    cpu,
                    memory,
                    ..
                } = &change.limits;
                let quota = cpu.map_or(-1, |cpu| cpu.quota);
                let memory = memory.map_or("max".to_owned(), |bytes| bytes.to_string());
                let shares = cpu_shares.unwrap_or_default();
                format!("{}: {shares} {quota} {memory}", change.resource)
            }
            ResizeStep::Container { name, resources } => {
                let of = |list: &Option<BTreeMap<String, Quantity>>| {
                    let amount = |name| {
                        list.as_ref()
                            .and_then(|list| Some(list.get(name)?.0.clone()))
                    };
                    let words = [amount(CPU), amount(MEMORY)].map(Option::unwrap_or_default);
                    words.join(",")
                };
                format!(
                    "{name}: {} {}",
                    of(&resources.requests),
                    of(&resources.limits)
                )
            }
        }
    }

    /// The steps of a pod whose container `a` goes from one to the other; `b` has what `others` says.
    fn steps(from: &ResourceRequirements, to: &ResourceRequirements, others: Pairs) -> Vec<String> {
        let other = resources(others, others);
        let pod = pod("p")
            .app_with("a", |c| c.resources = Some(to.clone()))
            .app_with("b", |c| c.resources = Some(other.clone()));
        let actuated = [("a".to_owned(), from.clone()), ("b".to_owned(), other)].into();
        let made = resize_steps(&pod, &actuated, &["a"], &NodePolicy::default());
        made.iter().map(word).collect()
    }

    const OTHERS: Pairs = &[("cpu", "200m"), ("memory", "200")];
    const ONE: Pairs = &[("cpu", "100m"), ("memory", "100")];
    const TWO: Pairs = &[("cpu", "200m"), ("memory", "200")];

    /// Upstream's TestDoPodResizeAction and TestMergeResourceConfig: what is told of the pod as a whole, and when.
    #[test]
    fn a_pod_grows_before_its_containers_and_shrinks_after_them() {
        let both = |list: Pairs| resources(list, list);
        let grown = [
            "memory: 307 30000 400",
            "a: 100m,200 100m,200",
            "cpu: 307 40000 400",
            "cpu: 409 40000 400",
            "a: 200m,200 200m,200",
        ];
        assert_eq!(steps(&both(ONE), &both(TWO), OTHERS), grown);
        let shrunk = [
            "a: 200m,100 200m,100",
            "memory: 409 40000 300",
            "a: 100m,100 100m,100",
            "cpu: 307 40000 300",
            "cpu: 307 30000 300",
        ];
        assert_eq!(steps(&both(TWO), &both(ONE), OTHERS), shrunk);
        let unlimited = [
            "a: 100m,200 100m,200",
            "cpu: 204 -1 max",
            "a: 200m,200 200m,200",
        ];
        assert_eq!(steps(&both(ONE), &both(TWO), &[]), unlimited);
        let added = [
            "a: 100m,100 ,100",
            "memory: 307 -1 300",
            "cpu: 307 30000 300",
            "a: 100m,100 100m,100",
        ];
        let requests = resources(ONE, &[]);
        assert_eq!(steps(&requests, &both(ONE), OTHERS), added);
        let without = ["a: 100m,100 ,100", "a: 100m,100 100m,100"];
        assert_eq!(steps(&requests, &both(ONE), &[]), without);
        let more = resources(&[("cpu", "200m"), ("memory", "100")], &[]);
        let request = ["cpu: 204 -1 max", "a: 200m,100 ,"];
        assert_eq!(steps(&requests, &more, &[]), request);
        let memory = resources(&[("cpu", "100m"), ("memory", "200")], &[]);
        assert_eq!(steps(&requests, &memory, &[]), ["a: 100m,200 ,"]);
        assert_eq!(steps(&both(ONE), &both(ONE), OTHERS), [""; 0]);
        let removed = ["a: 100m,100 100m,", "a: 100m,100 ,"];
        assert_eq!(steps(&both(ONE), &requests, OTHERS), removed);
    }

    /// Upstream's TestUpdatePodContainerResources.
    #[test]
    fn each_resource_is_carried_out_for_itself_and_decreases_come_first() {
        let pod = pod("p")
            .app_with("a", |c| c.resources = Some(resources(TWO, TWO)))
            .app_with("b", |c| c.resources = Some(resources(ONE, ONE)));
        let actuated = [
            ("a".to_owned(), resources(ONE, ONE)),
            ("b".to_owned(), resources(TWO, TWO)),
        ];
        let node = NodePolicy::default();
        let made = resize_steps(&pod, &actuated.into(), &["a", "b"], &node);
        let words: Vec<String> = made.iter().map(word).collect();
        let expected = [
            "b: 200m,100 200m,100",
            "a: 100m,200 100m,200",
            "b: 100m,100 100m,100",
            "a: 200m,200 200m,200",
        ];
        assert_eq!(words, expected);
        let adopted = resize_steps(&pod, &BTreeMap::new(), &["a"], &node);
        let words: Vec<String> = adopted.iter().map(word).collect();
        assert_eq!(words, ["a: 200m,200 200m,200", "cpu: 307 30000 300"]);
    }

    /// Upstream's TestDoPodResizeAction: its rows on pod-level resources.
    #[test]
    fn pod_level_resources_are_carried_out_with_and_without_those_of_containers() {
        let changed = |from: &ResourceRequirements, to: &ResourceRequirements, own: [Pairs; 2]| {
            let pod = pod("p")
                .app_with("a", |c| c.resources = Some(resources(own[1], own[1])))
                .spec_with(|spec| spec.resources = Some(to.clone()));
            let actuated = [
                ("a".to_owned(), resources(own[0], own[0])),
                (POD_LEVEL.to_owned(), from.clone()),
            ];
            let made = resize_steps(&pod, &actuated.into(), &["a"], &NodePolicy::default());
            made.iter().map(word).collect::<Vec<String>>()
        };
        let level = |cpu: (&str, &str), memory: (&str, &str)| ResourceRequirements {
            requests: Some(quantities(&[("cpu", cpu.0), ("memory", memory.0)])),
            limits: Some(quantities(&[("cpu", cpu.1), ("memory", memory.1)])),
            claims: None,
        };
        let base = level(("100m", "300m"), ("100", "300"));
        let stays = [ONE, ONE];
        let same = changed(&base, &level(("100m", "300m"), ("200", "300")), stays);
        assert_eq!(same, [""; 0], "requests of memory are written nowhere");
        let memory = changed(&base, &level(("100m", "300m"), ("100", "400")), stays);
        assert_eq!(memory, ["memory: 102 30000 400"]);
        let request = changed(&base, &level(("200m", "300m"), ("100", "300")), stays);
        assert_eq!(request, ["cpu: 204 30000 300"]);
        let limit = changed(&base, &level(("100m", "400m"), ("100", "300")), stays);
        assert_eq!(limit, ["cpu: 102 40000 300"]);
        let both = changed(&base, &level(("200m", "400m"), ("200", "400")), [ONE, TWO]);
        let expected = [
            "memory: 102 30000 400",
            "a: 100m,200 100m,200",
            "cpu: 102 40000 400",
            "cpu: 204 40000 400",
            "a: 200m,200 200m,200",
        ];
        assert_eq!(both, expected);
        let shared = changed(&base, &level(("100m", "400m"), ("100", "300")), [&[], &[]]);
        assert_eq!(shared, ["cpu: 102 40000 300", "a: , ,"]);
    }

    #[test]
    fn a_container_that_is_restarted_for_it_resizes_its_pod_all_the_same() {
        let pod = pod("p").app_with("a", |c| c.resources = Some(resources(TWO, TWO)));
        let actuated = [("a".to_owned(), resources(ONE, ONE))].into();
        let made = resize_steps(&pod, &actuated, &[], &NodePolicy::default());
        let words: Vec<String> = made.iter().map(word).collect();
        let expected = [
            "memory: 102 10000 200",
            "cpu: 102 20000 200",
            "cpu: 204 20000 200",
        ];
        assert_eq!(words, expected);
    }
}
