//! Upstream's TestComputePodActionsForRestartAllContainers, row by row, and what goes beyond it.

use super::*;

fn trigger_on_one(container: &mut core::Container, own: &str) {
    container.restart_policy = Some(own.into());
    container.restart_policy_rules = Some(vec![exit_rule("RestartAllContainers", "In", &[1])]);
}

/// Three app containers run after three ended init containers; `foo3` may set off a restart of all.
fn running() -> (Pod, RuntimePod) {
    let (pod, mut known) = apps();
    let mut pod = pod.init("init1").init("init2").init("init3");
    for name in ["init1", "init2", "init3"] {
        known = known.exited(&pod, name, 0);
    }
    trigger_on_one(app_spec(&mut pod, 2), "Never");
    (pod, known)
}

/// Upstream's TestComputePodActionsForRestartAllContainers.
#[test]
fn a_triggering_exit_resets_every_container_and_the_trigger_last_as_upstream() {
    check(ROWS, running);
}

const RESET: &[&str] = &[
    "kill foo1-0",
    "kill foo2-0",
    "reset foo1-0",
    "reset foo2-0",
    "reset init1-0",
    "reset init2-0",
    "reset init3-0",
    "reset foo3-0",
];

const ROWS: &[Row] = &[
    Row {
        name: "pod not marked for RestartAllContainers",
        policy: "Always",
        change: |_, _| {},
        steps: &[],
    },
    Row {
        name: "regular container exit triggers RestartAllContainers",
        policy: "Never",
        change: |_, runtime| exit(runtime, "foo3", 1),
        steps: RESET,
    },
    Row {
        name: "another exit code follows the policy",
        policy: "Always",
        change: |_, runtime| exit(runtime, "foo3", 2),
        steps: &[],
    },
    Row {
        name: "init container exit triggers RestartAllContainers",
        policy: "Always",
        change: |pod, runtime| {
            init_spec(pod, 1).restart_policy = Some("Always".into());
            trigger_on_one(init_spec(pod, 2), "Never");
            runtime.containers.retain(|c| c.name.starts_with("init"));
            of(runtime, "init2").state = ContainerState::Running;
            exit(runtime, "init3", 1);
        },
        steps: &[
            "kill init2-0",
            "reset init1-0",
            "reset init2-0",
            "reset init3-0",
        ],
    },
    Row {
        name: "sidecar container exit triggers RestartAllContainers",
        policy: "Always",
        change: |pod, runtime| {
            for index in 0..2 {
                init_spec(pod, index).restart_policy = Some("Always".into());
            }
            trigger_on_one(init_spec(pod, 2), "Always");
            of(runtime, "init1").state = ContainerState::Running;
            of(runtime, "init2").state = ContainerState::Running;
            exit(runtime, "init3", 1);
            runtime
                .containers
                .retain(|c| c.name.starts_with("init") || c.name == "foo1");
        },
        steps: &[
            "kill foo1-0",
            "kill init1-0",
            "kill init2-0",
            "reset foo1-0",
            "reset init1-0",
            "reset init2-0",
            "reset init3-0",
        ],
    },
    Row {
        name: "removes past terminated statuses",
        policy: "Always",
        change: |_, runtime| {
            for name in ["foo1", "foo2", "foo3"] {
                exit(runtime, name, 99);
                let past = of(runtime, name).clone();
                runtime.containers.push(RuntimeContainer {
                    id: format!("{name}-1").as_str().into(),
                    attempt: 1,
                    state: ContainerState::Running,
                    ..past
                });
            }
            let newest = runtime
                .containers
                .iter_mut()
                .find(|c| c.id == "foo3-1".into())
                .unwrap();
            newest.state = ContainerState::Exited;
            newest.exit_code = 1;
        },
        steps: &[
            "kill foo1-1",
            "kill foo2-1",
            "reset foo1-0",
            "reset foo1-1",
            "reset foo2-0",
            "reset foo2-1",
            "reset foo3-0",
            "reset init1-0",
            "reset init2-0",
            "reset init3-0",
            "reset foo3-1",
        ],
    },
    Row {
        name: "all containers removed, start init container",
        policy: "Always",
        change: |_, runtime| runtime.containers.clear(),
        steps: &["start init1 0"],
    },
    Row {
        name: "all containers removed, start regular container",
        policy: "Never",
        change: |pod, runtime| {
            pod.spec.as_mut().unwrap().init_containers = None;
            runtime.containers.clear();
        },
        steps: &["start foo1 0", "start foo2 0", "start foo3 0"],
    },
    Row {
        name: "ephemeral containers are left alone",
        policy: "Never",
        change: |pod, runtime| {
            *pod = ephemeral(pod.clone(), "debug");
            runtime
                .containers
                .push(instance(pod, "debug", ContainerState::Running));
            exit(runtime, "foo3", 1);
        },
        steps: RESET,
    },
    Row {
        name: "an exit of an earlier instance sets nothing off",
        policy: "Never",
        change: |_, runtime| {
            exit(runtime, "foo3", 1);
            let past = of(runtime, "foo3").clone();
            runtime.containers.push(RuntimeContainer {
                id: "foo3-1".into(),
                attempt: 1,
                state: ContainerState::Running,
                ..past
            });
        },
        steps: &[],
    },
    Row {
        name: "nothing is reset in a pod that is being deleted",
        policy: "Never",
        change: |pod, runtime| {
            pod.metadata.deletion_timestamp = Some(at(0).into());
            exit(runtime, "foo3", 1);
        },
        steps: &[],
    },
    Row {
        name: "a dead sandbox is replaced afterwards",
        policy: "Never",
        change: |_, runtime| {
            runtime.sandboxes[0].state = SandboxState::NotReady;
            exit(runtime, "foo3", 1);
        },
        steps: RESET,
    },
];

#[test]
fn nobody_is_waited_for_when_all_containers_restart() {
    let (mut pod, mut runtime) = running();
    pod.spec.as_mut().unwrap().termination_grace_period_seconds = Some(30);
    exit(&mut runtime, "foo3", 1);
    let plan = plan(&pod, &runtime);
    for action in &plan.actions {
        if let PodAction::KillContainer { grace, hooks, .. } = action {
            assert_eq!((grace.as_secs(), *hooks), (2, PreStopHooks::Skip));
        }
    }
    assert_eq!(plan.sandbox, Some("s0".into()));
    assert_eq!(messages(&plan), ["killing", "killing"]);
}

#[test]
fn an_interrupted_reset_goes_on_until_the_trigger_is_gone() {
    let (pod, mut runtime) = running();
    exit(&mut runtime, "foo3", 1);
    let mut left = runtime.containers.len();
    while left > 0 {
        let plan = plan(&pod, &runtime);
        let removal = plan.actions.iter().find_map(|action| {
            let PodAction::RemoveContainer { instance, .. } = action else {
                return None;
            };
            Some(instance.id.clone())
        });
        let id = removal.unwrap();
        runtime.containers.retain(|c| c.id != id);
        left -= 1;
        let starts = plan
            .actions
            .iter()
            .any(|a| matches!(a, PodAction::StartContainer { .. }));
        assert!(!starts && runtime.containers.len() == left, "{plan:?}");
    }
}
