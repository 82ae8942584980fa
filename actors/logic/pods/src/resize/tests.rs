//! Desired, allocated and actuated resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, ContainerResizePolicy, Pod, ResourceRequirements};
use logic_api::pod::requests;
use logic_api::pod::{CONFIG_SOURCE, PodView, SYSTEM_CRITICAL_PRIORITY};
use logic_api::testing::*;
use logic_api::types::{ContainerState, EventLevel};
use logic_placement::devices::DeviceInventory;
use logic_placement::topology::testing::OneCpuEach;
use logic_placement::topology::{Assignment, HeldAssignments, PlacementCount, TopologyManager};
use logic_resources::node::{ExclusiveAllocation, NodeFacts, NodeSwap, PodLevelResize, Support};
use proptest::prelude::*;

use super::*;
use crate::admission::NodeShutdown;

type AmountPairs<'a> = &'a [(&'a str, &'a str)];

fn resources(requests: AmountPairs<'_>, limits: AmountPairs<'_>) -> ResourceRequirements {
    let list = |pairs: AmountPairs<'_>| (!pairs.is_empty()).then(|| quantities(pairs));
    ResourceRequirements {
        requests: list(requests),
        limits: list(limits),
        claims: None,
    }
}

fn asking(name: &str, requests: AmountPairs<'_>) -> Pod {
    pod(name).app_with("c1", |c| c.resources = Some(resources(requests, &[])))
}

fn node() -> NodeFacts {
    let amounts = requests::read(Some(&quantities(&[
        ("cpu", "4"),
        ("memory", "4Gi"),
        ("pods", "40"),
    ])));
    NodeFacts {
        name: "n".into(),
        allocatable: amounts.clone(),
        allocatable_at_most: amounts,
        os: "linux".into(),
        pod_level_resources: Support::Yes,
        ..NodeFacts::default()
    }
}

/// What becomes of a pod that had `old` and wants `new`, beside `others`.
fn asked(old: &Pod, new: &Pod, others: &[&Pod], node: &NodeFacts) -> Allocation {
    allocate(&ResizeInput {
        wanted: new,
        allocated: &AllocatedResources::of(old),
        others,
        used: None,
        node,
        topology: &TopologyManager::default(),
        held: &HeldAssignments::new(),
        devices: &DeviceInventory::EMPTY,
        pressures: &BTreeSet::new(),
        shutting_down: NodeShutdown::No,
    })
    .allocation
}

/// With nothing to itself.
fn allocated(allocated: AllocatedResources) -> Allocation {
    Allocation::Allocated {
        allocated,
        assigned: Assignment::default(),
    }
}

fn refused(answer: &Allocation) -> (ResizeRefusal, &str) {
    match answer {
        Allocation::Refused(refusal, why) => (*refusal, why),
        Allocation::Unchanged | Allocation::Allocated { .. } | Allocation::Preempt { .. } => {
            panic!("not refused: {answer:?}")
        }
    }
}

const HAS: AmountPairs<'_> = &[("cpu", "1"), ("memory", "1Gi")];

/// Upstream's TestRetryPendingResizes.
#[test]
fn a_wish_is_allocated_deferred_or_can_never_be_met() {
    let node = node();
    let old = asking("p", HAS);
    let beside = asking("o", &[("cpu", "1"), ("memory", "1Gi")]);
    let others = [&beside];
    let ask = |new: AmountPairs<'_>| asked(&old, &asking("p", new), &others, &node);

    assert_eq!(
        ask(&[("cpu", "1000m"), ("memory", "1024Mi")]),
        Allocation::Unchanged
    );
    let down: AmountPairs<'_> = &[("cpu", "500m"), ("memory", "500Mi")];
    assert_eq!(
        ask(down),
        allocated(AllocatedResources::of(&asking("p", down)))
    );
    let up: AmountPairs<'_> = &[("cpu", "1500m"), ("memory", "1500Mi")];
    assert_eq!(ask(up), allocated(AllocatedResources::of(&asking("p", up))));

    let answer = ask(&[("cpu", "3500m"), ("memory", "500Mi")]);
    let why = "Node didn't have enough resource: cpu, requested: 3500, used: 1000, capacity: 4000";
    assert_eq!(refused(&answer), (ResizeRefusal::Deferred, why));
    let answer = ask(&[("cpu", "500m"), ("memory", "4500Mi")]);
    let why =
        "Node didn't have enough capacity: memory, requested: 4718592000, capacity: 4294967296";
    assert_eq!(refused(&answer), (ResizeRefusal::Infeasible, why));
    let answer = ask(&[("cpu", "5"), ("memory", "500Mi")]);
    let why = "Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000";
    assert_eq!(refused(&answer), (ResizeRefusal::Infeasible, why));

    let mut manifest = asking("p", down);
    manifest.metadata.annotations = Some(string_map(&[(CONFIG_SOURCE, "file")]));
    let answer = asked(&old, &manifest, &others, &node);
    let why = "In-place resize of static-pods is not supported";
    assert_eq!(refused(&answer), (ResizeRefusal::Infeasible, why));
}

#[test]
fn a_resized_pod_keeps_what_it_has_to_itself() {
    let (old, new) = (asking("p", &[("cpu", "1")]), asking("p", &[("cpu", "2")]));
    let topology = OneCpuEach(1).alone();
    let assigned = topology.admit(&old, &HeldAssignments::new()).unwrap();
    let outcome = |holder: &str, wanted: &Pod| {
        allocate(&ResizeInput {
            wanted,
            allocated: &AllocatedResources::of(&old),
            others: &[],
            used: None,
            node: &node(),
            topology: &topology,
            held: &[(pod(holder).uid(), Arc::new(assigned.clone()))].into(),
            devices: &DeviceInventory::EMPTY,
            pressures: &BTreeSet::new(),
            shutting_down: NodeShutdown::No,
        })
    };
    let ask = |holder: &str| outcome(holder, &new).allocation;
    let resized = Allocation::Allocated {
        allocated: AllocatedResources::of(&new),
        assigned: assigned.clone(),
    };
    assert_eq!(ask("p"), resized);
    // What it would need more is not there: it waits.
    let why = "Allocate failed due to no CPU left, which is unexpected";
    assert_eq!(refused(&ask("o")), (ResizeRefusal::Deferred, why));
    // Each time it is asked for is an admission; what is decided before is none.
    for (holder, wanted, counts) in [
        ("p", &new, &[PlacementCount::Requested][..]),
        ("o", &new, &[PlacementCount::Requested]),
        ("p", &old, &[]),
        ("p", &asking("p", &[("cpu", "200")]), &[]),
    ] {
        assert_eq!(outcome(holder, wanted).counts, counts, "{holder}");
    }
}

/// Upstream's TestRetryPendingResizesGuanteedQOSPods.
#[test]
fn what_is_kept_apart_for_guaranteed_pods_stays_as_it_is() {
    let both = |pairs: AmountPairs<'_>| {
        pod("p").app_with("c1", |c| c.resources = Some(resources(pairs, pairs)))
    };
    let mut node = NodeFacts {
        cpu_manager: ExclusiveAllocation::Static,
        memory_manager: ExclusiveAllocation::Static,
        ..node()
    };
    let cpu = both(&[("cpu", "2"), ("memory", "1Gi")]);
    let memory = both(&[("cpu", "1"), ("memory", "2Gi")]);
    let why = |resource: &str, policy: &str| {
        format!(
            "Resize is infeasible for Guaranteed Pods alongside {resource} Manager policy \"{policy}\""
        )
    };
    let answer = asked(&both(HAS), &cpu, &[], &node);
    assert_eq!(
        refused(&answer),
        (ResizeRefusal::Infeasible, why("CPU", "static").as_str())
    );
    let answer = asked(&both(HAS), &memory, &[], &node);
    assert_eq!(
        refused(&answer),
        (ResizeRefusal::Infeasible, why("Memory", "Static").as_str())
    );
    let burstable = asked(&asking("p", HAS), &asking("p", &[("cpu", "2")]), &[], &node);
    assert!(matches!(burstable, Allocation::Allocated { .. }));
    node.cpu_manager = ExclusiveAllocation::None;
    assert!(matches!(
        asked(&both(HAS), &cpu, &[], &node),
        Allocation::Allocated { .. }
    ));
}

/// Upstream's TestRetryPendingResizesWithSwap.
#[test]
fn a_share_of_swap_changes_only_with_the_container() {
    let with = |pairs: AmountPairs<'_>, policy: &str| {
        asking("p", pairs).spec_with(|spec| {
            spec.containers[0].resize_policy = Some(vec![ContainerResizePolicy {
                resource_name: "memory".into(),
                restart_policy: policy.into(),
            }]);
        })
    };
    let swapping = NodeFacts {
        swap: NodeSwap::Limited,
        ..node()
    };
    let less: AmountPairs<'_> = &[("cpu", "500m"), ("memory", "500Mi")];
    let ask = |pairs, policy, node: &NodeFacts| {
        asked(&with(HAS, policy), &with(pairs, policy), &[], node)
    };
    let answer = ask(less, "NotRequired", &swapping);
    let why = "In-place resize of containers with swap is not supported.";
    assert_eq!(refused(&answer), (ResizeRefusal::Infeasible, why));
    let cpu_alone: AmountPairs<'_> = &[("cpu", "500m"), ("memory", "1Gi")];
    for answer in [
        ask(less, "RestartContainer", &swapping),
        ask(less, "NotRequired", &node()),
        ask(cpu_alone, "NotRequired", &swapping),
    ] {
        assert!(matches!(answer, Allocation::Allocated { .. }), "{answer:?}");
    }
}

#[test]
fn pod_level_amounts_move_only_where_the_gate_is_open() {
    let with = |cpu: &str| {
        let own = resources(&[("cpu", cpu)], &[]);
        asking("p", &[]).spec_with(|spec| spec.resources = Some(own))
    };
    let mut node = node();
    let answer = asked(&with("1"), &with("2"), &[], &node);
    assert_eq!(refused(&answer).0, ResizeRefusal::Infeasible);
    node.pod_level_resize = PodLevelResize::Resizable;
    let answer = asked(&with("1"), &with("2"), &[], &node);
    assert_eq!(answer, allocated(AllocatedResources::of(&with("2"))));
}

#[test]
fn a_critical_pod_grows_at_the_price_of_others() {
    let critical = |pairs: AmountPairs<'_>| {
        asking("p", pairs).spec_with(|spec| spec.priority = Some(SYSTEM_CRITICAL_PRIORITY))
    };
    let beside = asking("o", &[("cpu", "3")]);
    let others = [&beside];
    let (old, new) = (critical(&[("cpu", "1")]), critical(&[("cpu", "2")]));
    let answer = asked(&old, &new, &others, &node());
    let Allocation::Preempt {
        allocated, victims, ..
    } = answer
    else {
        panic!("not allocated: {answer:?}");
    };
    assert_eq!(
        (allocated, victims),
        (AllocatedResources::of(&new), vec![beside.uid()])
    );
}

/// Upstream's TestUpdatePodFromAllocation.
#[test]
fn the_pod_as_it_is_allocated_has_promised_resources_and_all_else_as_wanted() {
    let sidecar = |pod: Pod, amount: &str| {
        pod.spec_with(|spec| {
            let container = |name: &str, policy: Option<&str>| Container {
                resources: Some(resources(&[("cpu", amount)], &[])),
                restart_policy: policy.map(str::to_owned),
                ..spec_container(name)
            };
            let list = vec![container("side", Some("Always")), container("init", None)];
            spec.init_containers = Some(list);
        })
    };
    let old = sidecar(asking("p", &[("cpu", "1")]), "1");
    let mut new = sidecar(asking("p", &[("cpu", "2")]), "2");
    let allocated = AllocatedResources::of(&old);
    assert!(!pod_differs(&old, &allocated));
    assert!(pod_differs(&new, &allocated));
    new.metadata.labels = Some(string_map(&[("new", "yes")]));
    let applied = apply(&new, &allocated);
    assert_eq!(applied.metadata, new.metadata);
    assert_eq!(applied.app_containers(), old.app_containers());
    let cpu = |c: &Container| {
        requests::read(c.resources.as_ref()?.requests.as_ref())["cpu"]
            .value()
            .into()
    };
    let init: Vec<Option<i64>> = applied.init_containers().iter().map(cpu).collect();
    assert_eq!(
        init,
        [Some(1), Some(2)],
        "an init container cannot be resized"
    );
    assert!(!pod_differs(&applied, &allocated));
}

/// Upstream's TestSortPendingResizes.
#[test]
fn shrinking_pods_come_first_then_priority_class_and_patience() {
    let old = asking("p", HAS);
    let allocated = AllocatedResources::of(&old);
    let more: AmountPairs<'_> = &[("cpu", "1500m"), ("memory", "1500Mi")];
    let guaranteed = |name: &str| {
        let list = resources(more, more);
        pod(name).app_with("c1", |c| c.resources = Some(list))
    };
    let ranked =
        |name: &str, priority| asking(name, more).spec_with(|spec| spec.priority = Some(priority));
    let pods = [
        (asking("patient", more), Some(at(-50))),
        (asking("new", more), None),
        (asking("impatient", more), Some(at(-10))),
        (guaranteed("guaranteed"), Some(at(0))),
        (ranked("low", 10), Some(at(0))),
        (ranked("high", 100), None),
        (
            asking("less", &[("cpu", "500m"), ("memory", "500Mi")]),
            None,
        ),
    ];
    let list: Vec<PendingResize<'_>> = pods
        .iter()
        .map(|(pod, since)| PendingResize {
            pod,
            allocated: &allocated,
            since: *since,
        })
        .collect();
    let expected = [
        "less",
        "high",
        "low",
        "guaranteed",
        "patient",
        "impatient",
        "new",
    ]
    .map(|n| format!("{n}-uid"));
    let names = |list: &[PendingResize<'_>]| -> Vec<String> {
        order(list).iter().map(ToString::to_string).collect()
    };
    assert_eq!(names(&list), expected);
    let turned: Vec<_> = list.iter().rev().copied().collect();
    assert_eq!(names(&turned), expected);
}

/// Upstream's TestIsPodResizeInProgress.
#[test]
fn a_resize_is_under_way_while_a_running_container_has_other_resources() {
    let pod = pod("p")
        .app_with("a", |c| c.resources = Some(resources(HAS, &[])))
        .app_with("b", |c| c.resources = Some(resources(HAS, &[])))
        .init("i");
    let actuated = |a: AmountPairs<'_>, b: AmountPairs<'_>| {
        BTreeMap::from([
            ("a".to_owned(), resources(a, &[])),
            ("b".to_owned(), resources(b, &[])),
        ])
    };
    let running = runtime(&pod).running(&pod, "a").running(&pod, "b");
    let half = runtime(&pod).running(&pod, "a").exited(&pod, "b", 0);
    let other: AmountPairs<'_> = &[("cpu", "1")];
    assert!(!in_progress(&pod, &actuated(HAS, HAS), &running));
    assert!(in_progress(&pod, &actuated(HAS, other), &running));
    assert!(!in_progress(&pod, &actuated(HAS, other), &half));
    assert!(in_progress(&pod, &BTreeMap::new(), &half));
    let created = runtime(&pod).with(instance(&pod, "a", ContainerState::Created));
    assert!(!in_progress(&pod, &BTreeMap::new(), &created));
}

/// Upstream's TestValidateMemoryResizeAction.
#[test]
fn a_memory_limit_does_not_go_below_what_is_in_use() {
    let limited = |limit: &str| match limit {
        "" => resources(&[], &[]),
        limit => resources(&[], &[("memory", limit)]),
    };
    let ask = |from: &str, to: &str, used: Option<u64>, policy: &str| {
        let pod = pod("p").app_with("c1", |c| {
            c.resources = Some(limited(to));
            c.resize_policy = Some(vec![ContainerResizePolicy {
                resource_name: "memory".into(),
                restart_policy: policy.into(),
            }]);
        });
        let actuated = BTreeMap::from([("c1".to_owned(), limited(from))]);
        let used = used
            .map(|used| ("c1".to_owned(), used))
            .into_iter()
            .collect();
        memory_refusal(&pod, &actuated, &used, PodMemoryLimits::default())
    };
    const STAY: &str = "NotRequired";
    let below = "cannot decrease memory limits: attempting to set container \"c1\" memory limit (100) \
                 below current usage (150)";
    assert_eq!(ask("200", "100", Some(150), STAY).as_deref(), Some(below));
    assert_eq!(ask("", "100", Some(150), STAY).as_deref(), Some(below));
    let unknown = "cannot decrease memory limits: missing container \"c1\" memory usage";
    assert_eq!(ask("200", "100", None, STAY).as_deref(), Some(unknown));
    for (from, to, used, policy) in [
        ("200", "100", 99, STAY),
        ("100", "200", 500, STAY),
        ("100", "100", 500, STAY),
        ("100", "", 500, STAY),
        ("200", "100", 150, "RestartContainer"),
    ] {
        assert_eq!(ask(from, to, Some(used), policy), None, "{from} {to}");
    }
}

/// Upstream's TestValidatePodResizeAction.
#[test]
fn memory_limits_of_container_and_pod_stay_above_what_is_in_use() {
    let memory = |request: &'static str, limit: &'static str| {
        let list = |amount: &'static str| match amount {
            "" => None,
            amount => Some(quantities(&[("memory", amount)])),
        };
        ResourceRequirements {
            requests: list(request),
            limits: list(limit),
            claims: None,
        }
    };
    let refused = |from: &ResourceRequirements, to: &ResourceRequirements, whole, used| {
        let pod = pod("p").app_with("c1", |c| c.resources = Some(to.clone()));
        let actuated = BTreeMap::from([("c1".to_owned(), from.clone())]);
        let used: Option<u64> = used;
        let used = used.into_iter().map(|used| ("c1".to_owned(), used));
        memory_refusal(&pod, &actuated, &used.collect(), whole)
    };
    let free = memory("100", "");
    let (one, two) = (memory("100", "100"), memory("100", "200"));
    let none = PodMemoryLimits::default();
    let whole = |from, to| PodMemoryLimits { from, to };
    let added = whole(None, Some(100));
    let (up, down) = (whole(Some(100), Some(200)), whole(Some(200), Some(100)));
    let cases = [
        (&free, &memory("200", ""), none, None, false),
        (&free, &one, none, Some(10), false),
        (&free, &one, none, Some(200), true),
        (&free, &one, none, None, true),
        (&one, &two, none, None, false),
        (&two, &one, none, Some(20), false),
        (&two, &one, none, Some(150), true),
        (&one, &one, added, Some(20), false),
        (&one, &one, added, Some(200), true),
        (&one, &one, up, Some(20), false),
        (&one, &one, down, Some(20), false),
        (&one, &one, down, Some(150), true),
        (&one, &one, down, None, true),
    ];
    for (from, to, whole, used, expected) in cases {
        let found = refused(from, to, whole, used);
        assert_eq!(
            found.is_some(),
            expected,
            "{from:?} {to:?} {whole:?} {used:?}"
        );
    }
    let told = refused(&one, &one, down, Some(150));
    let expected = "cannot decrease memory limits: attempting to set pod memory limit (100) below \
                    current usage (150)";
    assert_eq!(told.as_deref(), Some(expected));
}

/// Upstream's TestPodResizeCompletedMsg, TestPodResizeStartedMsg, TestPodResizeErrorMsg and
/// TestPodResizePendingMsg.
#[test]
fn events_name_the_resources_of_every_container() {
    let all: AmountPairs<'_> = &[("cpu", "0.1"), ("memory", "100")];
    let simple = pod("p").app_with("c0", |c| c.resources = Some(resources(all, all)));
    let part = r#"{"containers":[{"name":"c0","resources":{"limits":{"cpu":"100m","memory":"100"},"requests":{"cpu":"100m","memory":"100"}}}],"generation":1"#;
    let told = ResizeEvent::Completed.event(&simple, 1);
    assert_eq!(told.message, format!("Pod resize completed: {part}}}"));
    assert_eq!(
        (told.reason.as_str(), told.weight),
        ("ResizeCompleted", EventLevel::Normal)
    );
    let told = ResizeEvent::Started.event(&simple, 1);
    assert_eq!(told.message, format!("Pod resize started: {part}}}"));
    let told = ResizeEvent::Failed("some error occurred".into()).event(&simple, 1);
    let error = r#","error":"some error occurred"}"#;
    assert_eq!(told.message, format!("Pod resize error: {part}{error}"));
    assert_eq!(
        (told.reason.as_str(), told.weight),
        ("ResizeError", EventLevel::Warning)
    );
    let why = "Node didn't have enough resource: memory".to_owned();
    let told = ResizeEvent::Waits(ResizeRefusal::Deferred, why).event(&simple, 1);
    let error = r#","error":"Node didn't have enough resource: memory"}"#;
    assert_eq!(told.message, format!("Pod resize Deferred: {part}{error}"));
    assert_eq!(told.reason, "ResizeDeferred");

    let several = pod("p").init("c0").app_with("c1", |c| {
        c.resources = Some(resources(&[("memory", "100")], &[("memory", "200")]))
    });
    let told = ResizeEvent::Waits(ResizeRefusal::Infeasible, String::new()).event(&several, 2);
    let expected = r#"Pod resize Infeasible: {"initContainers":[{"name":"c0","resources":{}}],"containers":[{"name":"c1","resources":{"limits":{"memory":"200"},"requests":{"memory":"100"}}}],"generation":2}"#;
    assert_eq!(told.message, expected);
    assert_eq!(told.reason, "ResizeInfeasible");
}

/// Upstream's TestBackfillPodResizeConditions.
#[test]
fn a_new_worker_goes_on_with_the_resize_that_was_told() {
    use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
    let is = |kind: &str, reason: &str, message: &str| PodCondition {
        type_: kind.into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        observed_generation: Some(1),
        ..PodCondition::default()
    };
    let under_way = || ResizeState {
        in_progress: true,
        generation: Some(1),
        ..ResizeState::default()
    };
    let waits = |refusal| Some((refusal, "error-message".to_owned()));
    let rows = [
        (vec![is("PodResizeInProgress", "", "")], under_way()),
        (
            vec![is("PodResizeInProgress", "Error", "error-message")],
            ResizeState {
                error: Some("error-message".into()),
                ..under_way()
            },
        ),
        (
            vec![
                is("PodResizeInProgress", "", ""),
                is("PodResizePending", "Deferred", "error-message"),
            ],
            ResizeState {
                pending: waits(ResizeRefusal::Deferred),
                pending_generation: Some(1),
                ..under_way()
            },
        ),
        (
            vec![is("PodResizePending", "Infeasible", "error-message")],
            ResizeState {
                pending: waits(ResizeRefusal::Infeasible),
                pending_generation: Some(1),
                ..ResizeState::default()
            },
        ),
        (vec![is("PodScheduled", "", "")], ResizeState::default()),
    ];
    for (conditions, expected) in rows {
        let status = PodStatus {
            conditions: Some(conditions),
            ..PodStatus::default()
        };
        assert_eq!(ResizeState::from_status(Some(&status)), expected);
    }
}

/// Upstream's `SetPodResizePendingCondition`.
#[test]
fn what_waits_is_told_once_for_each_generation_and_refusal() {
    use ResizeRefusal::{Deferred, Infeasible};
    let rows = [
        (1, Deferred, "used: 1000", true),
        (1, Deferred, "used: 1000", false),
        (1, Deferred, "used: 2000", false),
        (2, Deferred, "used: 2000", true),
        (2, Infeasible, "capacity: 500", true),
        (2, Deferred, "used: 2000", true),
    ];
    let mut state = ResizeState::default();
    for (generation, refusal, why, told) in rows {
        let next = ResizeState {
            pending: Some((refusal, why.to_owned())),
            pending_generation: Some(generation),
            ..ResizeState::default()
        };
        let events = told.then(|| ResizeEvent::Waits(refusal, why.to_owned()));
        assert_eq!(
            state.events(&next).collect::<Vec<_>>(),
            events.into_iter().collect::<Vec<_>>(),
            "{generation} {refusal:?} {why}"
        );
        state = next;
    }
}

/// Upstream's TestRetryPendingResizesMultipleConditions and TestClearPodResizeInProgressCondition, row by row.
#[test]
fn what_is_carried_out_keeps_the_generation_that_was_allocated() {
    use ResizeEvent::{Completed, Started, Waits};
    const WHY: &str =
        "Node didn't have enough resource: cpu, requested: 5000, used: 0, capacity: 4000";
    let waits = || Some((ResizeRefusal::Deferred, WHY.to_owned()));
    let deferred = || Waits(ResizeRefusal::Deferred, WHY.to_owned());
    // the pod's generation, the one allocated last, what waits, whether it is in progress; the one carried out, events
    let rows = [
        (1, Some(1), None, true, 1, vec![Started]),
        (2, Some(1), waits(), true, 1, vec![deferred()]),
        (2, Some(1), waits(), true, 1, vec![]),
        (3, Some(1), None, true, 1, vec![]),
        (4, Some(1), None, true, 1, vec![]),
        (5, Some(5), None, true, 5, vec![Started]),
        (5, Some(5), None, false, 5, vec![Completed]),
        (6, Some(5), None, false, 5, vec![]),
    ];
    let mut state = ResizeState::default();
    for (newest, allocated, pending, in_progress, expected, events) in rows {
        let next = ResizeState {
            pending_generation: pending.is_some().then_some(newest),
            pending,
            in_progress,
            error: None,
            generation: state.carried_out(allocated, Some(newest)),
        };
        assert_eq!(next.generation, Some(expected), "{newest}");
        assert_eq!(state.events(&next).collect::<Vec<_>>(), events, "{newest}");
        state = next;
    }
}

/// Upstream's TestPodResizeConditions: a new worker goes on with what the status says is carried out.
#[test]
fn without_an_allocation_of_this_life_the_one_in_progress_goes_on() {
    let under_way = ResizeState {
        in_progress: true,
        generation: Some(2),
        ..ResizeState::default()
    };
    assert_eq!(under_way.carried_out(None, Some(3)), Some(2));
    assert_eq!(under_way.carried_out(Some(3), Some(3)), Some(3));
    let over = ResizeState {
        in_progress: false,
        ..under_way
    };
    assert_eq!(over.carried_out(None, Some(3)), Some(3));
}

proptest! {
    #[test]
    fn what_is_allocated_fits_and_is_what_was_wanted(
        had in 0_i64..4000, wants in 0_i64..6000, beside in 0_i64..4000,
    ) {
        let text = |amount: i64| format!("{amount}m");
        let (old, new) = (asking("p", &[("cpu", &text(had))]), asking("p", &[("cpu", &text(wants))]));
        let other = asking("o", &[("cpu", &text(beside))]);
        match asked(&old, &new, &[&other], &node()) {
            Allocation::Unchanged => prop_assert_eq!(had, wants),
            Allocation::Allocated { allocated, .. } => {
                prop_assert!(wants == 0 || wants + beside <= 4000);
                prop_assert!(!pod_differs(&new, &allocated));
                prop_assert_eq!(apply(&old, &allocated), new);
            }
            Allocation::Refused(ResizeRefusal::Infeasible, _) => prop_assert!(wants > 4000),
            Allocation::Refused(ResizeRefusal::Deferred, _) => {
                prop_assert!(wants <= 4000 && wants + beside > 4000);
            }
            Allocation::Preempt { .. } => prop_assert!(false, "a plain pod pre-empts nobody"),
        }
    }
}
