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
        name: "a container that was made and not started is started as it is",
        policy: "Always",
        change: |_, runtime| of(runtime, "foo2").state = ContainerState::Created,
        steps: &["start foo2 0"],
    },
    Row {
        name: "one that was made and not started is made again where it is not what would be made now",
        policy: "Always",
        change: |_, runtime| {
            of(runtime, "foo2").state = ContainerState::Created;
            of(runtime, "foo2").hash = Some(1);
        },
        steps: &["remove foo2-0", "start foo2 0"],
    },
    Row {
        name: "a start that was broken off is no crash: no back-off, and the restart count stays",
        policy: "Always",
        change: |_, runtime| break_off_start(runtime, "foo2"),
        steps: &["remove foo2-0", "start foo2 0"],
    },
    Row {
        name: "a start that was broken off is made up for whatever the policy",
        policy: "Never",
        change: |_, runtime| break_off_start(runtime, "foo2"),
        steps: &["remove foo2-0", "start foo2 0"],
    },
    Row {
        name: "a start that failed at its deadline has failed",
        policy: "Never",
        change: |_, runtime| {
            break_off_start(runtime, "foo2");
            of(runtime, "foo2").message = "context deadline exceeded".to_owned();
        },
        steps: &[],
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
            runtime.containers.push(RuntimeContainer {
                id: "foo1-1".into(),
                attempt: 1,
                ..newer
            });
        },
        steps: &["kill foo1-0"],
    },
];

fn probed() -> (Pod, RuntimePod, FactsRow) {
    let (pod, runtime) = apps();
    (pod, runtime, FactsRow::default())
}

/// Upstream's TestComputePodActions: the rows about probes.
#[test]
fn a_failed_probe_kills_and_the_policy_decides_about_a_restart() {
    check_all(PROBED, probed);
}

const PROBED: &[Case] = &[
    Case {
        name: "Kill and recreate the container if the liveness check has failed",
        policy: "Always",
        change: |_, _, facts| facts.said("foo2", |health| health.liveness = ProbeResult::Failure),
        steps: &["kill foo2-0", "start foo2 1"],
    },
    Case {
        name: "Kill and recreate the container if the startup check has failed",
        policy: "Always",
        change: |_, _, facts| facts.said("foo2", |health| health.startup = ProbeResult::Failure),
        steps: &["kill foo2-0", "start foo2 1"],
    },
    Case {
        name: "whose policy is Never is killed only",
        policy: "Never",
        change: |_, _, facts| facts.said("foo2", |health| health.liveness = ProbeResult::Failure),
        steps: &["kill foo2-0"],
    },
    Case {
        name: "the container's own policy comes first: it restarts",
        policy: "Never",
        change: |pod, _, facts| {
            app_spec(pod, 1).restart_policy = Some("OnFailure".into());
            facts.said("foo2", |health| health.liveness = ProbeResult::Failure);
        },
        steps: &["kill foo2-0", "start foo2 1"],
    },
    Case {
        name: "the container's own policy comes first: it does not restart",
        policy: "Always",
        change: |pod, _, facts| {
            app_spec(pod, 1).restart_policy = Some("Never".into());
            facts.said("foo2", |health| health.startup = ProbeResult::Failure);
        },
        steps: &["kill foo2-0"],
    },
    Case {
        name: "rules about exit codes say nothing of a container that still runs",
        policy: "Never",
        change: |pod, _, facts| {
            let spec = app_spec(pod, 1);
            spec.restart_policy = Some("Never".into());
            spec.restart_policy_rules = Some(vec![exit_rule("Restart", "NotIn", &[1])]);
            facts.said("foo2", |health| health.liveness = ProbeResult::Failure);
        },
        steps: &["kill foo2-0"],
    },
    Case {
        name: "what is not ready is left alone, and so is what has not started yet",
        policy: "Always",
        change: |_, _, facts| {
            facts.said("foo1", |health| health.readiness = ProbeResult::Failure);
            facts.said("foo2", |health| health.startup = ProbeResult::Unknown);
            facts.said("foo3", |health| health.liveness = ProbeResult::Unknown);
        },
        steps: &[],
    },
    Case {
        name: "the last one killed for good ends the pod",
        policy: "Never",
        change: |_, runtime, facts| {
            exit(runtime, "foo1", 0);
            exit(runtime, "foo3", 0);
            facts.said("foo2", |health| health.liveness = ProbeResult::Failure);
        },
        steps: &["kill foo2-0", "stop s0"],
    },
    Case {
        name: "what a probe said of an earlier instance does not count",
        policy: "Always",
        change: |_, runtime, facts| {
            facts.said("foo2", |health| health.liveness = ProbeResult::Failure);
            of(runtime, "foo2").id = "foo2-1".into();
        },
        steps: &[],
    },
];

#[test]
fn kills_are_worded_as_upstream_words_them() {
    let (mut pod, runtime) = apps();
    let mut facts = FactsRow::default();
    facts.said("foo1", |health| health.liveness = ProbeResult::Failure);
    facts.said("foo2", |health| health.startup = ProbeResult::Failure);
    app_spec(&mut pod, 2).image = Some("localhost/other".into());
    let restarted = [
        "Container foo1 failed liveness probe, will be restarted",
        "Container foo2 failed startup probe, will be restarted",
        "Container foo3 definition changed, will be restarted",
    ];
    assert_eq!(messages(&facts.plan(&pod, &runtime)), restarted);
    let ended = [
        "Container foo1 failed liveness probe",
        "Container foo2 failed startup probe",
        "Container foo3 definition changed, will be restarted",
    ];
    let pod = pod.policy("Never");
    assert_eq!(messages(&facts.plan(&pod, &runtime)), ended);
}

/// Where upstream kills and starts in one sync, so that no exit code comes between.
#[test]
fn what_was_ended_to_be_started_again_starts_whatever_its_exit_code_and_policy() {
    for policy in ["Never", "OnFailure", "Always"] {
        for exit_code in [0, 143] {
            let (pod, mut runtime) = apps();
            let pod = pod.policy(policy);
            let mut facts = FactsRow::default();
            exit(&mut runtime, "foo2", exit_code);
            facts.replaced.insert("foo2-0".into());
            let plan = facts.plan(&pod, &runtime);
            assert_eq!(steps(&plan), ["start foo2 1"], "{policy} {exit_code}");
        }
    }
}

#[test]
fn an_older_instance_that_was_replaced_says_nothing_of_the_newest() {
    let (pod, mut runtime) = apps();
    let mut facts = FactsRow::default();
    facts.replaced.insert("foo2-old".into());
    exit(&mut runtime, "foo2", 0);
    assert_eq!(
        steps(&facts.plan(&pod.policy("OnFailure"), &runtime)),
        [""; 0]
    );
}

#[test]
fn a_plan_names_the_instances_that_it_replaces() {
    let (pod, runtime, mut facts) = probed();
    facts.said("foo2", |health| health.liveness = ProbeResult::Failure);
    let replaced = |policy| facts.plan(&pod.clone().policy(policy), &runtime).replaced;
    assert_eq!(replaced("OnFailure"), ["foo2-0".into()].into());
    assert_eq!(replaced("Never"), [].into());
}
