//! Upstream's TestComputePodActionsWithInitAndEphemeralContainers, row by row, and what goes beyond it.

use super::*;

/// Everything runs, initialisation is done, and so does `debug`.
fn debugged() -> (Pod, RuntimePod) {
    let (pod, _) = apps();
    let pod = ephemeral(pod.init("init1"), "debug");
    let known = runtime(&pod)
        .running(&pod, "foo1")
        .running(&pod, "foo2")
        .running(&pod, "foo3")
        .exited(&pod, "init1", 0)
        .running(&pod, "debug");
    (pod, known)
}

fn without(runtime: &mut RuntimePod, names: &[&str]) {
    runtime
        .containers
        .retain(|c| !names.contains(&c.name.as_str()));
}

/// Upstream's TestComputePodActionsWithInitAndEphemeralContainers.
#[test]
fn ephemeral_containers_run_once_and_hold_nothing_up_as_upstream() {
    check(ROWS, debugged);
}

const ROWS: &[Row] = &[
    Row {
        name: "steady state; do nothing; ignore ephemeral container",
        policy: "Always",
        change: |_, _| {},
        steps: &[],
    },
    Row {
        name: "No ephemeral containers running; start one",
        policy: "Always",
        change: |_, runtime| without(runtime, &["debug"]),
        steps: &["start debug 0"],
    },
    Row {
        name: "Start second ephemeral container",
        policy: "Always",
        change: |pod, _| *pod = ephemeral(pod.clone(), "debug2"),
        steps: &["start debug2 0"],
    },
    Row {
        name: "Ephemeral container exited; do not restart",
        policy: "Always",
        change: |_, runtime| exit(runtime, "debug", 1),
        steps: &[],
    },
    Row {
        name: "initialization in progress; start ephemeral container",
        policy: "Always",
        change: |_, runtime| {
            without(runtime, &["debug", "foo1", "foo2", "foo3"]);
            of(runtime, "init1").state = ContainerState::Running;
        },
        steps: &["start debug 0"],
    },
    Row {
        name: "initialisation has not begun: both start",
        policy: "Always",
        change: |_, runtime| runtime.containers.clear(),
        steps: &["start init1 0", "start debug 0"],
    },
    Row {
        name: "Create a new pod sandbox if the pod sandbox is dead, init container failed and RestartPolicy == OnFailure",
        policy: "OnFailure",
        change: |_, runtime| {
            runtime.sandboxes[0].state = SandboxState::NotReady;
            without(runtime, &["foo1", "foo2", "foo3"]);
            exit(runtime, "init1", 137);
        },
        steps: &[
            "kill debug-0",
            "stop s0",
            "remove init1-0",
            "create 1",
            "start init1 1",
        ],
    },
    Row {
        name: "Kill pod and do not restart ephemeral container if the pod sandbox is dead",
        policy: "Always",
        change: |_, runtime| runtime.sandboxes[0].state = SandboxState::NotReady,
        steps: &[
            "kill debug-0",
            "kill foo1-0",
            "kill foo2-0",
            "kill foo3-0",
            "stop s0",
            "remove init1-0",
            "create 1",
            "start init1 1",
        ],
    },
    Row {
        name: "Kill pod if all containers exited except ephemeral container",
        policy: "Never",
        change: |_, runtime| {
            ["foo1", "foo2", "foo3"]
                .iter()
                .for_each(|name| exit(runtime, name, 0));
        },
        steps: &["kill debug-0", "stop s0"],
    },
    Row {
        name: "Ephemeral container is in unknown state; leave it alone",
        policy: "Never",
        change: |_, runtime| of(runtime, "debug").state = ContainerState::Unknown,
        steps: &[],
    },
    Row {
        name: "its definition changed; leave it alone",
        policy: "Always",
        change: |_, runtime| of(runtime, "debug").hash = Some(1),
        steps: &[],
    },
    Row {
        name: "one that was made and never ran is run after all",
        policy: "Always",
        change: |_, runtime| of(runtime, "debug").state = ContainerState::Created,
        steps: &["start debug 0"],
    },
    Row {
        name: "app containers come first",
        policy: "Always",
        change: |_, runtime| {
            exit(runtime, "foo2", 1);
            without(runtime, &["debug"]);
        },
        steps: &["start foo2 1", "start debug 0"],
    },
    Row {
        name: "a pod that failed starts nothing any more",
        policy: "Never",
        change: |_, runtime| {
            without(runtime, &["debug", "foo1", "foo2", "foo3"]);
            exit(runtime, "init1", 1);
        },
        steps: &["stop s0"],
    },
];
