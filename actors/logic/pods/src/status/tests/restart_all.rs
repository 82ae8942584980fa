//! Upstream's tables on pods whose containers all start over.

use super::*;
use crate::status::conditions::{ConditionValue, all_restarting};
use crate::status::restart_all::could_restart_all;

fn triggering() -> Pod {
    pod("p").app("a").app_with("trigger", with_rule)
}

/// Upstream's TestGenerateAllContainersRestartingCondition.
#[test]
fn the_condition_is_true_from_the_exit_until_nothing_is_left() {
    let pod = triggering();
    let none = || RuntimePod::default();
    let exits = || runtime(&pod).running(&pod, "a").exited(&pod, "trigger", 42);
    let cleaning = || {
        runtime(&pod)
            .exited(&pod, "a", 0)
            .exited(&pod, "trigger", 42)
    };
    let other = || runtime(&pod).running(&pod, "a").exited(&pod, "trigger", 1);
    let cases = [
        (none(), PodPhase::Pending, ("False", "")),
        (none(), PodPhase::Failed, ("False", "PodFailed")),
        (none(), PodPhase::Succeeded, ("False", "PodCompleted")),
        (other(), PodPhase::Running, ("False", "")),
        (
            exits(),
            PodPhase::Running,
            ("True", "RestartAllContainersStarted"),
        ),
        (
            cleaning(),
            PodPhase::Running,
            ("True", "RestartAllContainersStarted"),
        ),
    ];
    for (known, phase, (status, reason)) in cases {
        let message = match status {
            "True" => "container exited with restart policy rule".into(),
            _ => String::new(),
        };
        let expected = ConditionValue {
            status,
            reason,
            message,
        };
        assert_eq!(all_restarting(&pod, &known, phase), expected, "{known:?}");
    }
}

/// Upstream's TestAllContainersCouldRestart.
#[test]
fn only_a_pod_with_such_a_rule_has_the_condition() {
    assert!(could_restart_all(&triggering()));
    assert!(could_restart_all(&with_init(
        pod("p").app("a"),
        "i",
        with_rule
    )));
    let restart = |c: &mut core::Container| {
        with_rule(c);
        c.restart_policy_rules.as_mut().unwrap()[0].action = "Restart".into();
    };
    let plain = pod("p").app_with("a", restart);
    assert!(!could_restart_all(&plain));
    let kinds = |pod: Pod| {
        let status = scene(pod).status();
        status
            .conditions
            .unwrap()
            .iter()
            .any(|c| c.type_ == "AllContainersRestarting")
    };
    assert!(kinds(triggering()) && !kinds(plain));
}

/// The rows of upstream's TestConvertToAPIContainerStatuses on RestartAllContainers.
#[test]
fn a_removed_container_waits_for_the_pod_to_start_over_and_keeps_its_count() {
    let mut scene = scene(triggering());
    scene.runtime = scene
        .runtime
        .running(&scene.pod, "a")
        .running(&scene.pod, "trigger");
    scene.step();
    let exit = |scene: &mut StatusCase, name: &str, code: i32| {
        let seen = scene
            .runtime
            .containers
            .iter_mut()
            .find(|c| c.name == name)
            .unwrap();
        (seen.state, seen.exit_code) = (Seen::Exited, code);
    };
    exit(&mut scene, "trigger", 42);
    let status = scene.step();
    assert_eq!(condition(&status, "AllContainersRestarting").status, "True");
    assert_eq!(
        condition(&status, "AllContainersRestarting").observed_generation,
        None
    );
    assert!(state(app(&status, "a")).running.is_some());

    exit(&mut scene, "a", 137);
    let status = scene.step();
    assert_eq!(
        state(app(&status, "a"))
            .terminated
            .as_ref()
            .unwrap()
            .exit_code,
        137
    );
    scene.runtime.containers.retain(|c| c.name == "trigger");
    let status = scene.step();
    let a = app(&status, "a");
    assert_eq!(waiting_reason(a), Some("RestartingAllContainers"));
    let last = a.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!(
        (last.exit_code, last.reason.as_deref()),
        (137, Some("RestartingAllContainers"))
    );
    assert_eq!(
        (
            a.restart_count,
            state(app(&status, "trigger")).terminated.is_some()
        ),
        (1, true)
    );

    scene.runtime.containers.clear();
    let status = scene.step();
    assert_eq!(
        waiting_reason(app(&status, "trigger")),
        Some("RestartingAllContainers")
    );
    assert_eq!(
        (
            app(&status, "a").restart_count,
            app(&status, "trigger").restart_count
        ),
        (1, 1)
    );
    assert_eq!(status.phase.as_deref(), Some("Running"), "it has not ended");
    assert_eq!(
        condition(&status, "AllContainersRestarting").status,
        "False"
    );

    // New instances begin to count at zero in the runtime; here the count goes on.
    let mut again = instance(&scene.pod, "a", Seen::Running);
    again.id = "a-new".into();
    scene.runtime = scene.runtime.with(again);
    let status = scene.step();
    let a = app(&status, "a");
    assert_eq!((a.restart_count, a.ready), (1, true));
    let last = a.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!(last.reason.as_deref(), Some("RestartingAllContainers"));
    assert_eq!(app(&status, "trigger").restart_count, 1);
}

/// Between the removal of the first and of the last container, which upstream's statuses do not show.
#[test]
fn an_init_container_that_is_removed_to_start_over_counts_once() {
    let mut scene = scene(triggering().init("i"));
    scene.runtime = scene
        .runtime
        .exited(&scene.pod, "i", 0)
        .exited(&scene.pod, "a", 137)
        .exited(&scene.pod, "trigger", 42);
    scene.step();
    scene.runtime.containers.retain(|c| c.name == "trigger");
    let init = |status: &PodStatus| {
        let inits = status.init_container_statuses.as_ref().unwrap();
        let reason = waiting_reason(&inits[0]).map(str::to_owned);
        (inits[0].restart_count, reason)
    };
    let waits = |reason: &str| (1, Some(reason.to_owned()));
    assert_eq!(init(&scene.step()), waits("RestartingAllContainers"));
    scene.runtime.containers.clear();
    assert_eq!(init(&scene.step()), waits("PodInitializing"));
}

#[test]
fn an_initialized_pod_stays_initialized_while_its_init_containers_run_again() {
    let mut scene = scene(triggering().init("i"));
    scene.runtime = scene
        .runtime
        .exited(&scene.pod, "i", 0)
        .running(&scene.pod, "a");
    assert_eq!(condition(&scene.step(), "Initialized").status, "True");
    scene.runtime.containers.clear();
    scene.runtime = scene.runtime.running(&scene.pod, "i");
    assert_eq!(condition(&scene.status(), "Initialized").status, "True");
}
