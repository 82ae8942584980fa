//! Restart policies and rules about exit codes.

use super::*;

#[test]
fn containers_own_policy_and_exit_rules_come_first() {
    let rule = |operator: &str| exit_rule("Restart", operator, &[42]);
    let cases = [
        ("Never", Some("Always"), None, 0, true),
        ("Always", Some("Never"), None, 1, false),
        ("Always", Some("OnFailure"), None, 0, false),
        ("Never", None, None, 1, false),
        ("Never", Some("Never"), Some(rule("In")), 42, true),
        ("Never", Some("Never"), Some(rule("In")), 1, false),
        ("Never", Some("Never"), Some(rule("NotIn")), 1, true),
        ("Never", Some("Never"), Some(rule("NotIn")), 42, false),
        ("Never", Some("Never"), Some(rule("Near")), 42, false),
        // Rules belong to the container's own policy.
        ("Never", None, Some(rule("In")), 42, false),
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
fn the_first_rule_that_matches_counts() {
    use crate::pod_actions::rules::{RuleAction, rule_for};
    let mut spec = spec_container("c");
    spec.restart_policy_rules = Some(vec![
        core::ContainerRestartRule {
            action: "Restart".into(),
            exit_codes: None,
        },
        exit_rule("RestartAllContainers", "In", &[1, 2]),
        exit_rule("Restart", "NotIn", &[3]),
        exit_rule("Restart", "In", &[3, 4]),
    ]);
    let cases = [
        (1, Some(RuleAction::RestartAllContainers)),
        (2, Some(RuleAction::RestartAllContainers)),
        (3, Some(RuleAction::Restart)),
        (5, Some(RuleAction::Restart)),
    ];
    for (code, action) in cases {
        assert_eq!(rule_for(&spec, code), action, "{code}");
    }
    assert_eq!(rule_for(&spec_container("d"), 1), None);
}

/// Upstream's TestShouldContainerBeRestarted.
#[test]
fn what_starts_depends_on_its_state_its_policy_and_the_pods_deletion() {
    let cases = [
        ("no-history", [true, true, true]),
        ("alive", [false, false, false]),
        ("succeed", [false, false, true]),
        ("failed", [false, true, true]),
        ("unknown", [true, true, true]),
        ("created", [true, true, true]),
    ];
    for (name, expected) in cases {
        for (policy, starts) in ["Never", "OnFailure", "Always"].into_iter().zip(expected) {
            let mut pod = pod("foo").policy(policy).app(name);
            let newest = match name {
                "alive" => Some(instance(&pod, name, ContainerState::Running)),
                "succeed" => Some(instance(&pod, name, ContainerState::Exited)),
                "failed" => Some(RuntimeContainer {
                    exit_code: 1,
                    ..instance(&pod, name, ContainerState::Exited)
                }),
                "unknown" => Some(instance(&pod, name, ContainerState::Unknown)),
                "created" => Some(instance(&pod, name, ContainerState::Created)),
                _ => None,
            };
            let spec = pod.app_containers()[0].clone();
            let found = should_start(&pod, &spec, newest.as_ref());
            assert_eq!(found, starts, "{name} {policy}");
            pod.metadata.deletion_timestamp = Some(at(0).into());
            assert!(
                !should_start(&pod, &spec, newest.as_ref()),
                "{name} {policy}"
            );
        }
    }
}

fn own_policy(pod: &mut Pod, index: usize, policy: &str) {
    app_spec(pod, index).restart_policy = Some(policy.into());
}

/// Upstream's TestComputePodActionsWithContainerRestartRules.
#[test]
fn each_container_follows_its_own_policy_as_upstream() {
    check(ROWS, apps);
}

const ROWS: &[Row] = &[
    Row {
        name: "restart exited containers if RestartPolicy == Always",
        policy: "Never",
        change: |pod, runtime| {
            own_policy(pod, 0, "Always");
            own_policy(pod, 1, "Always");
            exit(runtime, "foo1", 0);
            exit(runtime, "foo2", 111);
        },
        steps: &["start foo1 1", "start foo2 1"],
    },
    Row {
        name: "restart failed containers if RestartPolicy == OnFailure",
        policy: "Never",
        change: |pod, runtime| {
            own_policy(pod, 0, "OnFailure");
            own_policy(pod, 1, "OnFailure");
            exit(runtime, "foo1", 0);
            exit(runtime, "foo2", 111);
        },
        steps: &["start foo2 1"],
    },
    Row {
        name: "restart created but not started containers if RestartPolicy == OnFailure",
        policy: "Never",
        change: |pod, runtime| {
            own_policy(pod, 0, "OnFailure");
            own_policy(pod, 1, "OnFailure");
            exit(runtime, "foo1", 0);
            of(runtime, "foo2").state = ContainerState::Created;
        },
        steps: &["start foo2 0"],
    },
    Row {
        name: "don't restart containers if RestartPolicy == Never",
        policy: "Always",
        change: |pod, runtime| {
            own_policy(pod, 0, "Never");
            own_policy(pod, 1, "Never");
            exit(runtime, "foo1", 0);
            exit(runtime, "foo2", 111);
        },
        steps: &[],
    },
    Row {
        name: "Kill pod and recreate all containers (except for the succeeded one) if the pod sandbox is dead",
        policy: "Always",
        change: |pod, runtime| {
            own_policy(pod, 1, "OnFailure");
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
        name: "a new sandbox runs what succeeded again if its own policy is Always",
        policy: "OnFailure",
        change: |pod, runtime| {
            own_policy(pod, 1, "Always");
            runtime.sandboxes[0].state = SandboxState::NotReady;
            ["foo1", "foo2", "foo3"]
                .iter()
                .for_each(|name| exit(runtime, name, 0));
        },
        steps: &["stop s0", "create 1", "start foo2 1"],
    },
];

/// One init container that failed with code 3 in a pod of policy Never.
fn failed_init() -> (Pod, RuntimePod) {
    let pod = pod("foo").init("init1").app("foo1");
    let known = runtime(&pod).exited(&pod, "init1", 3);
    (pod, known)
}

fn init_rule(pod: &mut Pod, own: &str, rule: Option<core::ContainerRestartRule>) {
    let spec = init_spec(pod, 0);
    spec.restart_policy = Some(own.into());
    spec.restart_policy_rules = rule.map(|rule| vec![rule]);
}

#[test]
fn an_init_container_that_fails_follows_its_own_policy_and_rules() {
    check(INIT_ROWS, failed_init);
}

const INIT_ROWS: &[Row] = &[
    Row {
        name: "its own policy does not restart it",
        policy: "Always",
        change: |pod, _| init_rule(pod, "Never", None),
        steps: &["stop s0"],
    },
    Row {
        name: "its own policy restarts it",
        policy: "Never",
        change: |pod, _| init_rule(pod, "OnFailure", None),
        steps: &["start init1 1"],
    },
    Row {
        name: "a rule restarts it",
        policy: "Never",
        change: |pod, _| init_rule(pod, "Never", Some(exit_rule("Restart", "In", &[3]))),
        steps: &["start init1 1"],
    },
    Row {
        name: "no rule matches",
        policy: "Never",
        change: |pod, _| init_rule(pod, "Never", Some(exit_rule("Restart", "NotIn", &[3]))),
        steps: &["stop s0"],
    },
    Row {
        name: "its state is unknown: its own policy restarts it",
        policy: "Never",
        change: |pod, runtime| {
            init_rule(pod, "OnFailure", None);
            of(runtime, "init1").state = ContainerState::Unknown;
        },
        steps: &["kill init1-0", "start init1 1"],
    },
    Row {
        name: "its state is unknown: rules say nothing of that",
        policy: "Always",
        change: |pod, runtime| {
            init_rule(pod, "Never", Some(exit_rule("Restart", "In", &[3])));
            of(runtime, "init1").state = ContainerState::Unknown;
        },
        steps: &["kill init1-0", "stop s0"],
    },
];
