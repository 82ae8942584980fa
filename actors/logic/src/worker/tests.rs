use std::time::Duration;

use jiff::Timestamp;

use super::kill::{effective_grace, kill_grace, termination_plan};
use super::*;
use crate::testing::*;
use crate::types::{Sandbox, SandboxState};

/// Facts with the maps that a test leaves empty.
#[derive(Default)]
struct Facts {
    exits: BTreeMap<ContainerId, Timestamp>,
    backoffs: Backoffs,
    log_counts: BTreeMap<String, u32>,
}

impl Facts {
    fn plan(&self, pod: &Pod, runtime: &RuntimePod) -> PodPlan {
        let observed = Observed {
            runtime,
            exits: &self.exits,
            backoffs: &self.backoffs,
            log_counts: &self.log_counts,
        };
        compute_pod_actions(at(0), pod, &observed, &Policy::default())
    }
}

fn plan(pod: &Pod, runtime: &RuntimePod) -> PodPlan {
    Facts::default().plan(pod, runtime)
}

/// One word a step, so that a table row shows a whole plan.
fn steps(plan: &PodPlan) -> Vec<String> {
    let step = |action: &Action| match action {
        Action::KillContainer { id, .. } => format!("kill {id}"),
        Action::StopSandbox { sandbox } => format!("stop {sandbox}"),
        Action::RemoveContainer { id, .. } => format!("remove {id}"),
        Action::CreateSandbox { attempt } => format!("create {attempt}"),
        Action::StartContainer {
            name,
            restart_count,
            ..
        } => format!("start {name} {restart_count}"),
    };
    plan.actions.iter().map(step).collect()
}

type Change = fn(&mut Pod, &mut RuntimePod);

struct Row {
    name: &'static str,
    policy: &'static str,
    change: Change,
    steps: &'static [&'static str],
}

fn check(rows: &[Row], base: fn() -> (Pod, RuntimePod)) {
    for row in rows {
        let (pod, mut runtime) = base();
        let mut pod = pod.policy(row.policy);
        (row.change)(&mut pod, &mut runtime);
        assert_eq!(
            steps(&plan(&pod, &runtime)),
            row.steps,
            "{} ({})",
            row.name,
            row.policy
        );
    }
}

fn of<'a>(runtime: &'a mut RuntimePod, name: &str) -> &'a mut Container {
    runtime
        .containers
        .iter_mut()
        .find(|c| c.name == name)
        .unwrap()
}

fn exit(runtime: &mut RuntimePod, name: &str, exit_code: i32) {
    let container = of(runtime, name);
    container.state = ContainerState::Exited;
    container.exit_code = exit_code;
}

/// Three app containers, all running.
fn apps() -> (Pod, RuntimePod) {
    let pod = pod("foo").app("foo1").app("foo2").app("foo3");
    let known = runtime(&pod)
        .running(&pod, "foo1")
        .running(&pod, "foo2")
        .running(&pod, "foo3");
    (pod, known)
}

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
    let rows = [
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
    check(&rows, apps);
}

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
    let again: &[&str] = &["remove init1-0", "remove init2-0", "remove init3-0"];
    assert_eq!(again.len(), 3);
    let rows = [
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
            steps: &["remove init3-0", "start init3 0"],
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
                runtime.sandboxes[0] = Sandbox {
                    id: "s1".into(),
                    attempt: 1,
                    ..runtime.sandboxes[0].clone()
                };
                runtime.containers = vec![instance(pod, "foo1", ContainerState::Exited)];
            },
            steps: &["start init1 0"],
        },
        Row {
            name: "only the newest ended instance of an init container is kept",
            policy: "Always",
            change: |_, runtime| {
                exit(runtime, "init3", 1);
                let newer = of(runtime, "init3").clone();
                runtime.containers.push(Container {
                    id: "init3-1".into(),
                    attempt: 1,
                    restart_count: 1,
                    ..newer
                });
            },
            steps: &["remove init3-0", "start init3 2"],
        },
    ];
    check(&rows, initialized);
}

#[test]
fn containers_own_policy_and_exit_rules_come_first() {
    let rule = |operator: &str, codes: &[i32]| core::ContainerRestartRule {
        action: "Restart".into(),
        exit_codes: Some(core::ContainerRestartRuleOnExitCodes {
            operator: operator.into(),
            values: Some(codes.to_vec()),
        }),
    };
    let cases = [
        ("Never", Some("Always"), None, 0, true),
        ("Always", Some("Never"), None, 1, false),
        ("Always", Some("OnFailure"), None, 0, false),
        ("Never", None, None, 1, false),
        ("Never", Some("Never"), Some(rule("In", &[42])), 42, true),
        ("Never", Some("Never"), Some(rule("In", &[42])), 1, false),
        ("Never", Some("Never"), Some(rule("NotIn", &[42])), 1, true),
        (
            "Never",
            Some("Never"),
            Some(rule("NotIn", &[42])),
            42,
            false,
        ),
    ];
    for (policy, own, rule, code, restarts) in cases {
        let pod = pod("p").policy(policy).app_with("c", |c| {
            c.restart_policy = own.map(str::to_owned);
            c.restart_policy_rules = rule.clone().map(|rule| vec![rule]);
        });
        let spec = &pod.app_containers()[0];
        assert_eq!(
            restarts_after(&pod, spec, code),
            restarts,
            "{policy} {own:?} {rule:?} {code}"
        );
    }
}

#[test]
fn a_crashing_container_waits_out_its_backoff_and_says_so() {
    let pod = pod("p").app("c").app("d");
    let runtime = runtime(&pod).exited(&pod, "c", 1).running(&pod, "d");
    let key = crate::backoff::container_key(&pod, &pod.app_containers()[0]);

    let first = plan(&pod, &runtime);
    let Some(Action::StartContainer {
        backoff: Some(step),
        ..
    }) = first.actions.first()
    else {
        panic!("the first crash is followed by a start: {first:?}");
    };
    assert_eq!(
        (&step.key, step.since),
        (&key, at(0)),
        "an exit not seen before is seen now"
    );

    let mut facts = Facts::default();
    facts.exits.insert("c-0".into(), at(-4));
    facts
        .backoffs
        .next(&key, at(-20), at(-20), &BackoffPolicy::default());
    let waits = facts.plan(&pod, &runtime);
    assert_eq!(steps(&waits), [""; 0]);
    assert_eq!(waits.retry_at, Some(at(6)));
    let waiting = &waits.waiting["c"];
    assert_eq!(waiting.reason, "CrashLoopBackOff");
    assert_eq!(
        waiting.message,
        "back-off 10s restarting failed container=c pod=p_default(p-uid)"
    );
    let event = waits
        .why
        .iter()
        .find(|why| why.reason == "BackOff")
        .unwrap();
    assert_eq!(
        event.message,
        "Back-off restarting failed container c in pod p_default(p-uid)"
    );
    assert_eq!(
        (event.weight, event.object.as_deref()),
        (Weight::Warning, Some("c"))
    );

    facts.exits.insert("c-0".into(), at(-10));
    assert_eq!(steps(&facts.plan(&pod, &runtime)), ["start c 1"]);
}

#[test]
fn runtime_times_do_not_matter_to_backoff() {
    let pod = pod("p").app("c");
    let key = crate::backoff::container_key(&pod, &pod.app_containers()[0]);
    let mut facts = Facts::default();
    facts.exits.insert("c-0".into(), at(-4));
    facts
        .backoffs
        .next(&key, at(-20), at(-20), &BackoffPolicy::default());
    for finished in [None, Some(at(-4_000_000)), Some(at(4_000_000))] {
        let mut runtime = runtime(&pod).exited(&pod, "c", 1);
        runtime.containers[0].finished_at = finished;
        assert_eq!(
            facts.plan(&pod, &runtime).retry_at,
            Some(at(6)),
            "{finished:?}"
        );
    }
}

#[test]
fn restart_count_goes_on_from_the_logs_when_the_runtime_forgot() {
    let pod = pod("p").app("c");
    let facts = Facts {
        log_counts: BTreeMap::from([("c".into(), 7)]),
        ..Facts::default()
    };
    assert_eq!(steps(&facts.plan(&pod, &runtime(&pod))), ["start c 7"]);
    let known = runtime(&pod).exited(&pod, "c", 1);
    assert_eq!(steps(&facts.plan(&pod, &known)), ["start c 1"]);
}

#[test]
fn reasons_are_worded_as_upstream_events() {
    let (pod, mut runtime) = apps();
    of(&mut runtime, "foo1").hash = Some(1);
    of(&mut runtime, "foo2").state = ContainerState::Unknown;
    let mut messages: Vec<_> = plan(&pod, &runtime)
        .why
        .into_iter()
        .map(|w| (w.reason, w.message))
        .collect();
    messages.sort();
    let expected = [
        (
            "Killing",
            "Container foo1 definition changed, will be restarted",
        ),
        (
            "Killing",
            "Container is in \"unknown\" state, try killing it before restart",
        ),
    ];
    assert_eq!(
        messages,
        expected.map(|(r, m)| (r.to_owned(), m.to_owned()))
    );

    runtime.sandboxes[0].state = SandboxState::NotReady;
    let plan = plan(&pod, &runtime);
    let changed = plan
        .why
        .iter()
        .find(|why| why.reason == "SandboxChanged")
        .unwrap();
    assert_eq!(
        changed.message,
        "Pod sandbox changed, it will be killed and re-created."
    );
    assert!(
        plan.why
            .iter()
            .any(|why| why.message == "Stopping container foo1")
    );
}

#[test]
fn grace_is_override_then_deletion_then_spec_and_never_below_two_seconds() {
    let secs = Duration::from_secs;
    let cases = [
        (None, None, None, None, 2),
        (None, None, Some(30), None, 30),
        (None, Some(5), Some(30), None, 5),
        (None, Some(0), Some(30), None, 2),
        (Some(7), Some(5), Some(30), None, 7),
        (Some(1), None, None, None, 2),
        (None, Some(-5), None, None, 2),
        (None, None, Some(30), Some(9), 30),
    ];
    for (given, deletion, spec, noted, expected) in cases {
        let mut pod = pod("p").app("c");
        pod.metadata.deletion_grace_period_seconds = deletion;
        pod.spec.as_mut().unwrap().termination_grace_period_seconds = spec;
        let mut container = instance(&pod, "c", ContainerState::Running);
        container.termination_grace = noted;
        let grace = kill_grace(Some(&pod), &container, given.map(secs));
        assert_eq!(
            grace,
            secs(expected),
            "{given:?} {deletion:?} {spec:?} {noted:?}"
        );
    }
    let mut orphan = instance(&pod("p"), "c", ContainerState::Running);
    orphan.termination_grace = Some(9);
    assert_eq!(kill_grace(None, &orphan, None), secs(9));
}

#[test]
fn a_terminations_grace_gets_shorter_never_longer() {
    let secs = Duration::from_secs;
    let pod = pod("p").spec_with(|s| s.termination_grace_period_seconds = Some(30));
    assert_eq!(effective_grace(&pod, None, None), secs(30));
    assert_eq!(
        effective_grace(&pod, Some(secs(5)), Some(secs(30))),
        secs(5)
    );
    assert_eq!(
        effective_grace(&pod, Some(secs(60)), Some(secs(5))),
        secs(5)
    );
    assert_eq!(effective_grace(&pod, Some(secs(0)), None), secs(1));
}

#[test]
fn termination_kills_what_may_run_and_stops_every_sandbox() {
    let (pod, mut runtime) = apps();
    exit(&mut runtime, "foo1", 0);
    of(&mut runtime, "foo2").state = ContainerState::Unknown;
    runtime
        .sandboxes
        .insert(0, sandbox(1, SandboxState::NotReady));
    let expected = ["kill foo2-0", "kill foo3-0", "stop s1", "stop s0"];
    assert_eq!(
        steps(&termination_plan(Some(&pod), &runtime, None)),
        expected
    );
    assert_eq!(
        steps(&termination_plan(None, &runtime, None)),
        expected,
        "an orphan ends the same way"
    );
}

mod laws {
    use proptest::prelude::*;

    use super::*;
    use crate::types::ContainerKind;

    const STATES: [ContainerState; 4] = [
        ContainerState::Created,
        ContainerState::Running,
        ContainerState::Exited,
        ContainerState::Unknown,
    ];

    #[derive(Clone, Debug)]
    struct Seed {
        policy: usize,
        inits: usize,
        apps: usize,
        sandboxes: Vec<bool>,
        address: bool,
        /// name, attempt, state, exit code, definition changed, sandbox
        containers: Vec<(usize, u32, usize, i32, bool, u32)>,
    }

    fn seeds() -> impl Strategy<Value = Seed> {
        let container = (
            0_usize..6,
            0_u32..3,
            0_usize..4,
            0_i32..2,
            prop::bool::weighted(0.1),
            0_u32..2,
        );
        (
            (
                0_usize..3,
                0_usize..3,
                1_usize..4,
                prop::bool::weighted(0.9),
            ),
            prop::collection::vec(prop::bool::weighted(0.7), 0..3),
            prop::collection::vec(container, 0..8),
        )
            .prop_map(
                |((policy, inits, apps, address), sandboxes, containers)| Seed {
                    policy,
                    inits,
                    apps,
                    sandboxes,
                    address,
                    containers,
                },
            )
    }

    fn names(seed: &Seed) -> Vec<String> {
        let inits = (0..seed.inits).map(|n| format!("init{n}"));
        inits
            .chain((0..seed.apps).map(|n| format!("app{n}")))
            .collect()
    }

    fn build(seed: &Seed) -> (Pod, RuntimePod) {
        let mut pod = pod("p").policy(["Always", "OnFailure", "Never"][seed.policy]);
        for name in names(seed) {
            pod = if name.starts_with("init") {
                pod.init(&name)
            } else {
                pod.app(&name)
            };
        }
        let mut known = runtime(&pod);
        let ready = |ready: bool| {
            if ready {
                SandboxState::Ready
            } else {
                SandboxState::NotReady
            }
        };
        known.sandboxes = (0..)
            .zip(&seed.sandboxes)
            .map(|(n, r)| sandbox(n, ready(*r)))
            .collect();
        if !seed.address {
            known.sandboxes.iter_mut().for_each(|s| s.ips.clear());
        }
        let names = names(seed);
        for (index, attempt, state, exit_code, changed, sandbox) in &seed.containers {
            let name = names.get(*index).map_or("stray", String::as_str);
            let mut container = instance(&pod, name, STATES[*state]);
            container.id = format!("{name}-{attempt}").into();
            if known.containers.iter().any(|c| c.id == container.id) {
                continue;
            }
            // Sandboxes may have been removed, but none is from the future.
            let oldest_first = known.sandboxes.iter().rev().map(|s| s.id.clone());
            container.sandbox = oldest_first
                .clone()
                .cycle()
                .nth(*sandbox as usize)
                .unwrap_or("gone".into());
            container.attempt = *attempt;
            container.restart_count = *attempt;
            container.exit_code = *exit_code;
            if *changed {
                container.hash = Some(1);
            }
            known.containers.push(container);
        }
        known.sort();
        (pod, known)
    }

    /// Carries a plan out on a runtime where everything works.
    fn apply(pod: &Pod, plan: &PodPlan, runtime: &mut RuntimePod) {
        let mut current = plan.sandbox.clone();
        for action in &plan.actions {
            match action {
                Action::KillContainer { id, .. } => {
                    let container = runtime.containers.iter_mut().find(|c| c.id == *id).unwrap();
                    container.state = ContainerState::Exited;
                    container.exit_code = 137;
                }
                Action::StopSandbox { sandbox } => {
                    runtime
                        .sandboxes
                        .iter_mut()
                        .find(|s| s.id == *sandbox)
                        .unwrap()
                        .state = SandboxState::NotReady;
                }
                Action::RemoveContainer { id, .. } => runtime.containers.retain(|c| c.id != *id),
                Action::CreateSandbox { attempt } => {
                    let sandbox = sandbox(*attempt, SandboxState::Ready);
                    current = Some(sandbox.id.clone());
                    runtime.sandboxes.push(sandbox);
                }
                Action::StartContainer {
                    name,
                    restart_count,
                    ..
                } => {
                    let mut container = instance(pod, name, ContainerState::Running);
                    container.id = format!("{name}-{restart_count}").into();
                    container.attempt = *restart_count;
                    container.restart_count = *restart_count;
                    container.sandbox = current.clone().unwrap();
                    runtime.containers.push(container);
                }
            }
        }
        runtime.sort();
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn plans_keep_their_promises(seed in seeds()) {
            let (pod, runtime) = build(&seed);
            let plan = plan(&pod, &runtime);
            prop_assert_eq!(plan.broken_promise(&pod, &runtime), None);
        }

        #[test]
        fn plans_do_not_depend_on_the_order_of_lists(seed in seeds()) {
            let (pod, mut runtime) = build(&seed);
            let sorted = plan(&pod, &runtime);
            runtime.containers.reverse();
            runtime.sandboxes.reverse();
            prop_assert_eq!(sorted, plan(&pod, &runtime));
        }

        #[test]
        fn a_plan_carried_out_leaves_nothing_to_do(seed in seeds()) {
            let (pod, mut runtime) = build(&seed);
            let first = plan(&pod, &runtime);
            apply(&pod, &first, &mut runtime);
            let second = plan(&pod, &runtime);
            prop_assert_eq!(&second.actions, &[][..], "after {:?}", first.actions);
        }

        #[test]
        fn no_container_ever_has_two_running_instances(seed in seeds()) {
            let (pod, mut runtime) = build(&seed);
            let first = plan(&pod, &runtime);
            apply(&pod, &first, &mut runtime);
            for (_, container) in pod.all_containers() {
                let alive = runtime.instances(&container.name).filter(|c| c.may_run()).count();
                prop_assert!(alive <= 1, "{} has {alive}: {:?}", container.name, first.actions);
            }
        }

        #[test]
        fn what_the_policy_forbids_is_not_started(seed in seeds()) {
            let (pod, runtime) = build(&seed);
            let replaced = runtime.newest_sandbox().is_none_or(|s| plan(&pod, &runtime).sandbox != Some(s.id.clone()));
            for action in plan(&pod, &runtime).actions {
                let Action::StartContainer { name, kind: ContainerKind::App, .. } = action else { continue };
                let Some(newest) = runtime.newest(&name) else { continue };
                let ended = newest.state == ContainerState::Exited;
                let allowed = pod.restart_policy().restarts(newest.exit_code);
                prop_assert!(!ended || allowed || (replaced && pod.restart_policy() == RestartPolicy::Never), "{}", name);
            }
        }

        #[test]
        fn app_containers_start_only_after_every_init_container_is_done(seed in seeds()) {
            let (pod, runtime) = build(&seed);
            let plan = plan(&pod, &runtime);
            let starts_app = plan.actions.iter().any(|a| matches!(a, Action::StartContainer { kind: ContainerKind::App, .. }));
            let Some(last) = pod.init_containers().last() else { return Ok(()) };
            if starts_app {
                let succeeded = runtime.newest(&last.name).is_some_and(Container::succeeded);
                let began = pod.app_containers().iter().any(|c| runtime.newest(&c.name).is_some());
                prop_assert!(succeeded || began);
            }
        }
    }
}
