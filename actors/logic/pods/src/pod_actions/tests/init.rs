//! Upstream's TestComputePodActionsWithInitContainers, row by row, and what goes beyond it.

use logic_api::types::RuntimeSandbox;

use super::*;

/// Three init containers that succeeded; no app container has been created.
fn initialized() -> (Pod, RuntimePod) {
    let (pod, _) = apps();
    let pod = pod.init("init1").init("init2").init("init3");
    let known = runtime(&pod)
        .exited(&pod, "init1", 0)
        .exited(&pod, "init2", 0)
        .exited(&pod, "init3", 0);
    (pod, known)
}

/// Upstream's TestComputePodActionsWithInitContainers.
#[test]
fn init_containers_run_one_by_one_as_upstream() {
    check(ROWS, initialized);
}

const ROWS: &[Row] = &[
    Row {
        name: "initialization completed; start all containers",
        policy: "Always",
        change: |_, _| {},
        steps: &["start foo1 0", "start foo2 0", "start foo3 0"],
    },
    Row {
        name: "no init containers have been started; start the first one",
        policy: "Always",
        change: |_, runtime| runtime.containers.clear(),
        steps: &["start init1 0"],
    },
    Row {
        name: "initialization in progress; do nothing",
        policy: "Always",
        change: |_, runtime| of(runtime, "init3").state = ContainerState::Running,
        steps: &[],
    },
    Row {
        name: "the first has succeeded; start the second",
        policy: "Always",
        change: |_, runtime| runtime.containers.truncate(1),
        steps: &["start init2 0"],
    },
    Row {
        name: "Kill pod and restart the first init container if the pod sandbox is dead",
        policy: "Always",
        change: |_, runtime| runtime.sandboxes[0].state = SandboxState::NotReady,
        steps: &[
            "stop s0",
            "remove init1-0",
            "remove init2-0",
            "remove init3-0",
            "create 1",
            "start init1 1",
        ],
    },
    Row {
        name: "initialization failed; restart the last init container if RestartPolicy == Always",
        policy: "Always",
        change: |_, runtime| exit(runtime, "init3", 137),
        steps: &["start init3 1"],
    },
    Row {
        name: "initialization failed; restart the last init container if RestartPolicy == OnFailure",
        policy: "OnFailure",
        change: |_, runtime| exit(runtime, "init3", 137),
        steps: &["start init3 1"],
    },
    Row {
        name: "initialization failed; kill pod if RestartPolicy == Never",
        policy: "Never",
        change: |_, runtime| exit(runtime, "init3", 137),
        steps: &["stop s0"],
    },
    Row {
        name: "killed for memory is failed, whatever the exit code",
        policy: "Never",
        change: |_, runtime| of(runtime, "init3").reason = "OOMKilled".into(),
        steps: &["stop s0"],
    },
    Row {
        name: "init container state unknown; kill and recreate the last init container if RestartPolicy == Always",
        policy: "Always",
        change: |_, runtime| of(runtime, "init3").state = ContainerState::Unknown,
        steps: &["kill init3-0", "start init3 1"],
    },
    Row {
        name: "init container state unknown; kill and recreate the last init container if RestartPolicy == OnFailure",
        policy: "OnFailure",
        change: |_, runtime| of(runtime, "init3").state = ContainerState::Unknown,
        steps: &["kill init3-0", "start init3 1"],
    },
    Row {
        name: "init container state unknown; kill pod if RestartPolicy == Never",
        policy: "Never",
        change: |_, runtime| of(runtime, "init3").state = ContainerState::Unknown,
        steps: &["kill init3-0", "stop s0"],
    },
    Row {
        name: "Pod sandbox not ready, init container failed, but RestartPolicy == Never; kill pod only",
        policy: "Never",
        change: |_, runtime| runtime.sandboxes[0].state = SandboxState::NotReady,
        steps: &[],
    },
    Row {
        name: "Pod sandbox not ready, and RestartPolicy == Never, but no visible init containers;  create a new pod sandbox",
        policy: "Never",
        change: |_, runtime| {
            runtime.sandboxes[0].state = SandboxState::NotReady;
            runtime.containers.clear();
        },
        steps: &["stop s0", "create 1", "start init1 0"],
    },
    Row {
        name: "Pod sandbox not ready, init container failed, and RestartPolicy == OnFailure; create a new pod sandbox",
        policy: "OnFailure",
        change: |_, runtime| {
            runtime.sandboxes[0].state = SandboxState::NotReady;
            exit(runtime, "init3", 137);
        },
        steps: &[
            "stop s0",
            "remove init1-0",
            "remove init2-0",
            "remove init3-0",
            "create 1",
            "start init1 1",
        ],
    },
    Row {
        name: "some of the init container statuses are missing but the last init container is running, don't restart preceding ones",
        policy: "Always",
        change: |_, runtime| {
            runtime.containers.drain(..2);
            of(runtime, "init3").state = ContainerState::Running;
        },
        steps: &[],
    },
    Row {
        name: "an init container is in the created state due to an unknown error when starting container; restart it",
        policy: "Always",
        change: |_, runtime| of(runtime, "init3").state = ContainerState::Created,
        steps: &["start init3 0"],
    },
    Row {
        name: "init containers are gone, but an app container runs: no initialisation again",
        policy: "Always",
        change: |pod, runtime| {
            runtime.containers = vec![instance(pod, "foo1", ContainerState::Running)];
        },
        steps: &["start foo2 0", "start foo3 0"],
    },
    Row {
        name: "init containers are gone, but an app container exited in this sandbox: no initialisation again",
        policy: "Always",
        change: |pod, runtime| {
            runtime.containers = vec![instance(pod, "foo1", ContainerState::Exited)];
        },
        steps: &["start foo1 1", "start foo2 0", "start foo3 0"],
    },
    Row {
        name: "app containers of an earlier sandbox prove nothing: initialisation starts over",
        policy: "Always",
        change: |pod, runtime| {
            runtime.sandboxes[0] = RuntimeSandbox {
                id: "s1".into(),
                attempt: 1,
                ..runtime.sandboxes[0].clone()
            };
            runtime.containers = vec![instance(pod, "foo1", ContainerState::Exited)];
        },
        steps: &["start init1 0"],
    },
    Row {
        name: "TestPruneInitContainers: of each init container the newest that has ended stays",
        policy: "Always",
        change: |_, runtime| {
            let (first, second) = (of(runtime, "init1").clone(), of(runtime, "init2").clone());
            let older = |from: &RuntimeContainer, attempt: u32, state| RuntimeContainer {
                id: format!("{}-{attempt}", from.name).as_str().into(),
                attempt,
                restart_count: attempt,
                state,
                ..from.clone()
            };
            runtime.containers = vec![
                older(&first, 3, ContainerState::Exited),
                older(&first, 2, ContainerState::Exited),
                older(&second, 1, ContainerState::Exited),
                older(&first, 1, ContainerState::Unknown),
                older(&second, 0, ContainerState::Exited),
                older(&first, 0, ContainerState::Exited),
            ];
        },
        steps: &[
            "kill init1-1",
            "remove init1-2",
            "remove init1-1",
            "remove init1-0",
            "remove init2-0",
            "start init3 0",
        ],
    },
    Row {
        name: "only the newest ended instance of an init container is kept",
        policy: "Always",
        change: |_, runtime| {
            exit(runtime, "init3", 1);
            let newer = of(runtime, "init3").clone();
            runtime.containers.push(RuntimeContainer {
                id: "init3-1".into(),
                attempt: 1,
                restart_count: 1,
                ..newer
            });
        },
        steps: &["remove init3-0", "start init3 2"],
    },
];
