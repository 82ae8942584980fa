//! Upstream's TestComputePodActionsWithRestartableInitContainers, row by row, and what goes beyond it.

use super::*;

fn probed(container: &mut core::Container) {
    container.startup_probe = Some(core::Probe::default());
    container.liveness_probe = Some(core::Probe::default());
}

/// Three sidecars that run, two of them probed; no app container has been created.
fn sidecars() -> (Pod, RuntimePod, FactsRow) {
    let (pod, _) = apps();
    let pod = sidecar(pod, "side1", |_| {});
    let pod = sidecar(pod, "side2", probed);
    let pod = sidecar(pod, "side3", probed);
    let known = runtime(&pod)
        .running(&pod, "side1")
        .running(&pod, "side2")
        .running(&pod, "side3");
    let mut facts = FactsRow::default();
    facts.said("side2", |_| {});
    facts.said("side3", |_| {});
    (pod, known, facts)
}

fn keep(runtime: &mut RuntimePod, names: &[&str]) {
    runtime
        .containers
        .retain(|c| names.contains(&c.name.as_str()));
}

fn run_apps(pod: &Pod, runtime: &mut RuntimePod, state: ContainerState) {
    for name in ["foo1", "foo2", "foo3"] {
        runtime.containers.push(instance(pod, name, state));
    }
    runtime.sort();
}

/// Upstream's TestComputePodActionsWithRestartableInitContainers.
#[test]
fn sidecars_start_in_order_and_are_kept_alive_as_upstream() {
    check_all(CASES, sidecars);
}

const APPS: &[&str] = &["start foo1 0", "start foo2 0", "start foo3 0"];

const CASES: &[Case] = &[
    Case {
        name: "initialization completed; start all containers",
        policy: "Always",
        change: |_, _, _| {},
        steps: APPS,
    },
    Case {
        name: "no init containers have been started; start the first one",
        policy: "Always",
        change: |_, runtime, _| runtime.containers.clear(),
        steps: &["start side1 0"],
    },
    Case {
        name: "an init container is stuck in the created state; restart it",
        policy: "Always",
        change: |_, runtime, _| of(runtime, "side3").state = ContainerState::Created,
        steps: &["start side3 0"],
    },
    Case {
        name: "restartable init container has started; start the next",
        policy: "Always",
        change: |_, runtime, _| keep(runtime, &["side1"]),
        steps: &["start side2 0"],
    },
    Case {
        name: "livenessProbe in progress; start the next",
        policy: "Always",
        change: |_, runtime, facts| {
            facts.said("side2", |health| health.liveness = ProbeResult::Unknown);
            keep(runtime, &["side1", "side2"]);
        },
        steps: &["start side3 0"],
    },
    Case {
        name: "livenessProbe has completed; start the next",
        policy: "Always",
        change: |_, runtime, _| keep(runtime, &["side1", "side2"]),
        steps: &["start side3 0"],
    },
    Case {
        name: "kill and recreate the restartable init container if the liveness check has failed",
        policy: "Always",
        change: |_, _, facts| facts.said("side3", |health| health.liveness = ProbeResult::Failure),
        steps: &[
            "kill side3-0",
            "start side3 1",
            "start foo1 0",
            "start foo2 0",
            "start foo3 0",
        ],
    },
    Case {
        name: "startupProbe has not been run; do nothing",
        policy: "Always",
        change: |_, runtime, facts| {
            facts.health.remove(&"side2-0".into());
            keep(runtime, &["side1", "side2"]);
        },
        steps: &[],
    },
    Case {
        name: "startupProbe in progress; do nothing",
        policy: "Always",
        change: |_, runtime, facts| {
            facts.said("side2", |health| health.startup = ProbeResult::Unknown);
            keep(runtime, &["side1", "side2"]);
        },
        steps: &[],
    },
    Case {
        name: "kill and recreate the restartable init container if the startup check has failed",
        policy: "Always",
        change: |_, _, facts| facts.said("side3", |health| health.startup = ProbeResult::Failure),
        steps: &["kill side3-0", "start side3 1"],
    },
    Case {
        name: "kill and recreate the restartable init container if the container definition changes",
        policy: "Always",
        change: |pod, _, _| init_spec(pod, 2).image = Some("localhost/other".into()),
        steps: &[
            "kill side3-0",
            "start side3 1",
            "start foo1 0",
            "start foo2 0",
            "start foo3 0",
        ],
    },
    Case {
        name: "restart terminated restartable init container and next init container",
        policy: "Always",
        change: |_, runtime, _| {
            exit(runtime, "side1", 0);
            exit(runtime, "side3", 0);
        },
        steps: &["start side1 1", "start side3 1"],
    },
    Case {
        name: "restart terminated restartable init container and regular containers",
        policy: "Always",
        change: |_, runtime, _| exit(runtime, "side1", 0),
        steps: &[
            "start side1 1",
            "start foo1 0",
            "start foo2 0",
            "start foo3 0",
        ],
    },
    Case {
        name: "Pod sandbox not ready, restartable init container failed, but RestartPolicy == Never; kill pod only",
        policy: "Never",
        change: |_, runtime, _| {
            runtime.sandboxes[0].state = SandboxState::NotReady;
            exit(runtime, "side3", 137);
        },
        steps: &["kill side1-0", "kill side2-0"],
    },
    Case {
        name: "Pod sandbox not ready, and RestartPolicy == Never, but no visible restartable init containers;  create a new pod sandbox",
        policy: "Never",
        change: |_, runtime, _| {
            runtime.sandboxes[0].state = SandboxState::NotReady;
            runtime.containers.clear();
        },
        steps: &["stop s0", "create 1", "start side1 0"],
    },
    Case {
        name: "Pod sandbox not ready, restartable init container failed, and RestartPolicy == OnFailure; create a new pod sandbox",
        policy: "OnFailure",
        change: |_, runtime, _| {
            runtime.sandboxes[0].state = SandboxState::NotReady;
            exit(runtime, "side3", 137);
        },
        steps: RECREATED,
    },
    Case {
        name: "Pod sandbox not ready, restartable init container failed, and RestartPolicy == Always; create a new pod sandbox",
        policy: "Always",
        change: |_, runtime, _| {
            runtime.sandboxes[0].state = SandboxState::NotReady;
            exit(runtime, "side3", 137);
        },
        steps: RECREATED,
    },
    Case {
        name: "initialization failed; restart the last restartable init container even if pod's RestartPolicy == Never",
        policy: "Never",
        change: |_, runtime, _| exit(runtime, "side3", 137),
        steps: &["start side3 1"],
    },
    Case {
        name: "restartable init container state unknown; kill and recreate the last restartable init container even if pod's RestartPolicy == Never",
        policy: "Never",
        change: |_, runtime, _| of(runtime, "side3").state = ContainerState::Unknown,
        steps: &["kill side3-0", "start side3 1"],
    },
    Case {
        name: "restart restartable init container if regular containers are running even if pod's RestartPolicy == Never",
        policy: "Never",
        change: |pod, runtime, _| {
            exit(runtime, "side3", 137);
            run_apps(pod, runtime, ContainerState::Running);
        },
        steps: &["start side3 1"],
    },
    Case {
        name: "kill the pod if all main containers succeeded if pod's RestartPolicy == Never",
        policy: "Never",
        change: |pod, runtime, _| run_apps(pod, runtime, ContainerState::Exited),
        steps: &["kill side1-0", "kill side2-0", "kill side3-0", "stop s0"],
    },
    Case {
        name: "some of the init container statuses are missing but the last init container is running, restart restartable init and regular containers",
        policy: "Always",
        change: |_, runtime, _| keep(runtime, &["side3"]),
        steps: &[
            "start side1 0",
            "start side2 0",
            "start foo1 0",
            "start foo2 0",
            "start foo3 0",
        ],
    },
    Case {
        name: "a sidecar that ended does not come back once the app containers have ended for good",
        policy: "Never",
        change: |pod, runtime, _| {
            exit(runtime, "side1", 1);
            run_apps(pod, runtime, ContainerState::Exited);
        },
        steps: &["kill side2-0", "kill side3-0", "stop s0"],
    },
    Case {
        name: "sidecars are restarted while a later init container runs",
        policy: "Never",
        change: |pod, runtime, _| {
            *pod = pod.clone().init("late");
            runtime
                .containers
                .push(instance(pod, "late", ContainerState::Running));
            exit(runtime, "side1", 1);
        },
        steps: &["start side1 1"],
    },
    Case {
        name: "an init container after sidecars starts when the last of them has started",
        policy: "Always",
        change: |pod, _, _| *pod = pod.clone().init("late"),
        steps: &["start late 0"],
    },
    Case {
        name: "an init container after sidecars waits for their startup probes",
        policy: "Always",
        change: |pod, _, facts| {
            *pod = pod.clone().init("late");
            facts.said("side3", |health| health.startup = ProbeResult::Unknown);
        },
        steps: &[],
    },
    Case {
        name: "a sidecar that starts again does not stop the app containers",
        policy: "Always",
        change: |pod, runtime, facts| {
            facts.said("side2", |health| health.startup = ProbeResult::Unknown);
            run_apps(pod, runtime, ContainerState::Running);
        },
        steps: &[],
    },
];

const RECREATED: &[&str] = &[
    "kill side1-0",
    "kill side2-0",
    "stop s0",
    "remove side1-0",
    "remove side2-0",
    "remove side3-0",
    "create 1",
    "start side1 1",
];

#[test]
fn sidecars_are_killed_with_upstreams_words_and_their_probes_grace() {
    let (mut pod, runtime, mut facts) = sidecars();
    pod.spec.as_mut().unwrap().termination_grace_period_seconds = Some(30);
    let grace = |seconds| {
        Some(core::Probe {
            termination_grace_period_seconds: Some(seconds),
            ..core::Probe::default()
        })
    };
    init_spec(&mut pod, 0).image = Some("localhost/other".into());
    init_spec(&mut pod, 1).liveness_probe = grace(7);
    init_spec(&mut pod, 2).startup_probe = grace(9);
    facts.said("side2", |health| health.liveness = ProbeResult::Failure);
    facts.said("side3", |health| health.startup = ProbeResult::Failure);
    let plan = facts.plan(&pod, &runtime);
    let words = [
        "Init container side1 definition changed",
        "Init container side2 failed liveness probe",
        "Init container side3 failed startup probe",
    ];
    assert_eq!(messages(&plan), words);
    let graces: Vec<_> = plan
        .actions
        .iter()
        .filter_map(|action| {
            let PodAction::KillContainer { grace, .. } = action else {
                return None;
            };
            Some(grace.as_secs())
        })
        .collect();
    assert_eq!(graces, [30, 7, 9]);
}

#[test]
fn whom_initialisation_waits_for_is_told() {
    let (pod, mut runtime, mut facts) = sidecars();
    facts.said("side2", |health| health.startup = ProbeResult::Unknown);
    keep(&mut runtime, &["side1", "side2"]);
    let why = facts.plan(&pod, &runtime).why;
    assert_eq!(
        (why[0].object.as_deref(), why[0].message.as_str()),
        (
            Some("side2"),
            "the sidecar has not passed its startup probe yet"
        )
    );
}

#[test]
fn a_sidecar_that_crashes_backs_off_while_the_rest_goes_on() {
    let (pod, mut runtime, mut facts) = sidecars();
    exit(&mut runtime, "side1", 1);
    run_apps(&pod, &mut runtime, ContainerState::Running);
    exit(&mut runtime, "foo1", 1);
    let key = logic_api::backoff::container_key(&pod, &pod.init_containers()[0]);
    facts.exits.insert("side1-0".into(), at(-1));
    facts
        .backoffs
        .next(&key, at(-20), at(-20), &BackoffPolicy::default());
    let plan = facts.plan(&pod, &runtime);
    assert_eq!(steps(&plan), ["start foo1 1"]);
    assert_eq!(plan.waiting["side1"].reason, "CrashLoopBackOff");
    assert_eq!(plan.retry_at, Some(at(9)));
}
