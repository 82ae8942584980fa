//! The worker's decisions, one word a step.

mod apps;
mod init;
mod laws;

use std::time::Duration;

use jiff::Timestamp;

use super::kill::{kill_grace, termination_plan};
use super::*;
use crate::testing::*;
use crate::types::SandboxState;

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
        Action::RemoveContainer(instance) => format!("remove {}", instance.id),
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
