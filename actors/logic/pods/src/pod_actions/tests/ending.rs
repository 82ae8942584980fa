//! How long each container gets at its end, and whose turn is when.

use logic_api::types::ContainerKind;

use super::*;

const SHORT: i64 = 10;
const MEDIUM: i64 = 30;
const LONG: i64 = 60;

/// Upstream's TestKillContainerGracePeriod.
#[test]
fn a_failed_probe_gives_its_own_grace_as_upstream() {
    use KillReason::{LivenessProbe, Other, StartupProbe};
    let cases = [
        (None, None, None, Other, 2),
        (None, None, Some(LONG), Other, LONG),
        (None, Some(SHORT), Some(LONG), LivenessProbe, SHORT),
        (Some(SHORT), None, Some(LONG), StartupProbe, SHORT),
        (Some(LONG), None, Some(SHORT), StartupProbe, LONG),
        (None, Some(LONG), Some(SHORT), LivenessProbe, LONG),
        (None, Some(SHORT), Some(LONG), Other, LONG),
        (Some(SHORT), None, Some(LONG), Other, LONG),
        (Some(SHORT), Some(MEDIUM), Some(LONG), Other, LONG),
        (Some(SHORT), Some(MEDIUM), Some(LONG), StartupProbe, SHORT),
        (Some(SHORT), Some(MEDIUM), Some(LONG), LivenessProbe, MEDIUM),
        (Some(SHORT), Some(MEDIUM), None, LivenessProbe, 2),
    ];
    let probe = |grace: Option<i64>| {
        grace.map(|seconds| core::Probe {
            termination_grace_period_seconds: Some(seconds),
            ..core::Probe::default()
        })
    };
    for (startup, liveness, defined, cause, expected) in cases {
        let mut pod = pod("p").app_with("foo", |c| {
            c.startup_probe = probe(startup);
            c.liveness_probe = probe(liveness);
        });
        pod.spec.as_mut().unwrap().termination_grace_period_seconds = defined;
        let found = kill_grace(&pod, "foo", cause).as_secs();
        assert_eq!(
            found,
            expected.cast_unsigned(),
            "{startup:?} {liveness:?} {defined:?} {cause:?}"
        );
        let at_once = kill_grace(&pod, "foo", KillReason::RestartAllContainers);
        assert!(at_once.is_zero());
        pod.metadata.deletion_grace_period_seconds = Some(5);
        assert_eq!(kill_grace(&pod, "foo", cause).as_secs(), 5);
    }
}

/// Upstream's Test_calculateEffectiveGracePeriod, and killContainer's least grace.
#[test]
fn a_pod_that_ends_has_the_shortest_grace_asked_for_and_never_under_two_seconds() {
    let secs = Duration::from_secs;
    let cases = [
        (None, None, None, None, 2),
        (None, None, Some(30), None, 30),
        (None, Some(5), Some(30), None, 5),
        (None, Some(60), Some(30), None, 60),
        (None, Some(0), Some(30), None, 2),
        (Some(7), Some(5), Some(30), None, 5),
        (Some(5), Some(7), Some(30), None, 5),
        (Some(2), Some(5), Some(30), None, 2),
        (Some(0), Some(5), Some(30), None, 2),
        (Some(1), None, None, None, 2),
        (Some(60), None, Some(30), None, 60),
        (None, Some(-5), None, None, 2),
        (None, None, Some(30), Some(9), 30),
    ];
    for (given, deletion, spec, noted, expected) in cases {
        let mut pod = pod("p").app("c");
        pod.metadata.deletion_grace_period_seconds = deletion;
        pod.spec.as_mut().unwrap().termination_grace_period_seconds = spec;
        let mut runtime = runtime(&pod).running(&pod, "c");
        runtime.containers[0].termination_grace = noted;
        let plan = termination_plan(Some(&pod), &runtime, given.map(secs));
        let Some(PodAction::KillContainer { grace, hooks, .. }) = plan.actions.first() else {
            panic!("{plan:?}");
        };
        assert_eq!(
            (grace.as_secs(), *hooks),
            (expected, PreStopHooks::Run),
            "{given:?} {deletion:?} {spec:?} {noted:?}"
        );
    }
    let mut orphan = instance(&pod("p"), "c", ContainerState::Running);
    orphan.termination_grace = Some(9);
    assert_eq!(termination_grace(None, &orphan, None), secs(9));
    assert_eq!(termination_grace(None, &orphan, Some(secs(1))), secs(1));
    let second = |seconds| {
        let mut pod = pod("p").app("c");
        pod.metadata.deletion_grace_period_seconds = Some(seconds);
        termination_grace(Some(&pod), &orphan, None)
    };
    assert!(
        second(3) < second(30),
        "a second deletion shortens the first"
    );
}

#[test]
fn no_grace_is_longer_than_a_clock_can_tell() {
    let mut pod = pod("p").app_with("c", |c| {
        c.liveness_probe = Some(core::Probe {
            termination_grace_period_seconds: Some(i64::MAX),
            ..core::Probe::default()
        });
    });
    pod.spec.as_mut().unwrap().termination_grace_period_seconds = Some(i64::MAX);
    let mut container = instance(&pod, "c", ContainerState::Running);
    container.termination_grace = Some(u64::MAX);
    let graces = [
        kill_grace(&pod, "c", KillReason::Other),
        kill_grace(&pod, "c", KillReason::LivenessProbe),
        termination_grace(Some(&pod), &container, None),
        termination_grace(Some(&pod), &container, Some(Duration::MAX)),
        termination_grace(None, &container, None),
    ];
    let century = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    assert_eq!(graces, [century; 5]);
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
    let known = termination_plan(Some(&pod), &runtime, None);
    assert_eq!(steps(&known), expected);
    assert_eq!(
        messages(&known),
        ["Stopping container foo2", "Stopping container foo3"]
    );
    assert_eq!(
        steps(&termination_plan(None, &runtime, None)),
        expected,
        "an orphan ends the same way"
    );
}

/// Two sidecars around a plain init container, an app container and a debug container: all run.
fn everything() -> (Pod, RuntimePod) {
    let pod = sidecar(pod("p"), "side1", |_| {}).init("init");
    let pod = ephemeral(sidecar(pod, "side2", |_| {}).app("main"), "debug");
    let known = ["side1", "init", "side2", "main", "debug"]
        .into_iter()
        .fold(runtime(&pod), |known, name| known.running(&pod, name));
    (pod, known)
}

/// Whom each kill waits for.
fn order(plan: &PodPlan) -> Vec<String> {
    let name = |action: &PodAction| {
        let PodAction::KillContainer { name, .. } = action else {
            return None;
        };
        Some(name.clone())
    };
    let kills = || plan.actions.iter().filter(|a| name(a).is_some());
    let waits = kills().map(|kill| {
        let before = kills().filter(|other| kill.waits_for(other));
        let before: Vec<_> = before.filter_map(name).collect();
        format!(
            "{} after [{}]",
            name(kill).unwrap_or_default(),
            before.join(" ")
        )
    });
    waits.collect()
}

/// Upstream's TestTerminationOrderingSidecarStopAfterMain and TestTerminationOrderingSidecarsInReverseOrder.
#[test]
fn sidecars_end_after_the_app_containers_and_in_reverse() {
    let (pod, runtime) = everything();
    let plan = termination_plan(Some(&pod), &runtime, None);
    let expected = [
        "debug after []",
        "init after []",
        "main after []",
        "side1 after [main side2]",
        "side2 after [main]",
    ];
    assert_eq!(order(&plan), expected);
    let turns: Vec<_> = plan
        .actions
        .iter()
        .filter_map(|action| {
            let PodAction::KillContainer {
                name, kind, turn, ..
            } = action
            else {
                return None;
            };
            Some((name.as_str(), *kind, *turn))
        })
        .collect();
    let kinds = [
        ("debug", Some(ContainerKind::Ephemeral), 0),
        ("init", Some(ContainerKind::Init), 0),
        ("main", Some(ContainerKind::App), 0),
        ("side1", Some(ContainerKind::Init), 2),
        ("side2", Some(ContainerKind::Init), 1),
    ];
    assert_eq!(turns, kinds);
}

#[test]
fn what_has_ended_is_not_waited_for() {
    let (pod, mut runtime) = everything();
    exit(&mut runtime, "main", 0);
    exit(&mut runtime, "side2", 0);
    let plan = termination_plan(Some(&pod), &runtime, None);
    assert_eq!(
        order(&plan),
        ["debug after []", "init after []", "side1 after []"]
    );
}

#[test]
fn a_finished_pod_and_a_replaced_sandbox_end_their_sidecars_in_order_too() {
    let (pod, mut runtime) = everything();
    exit(&mut runtime, "main", 0);
    let finished = plan(&pod.clone().policy("Never"), &runtime);
    let reverse = [
        "debug after []",
        "init after []",
        "side1 after [side2]",
        "side2 after []",
    ];
    assert_eq!(order(&finished), reverse);
    runtime.sandboxes[0].ips.clear();
    assert_eq!(order(&plan(&pod, &runtime)), reverse);
}

#[test]
fn orphans_end_without_order_and_replaced_containers_without_waiting() {
    let (pod, mut runtime) = everything();
    let orphan = termination_plan(None, &runtime, None);
    assert!(order(&orphan).iter().all(|line| line.ends_with("after []")));
    for container in &mut runtime.containers {
        container.hash = Some(1);
    }
    let replaced = plan(&pod, &runtime);
    assert!(order(&replaced).len() >= 3);
    assert!(
        order(&replaced)
            .iter()
            .all(|line| line.ends_with("after []"))
    );
}

#[test]
fn neighbours_run_side_by_side_but_app_containers_come_after_sidecars() {
    use ContainerKind::{App, Ephemeral, Init};
    let start = |kind| PodAction::StartContainer {
        name: "c".into(),
        kind,
        restart_count: 0,
        message: String::new(),
        backoff: None,
    };
    let cases = [
        (Init, Init, true),
        (Init, App, false),
        (App, App, true),
        (App, Ephemeral, true),
        (Init, Ephemeral, true),
        (Ephemeral, Ephemeral, true),
    ];
    for (before, after, beside) in cases {
        let found = start(after).beside(&start(before));
        assert_eq!(found, beside, "{after:?} after {before:?}");
    }
    let stop = PodAction::StopSandbox {
        sandbox: "s".into(),
    };
    assert!(!start(App).beside(&stop) && !stop.beside(&stop));
    let (pod, runtime) = everything();
    let plan = termination_plan(Some(&pod), &runtime, None);
    assert!(plan.actions[1].beside(&plan.actions[0]));
}
