//! Upstream's TestComputePodActionsForPodResize: what becomes of a changed allocation.

use super::*;

fn amounts(cpu: &str, memory: &str) -> core::ResourceRequirements {
    core::ResourceRequirements {
        limits: Some(quantities(&[("cpu", cpu), ("memory", memory)])),
        ..core::ResourceRequirements::default()
    }
}

fn restart_for(resource: &str) -> Option<Vec<core::ContainerResizePolicy>> {
    let policy = |name: &str| core::ContainerResizePolicy {
        resource_name: name.into(),
        restart_policy: match name == resource {
            true => "RestartContainer".into(),
            false => "NotRequired".into(),
        },
    };
    Some(vec![policy("cpu"), policy("memory")])
}

/// Everything runs with what it is allocated.
fn settled() -> (Pod, RuntimePod, FactsRow) {
    let (mut pod, runtime) = apps();
    let mut facts = FactsRow::default();
    for index in 0..3 {
        let spec = app_spec(&mut pod, index);
        spec.resources = Some(amounts("200m", "200Mi"));
        let name = spec.name.clone();
        facts.actuated.insert(name, amounts("200m", "200Mi"));
    }
    (pod, runtime, facts)
}

fn allocate(pod: &mut Pod, index: usize, cpu: &str, memory: &str) {
    app_spec(pod, index).resources = Some(amounts(cpu, memory));
}

/// Upstream's TestComputePodActionsForPodResize.
#[test]
fn a_changed_allocation_is_enforced_in_place_or_by_a_restart_as_upstream() {
    check_all(CASES, settled);
}

const CASES: &[Case] = &[
    Case {
        name: "Nothing when spec.Resources and status.Resources are equal",
        policy: "Always",
        change: |_, _, _| {},
        steps: &[],
    },
    Case {
        name: "Nothing when spec.Resources and status.Resources are equal (besteffort)",
        policy: "Always",
        change: |pod, _, facts| {
            app_spec(pod, 1).resources = None;
            facts
                .actuated
                .insert("foo2".into(), core::ResourceRequirements::default());
        },
        steps: &[],
    },
    Case {
        name: "Update container CPU and memory resources",
        policy: "Always",
        change: |pod, _, _| allocate(pod, 1, "100m", "100Mi"),
        steps: &["resize foo2"],
    },
    Case {
        name: "Update container CPU resources",
        policy: "Always",
        change: |pod, _, _| allocate(pod, 1, "100m", "200Mi"),
        steps: &["resize foo2"],
    },
    Case {
        name: "Update container memory resources",
        policy: "Always",
        change: |pod, _, _| allocate(pod, 2, "200m", "300Mi"),
        steps: &["resize foo3"],
    },
    Case {
        name: "Update container CPU and memory resources with Restart policy for CPU",
        policy: "Always",
        change: |pod, _, _| {
            app_spec(pod, 0).resize_policy = restart_for("cpu");
            allocate(pod, 0, "300m", "300Mi");
        },
        steps: &["kill foo1-0", "resize the pod", "start foo1 1"],
    },
    Case {
        name: "Update container CPU and memory resources with Restart policy for memory",
        policy: "Always",
        change: |pod, _, _| {
            app_spec(pod, 2).resize_policy = restart_for("memory");
            allocate(pod, 2, "300m", "300Mi");
        },
        steps: &["kill foo3-0", "resize the pod", "start foo3 1"],
    },
    Case {
        name: "Update container memory resources with Restart policy for CPU",
        policy: "Always",
        change: |pod, _, _| {
            app_spec(pod, 1).resize_policy = restart_for("cpu");
            allocate(pod, 1, "200m", "300Mi");
        },
        steps: &["resize foo2"],
    },
    Case {
        name: "Update container CPU resources with Restart policy for memory",
        policy: "Always",
        change: |pod, _, _| {
            app_spec(pod, 2).resize_policy = restart_for("memory");
            allocate(pod, 2, "100m", "200Mi");
        },
        steps: &["resize foo3"],
    },
    Case {
        name: "decreases come before increases, memory before CPU",
        policy: "Always",
        change: |pod, _, _| {
            allocate(pod, 0, "200m", "300Mi");
            allocate(pod, 1, "100m", "200Mi");
            allocate(pod, 2, "300m", "100Mi");
        },
        steps: &["resize foo3", "resize foo2", "resize foo1"],
    },
    Case {
        name: "TestComputePodResizeActionForOOMKilledContainer: what does not run starts with what it is allocated",
        policy: "Always",
        change: |pod, runtime, _| {
            allocate(pod, 1, "200m", "300Mi");
            exit(runtime, "foo2", 137);
            of(runtime, "foo2").reason = "OOMKilled".into();
        },
        steps: &["start foo2 1"],
    },
    Case {
        name: "a failed probe comes before a resize",
        policy: "Always",
        change: |pod, _, facts| {
            allocate(pod, 1, "100m", "100Mi");
            facts.said("foo2", |health| health.liveness = ProbeResult::Failure);
        },
        steps: &["kill foo2-0", "start foo2 1"],
    },
    Case {
        name: "nobody noted what was carried out: it is told again, and nothing restarts",
        policy: "Always",
        change: |pod, _, facts| {
            app_spec(pod, 1).resize_policy = restart_for("cpu");
            facts.actuated.remove("foo2");
        },
        steps: &["resize foo2"],
    },
    Case {
        name: "sidecars are resized, and started again for it, too",
        policy: "Always",
        change: |pod, runtime, facts| {
            for (index, name) in ["side1", "side2"].into_iter().enumerate() {
                *pod = sidecar(pod.clone(), name, |c| {
                    c.resources = Some(amounts("1", "1Gi"))
                });
                let running = instance(pod, name, ContainerState::Running);
                runtime.containers.push(running);
                facts.actuated.insert(name.into(), amounts("2", "1Gi"));
                if index == 1 {
                    init_spec(pod, index).resize_policy = restart_for("cpu");
                }
            }
        },
        steps: &[
            "kill side2-0",
            "start side2 1",
            "resize the pod",
            "resize side1",
        ],
    },
    Case {
        name: "pod-level resources changed, and limits of containers that have none of their own",
        policy: "Always",
        change: |pod, _, facts| {
            let level = |cpu| Some(amounts(cpu, "1Gi"));
            pod.spec.as_mut().unwrap().resources = level("2");
            facts
                .actuated
                .extend(level("1").map(|level| (String::new(), level)));
            app_spec(pod, 1).resources = None;
            facts.actuated.remove("foo2");
        },
        steps: &["resize the pod", "resize foo2"],
    },
    Case {
        name: "TestComputePodActionsWithInitContainers: resize of a running non-sidecar init container",
        policy: "Always",
        change: |pod, runtime, facts| {
            *pod = pod.clone().init("init1");
            init_spec(pod, 0).resources = Some(amounts("800m", "800Mi"));
            facts
                .actuated
                .insert("init1".into(), amounts("400m", "400Mi"));
            runtime.containers = vec![instance(pod, "init1", ContainerState::Running)];
        },
        steps: &["resize init1"],
    },
];

#[test]
fn a_restart_for_a_resize_is_worded_as_upstream() {
    let (mut pod, runtime, facts) = settled();
    app_spec(&mut pod, 0).resize_policy = restart_for("cpu");
    allocate(&mut pod, 0, "300m", "200Mi");
    let plan = facts.plan(&pod.policy("Never"), &runtime);
    assert_eq!(messages(&plan), ["Container foo1 resize requires restart"]);
    let expected = ["kill foo1-0", "resize the pod", "start foo1 1"];
    assert_eq!(steps(&plan), expected);
}
