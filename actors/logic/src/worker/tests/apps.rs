//! Upstream's TestComputePodActions, row by row, and what goes beyond it.

use super::*;

const RECREATED: &[&str] = &[
    "kill foo1-0",
    "kill foo2-0",
    "kill foo3-0",
    "stop s0",
    "create 1",
    "start foo1 1",
    "start foo2 1",
    "start foo3 1",
];

/// Upstream's TestComputePodActions.
#[test]
fn app_containers_start_stay_or_are_replaced_as_upstream() {
    check(ROWS, apps);
}

const ROWS: &[Row] = &[
    Row {
        name: "everything is good; do nothing",
        policy: "Always",
        change: |_, _| {},
        steps: &[],
    },
    Row {
        name: "start pod sandbox and all containers for a new pod",
        policy: "Always",
        change: |_, runtime| {
            runtime.sandboxes.clear();
            runtime.containers.clear();
        },
        steps: &["create 0", "start foo1 0", "start foo2 0", "start foo3 0"],
    },
    Row {
        name: "restart exited containers if RestartPolicy == Always",
        policy: "Always",
        change: |_, runtime| {
            exit(runtime, "foo1", 0);
            exit(runtime, "foo2", 111);
        },
        steps: &["start foo1 1", "start foo2 1"],
    },
    Row {
        name: "restart failed containers if RestartPolicy == OnFailure",
        policy: "OnFailure",
        change: |_, runtime| {
            exit(runtime, "foo1", 0);
            exit(runtime, "foo2", 111);
        },
        steps: &["start foo2 1"],
    },
    Row {
        name: "don't restart containers if RestartPolicy == Never",
        policy: "Never",
        change: |_, runtime| {
            exit(runtime, "foo1", 0);
            exit(runtime, "foo2", 111);
        },
        steps: &[],
    },
    Row {
        name: "Kill pod and recreate everything if the pod sandbox is dead, and RestartPolicy == Always",
        policy: "Always",
        change: |_, runtime| runtime.sandboxes[0].state = SandboxState::NotReady,
        steps: RECREATED,
    },
    Row {
        name: "Kill pod and recreate all containers (except for the succeeded one) if the pod sandbox is dead, and RestartPolicy == OnFailure",
        policy: "OnFailure",
        change: |_, runtime| {
            runtime.sandboxes[0].state = SandboxState::NotReady;
            exit(runtime, "foo2", 0);
        },
        steps: &[
            "kill foo1-0",
            "kill foo3-0",
            "stop s0",
            "create 1",
            "start foo1 1",
            "start foo3 1",
        ],
    },
    Row {
        name: "Kill pod and recreate all containers if the PodSandbox does not have an IP",
        policy: "Always",
        change: |_, runtime| runtime.sandboxes[0].ips.clear(),
        steps: RECREATED,
    },
    Row {
        name: "recreate when the pod's network namespace changed",
        policy: "Always",
        change: |pod, _| pod.spec.as_mut().unwrap().host_network = Some(true),
        steps: RECREATED,
    },
    Row {
        name: "a sandbox on the node's network needs no address",
        policy: "Always",
        change: |pod, runtime| {
            pod.spec.as_mut().unwrap().host_network = Some(true);
            runtime.sandboxes[0].host_network = true;
            runtime.sandboxes[0].ips.clear();
        },
        steps: &[],
    },
    Row {
        name: "reconcile two ready sandboxes",
        policy: "Always",
        change: |_, runtime| runtime.sandboxes.push(sandbox(1, SandboxState::Ready)),
        steps: &[
            "kill foo1-0",
            "kill foo2-0",
            "kill foo3-0",
            "stop s1",
            "stop s0",
            "create 2",
            "start foo1 1",
            "start foo2 1",
            "start foo3 1",
        ],
    },
    Row {
        name: "the newest sandbox counts, not an older ready one",
        policy: "Always",
        change: |_, runtime| runtime.sandboxes.push(sandbox(1, SandboxState::NotReady)),
        steps: &[
            "kill foo1-0",
            "kill foo2-0",
            "kill foo3-0",
            "stop s0",
            "stop s1",
            "create 2",
            "start foo1 1",
            "start foo2 1",
            "start foo3 1",
        ],
    },
    Row {
        name: "Kill and recreate the container if the container's spec changed",
        policy: "Always",
        change: |_, runtime| of(runtime, "foo2").hash = Some(432_423_432),
        steps: &["kill foo2-0", "start foo2 1"],
    },
    Row {
        name: "a changed container restarts whatever the policy",
        policy: "Never",
        change: |_, runtime| of(runtime, "foo2").hash = Some(432_423_432),
        steps: &["kill foo2-0", "start foo2 1"],
    },
    Row {
        name: "Verify we do not create a pod sandbox if no ready sandbox for pod with RestartPolicy=Never and all containers exited",
        policy: "Never",
        change: |_, runtime| {
            runtime.sandboxes[0].state = SandboxState::NotReady;
            runtime.sandboxes[0].attempt = 1;
            ["foo1", "foo2", "foo3"]
                .iter()
                .for_each(|name| exit(runtime, name, 0));
        },
        steps: &[],
    },
    Row {
        name: "Verify we do not create a pod sandbox if no ready sandbox for pod with RestartPolicy=OnFailure and all containers succeeded",
        policy: "OnFailure",
        change: |_, runtime| {
            runtime.sandboxes[0].state = SandboxState::NotReady;
            runtime.sandboxes[0].attempt = 1;
            ["foo1", "foo2", "foo3"]
                .iter()
                .for_each(|name| exit(runtime, name, 0));
        },
        steps: &[],
    },
    Row {
        name: "Verify we create a pod sandbox if no ready sandbox for pod with RestartPolicy=Never and no containers have ever been created",
        policy: "Never",
        change: |_, runtime| {
            runtime.sandboxes[0].state = SandboxState::NotReady;
            runtime.sandboxes[0].attempt = 2;
            runtime.containers.clear();
        },
        steps: &[
            "stop s0",
            "create 3",
            "start foo1 0",
            "start foo2 0",
            "start foo3 0",
        ],
    },
    Row {
        name: "a ready sandbox is stopped once every container of a Never pod has exited",
        policy: "Never",
        change: |_, runtime| {
            ["foo1", "foo2", "foo3"]
                .iter()
                .for_each(|name| exit(runtime, name, 1))
        },
        steps: &["stop s0"],
    },
    Row {
        name: "Kill and recreate the container if the container is in unknown state",
        policy: "Always",
        change: |_, runtime| of(runtime, "foo2").state = ContainerState::Unknown,
        steps: &["kill foo2-0", "start foo2 1"],
    },
    Row {
        name: "Restart the container if the container is in created state",
        policy: "Always",
        change: |_, runtime| of(runtime, "foo2").state = ContainerState::Created,
        steps: &["remove foo2-0", "start foo2 0"],
    },
    Row {
        name: "nothing starts in a pod that is being deleted",
        policy: "Always",
        change: |pod, runtime| {
            pod.metadata.deletion_timestamp = Some(at(0).into());
            exit(runtime, "foo1", 1);
        },
        steps: &[],
    },
    Row {
        name: "what the pod does not define is killed",
        policy: "Always",
        change: |pod, runtime| {
            let stray = instance(pod, "stray", ContainerState::Running);
            runtime.containers.push(stray);
        },
        steps: &["kill stray-0"],
    },
    Row {
        name: "of two running instances the older is killed",
        policy: "Always",
        change: |pod, runtime| {
            let newer = instance(pod, "foo1", ContainerState::Running);
            runtime.containers.push(Container {
                id: "foo1-1".into(),
                attempt: 1,
                ..newer
            });
        },
        steps: &["kill foo1-0"],
    },
];
