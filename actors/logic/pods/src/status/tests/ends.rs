//! Statuses of instances that ended, were lost or could not start.

use super::*;

/// Upstream's TestGenerateAPIPodStatusWithReasonCache, its rows in one.
#[test]
fn a_container_that_cannot_start_waits_and_remembers_its_end() {
    let reason = |reason: &str| WaitingReason {
        reason: reason.into(),
        message: "why".into(),
    };
    let mut scene = scene(pod("p").app("never-ran").app("crashed").app("runs"));
    scene.runtime = scene
        .runtime
        .exited(&scene.pod, "crashed", 3)
        .running(&scene.pod, "runs");
    for name in ["never-ran", "crashed", "runs"] {
        scene
            .waiting
            .insert(name.into(), reason("CrashLoopBackOff"));
    }
    let status = scene.status();
    assert_eq!(
        waiting_reason(app(&status, "never-ran")),
        Some("CrashLoopBackOff")
    );
    assert_eq!(
        waiting_reason(app(&status, "crashed")),
        Some("CrashLoopBackOff")
    );
    let last = app(&status, "crashed")
        .last_state
        .as_ref()
        .unwrap()
        .terminated
        .as_ref()
        .unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (3, Some("Error")));
    assert!(
        state(app(&status, "runs")).running.is_some(),
        "a running container does not wait"
    );

    scene.pod = scene.pod.clone().policy("Never");
    let status = scene.status();
    assert!(
        state(app(&status, "crashed")).terminated.is_some(),
        "what will not start again does not wait"
    );
}

/// The API server refuses a status in which a container leaves an end after which its policy starts nothing.
#[test]
fn the_end_of_a_container_that_is_replaced_is_its_last_state_only() {
    for (policy, exit_code) in [("Never", 0), ("Never", 137), ("OnFailure", 0)] {
        let mut scene = scene(pod("p").app("a").policy(policy));
        scene.runtime = scene.runtime.exited(&scene.pod, "a", exit_code);
        scene.replaced.insert("a-0".into());
        let status = scene.status();
        let (name, shown) = (format!("{policy} {exit_code}"), app(&status, "a"));
        assert_eq!(waiting_reason(shown), Some("ContainerCreating"), "{name}");
        let last = shown.last_state.as_ref().unwrap().terminated.as_ref();
        assert_eq!(last.unwrap().exit_code, exit_code, "{name}");

        let why = WaitingReason {
            reason: "ErrImagePull".into(),
            message: "why".into(),
        };
        scene.waiting.insert("a".into(), why);
        let status = scene.status();
        assert_eq!(
            waiting_reason(app(&status, "a")),
            Some("ErrImagePull"),
            "{name}"
        );
        assert_eq!(status.phase.as_deref(), Some("Running"), "{name}");
    }
}

/// Upstream's TestGenerateAPIPodStatusWithContainerRestartPolicies: two containers, each of two instances that ended.
#[test]
fn a_container_waits_with_its_reason_where_its_own_policy_or_rule_starts_it_again() {
    let restarts_on = |code: i32| core::ContainerRestartRule {
        action: "Restart".into(),
        exit_codes: Some(core::ContainerRestartRuleOnExitCodes {
            operator: "In".into(),
            values: Some(vec![code]),
        }),
    };
    // By policy and the exit code of a rule: whether the one that succeeded and the one that failed wait.
    let cases = [
        ("Never", Some(1), [false, true]),
        ("Never", Some(2), [false, false]),
        ("Never", None, [false, false]),
        ("OnFailure", None, [false, true]),
        ("Always", None, [true, true]),
    ];
    for (policy, code, waits) in cases {
        let define = |c: &mut core::Container| {
            c.restart_policy = Some(policy.into());
            c.restart_policy_rules = code.map(|code| vec![restarts_on(code)]);
        };
        let mut scene = scene(
            pod("p")
                .app_with("succeed", define)
                .app_with("failed", define),
        );
        for (name, before, newest) in [("succeed", 2, 0), ("failed", 3, 1)] {
            let mut newer = instance(&scene.pod, name, Seen::Exited);
            (newer.id, newer.attempt) = (format!("{name}-1").as_str().into(), 1);
            newer.exit_code = newest;
            scene.runtime = scene.runtime.exited(&scene.pod, name, before).with(newer);
            let reason = WaitingReason {
                reason: "test-error".into(),
                message: String::new(),
            };
            scene.waiting.insert(name.into(), reason);
        }
        let status = scene.status();
        let names = [("succeed", 2, 0), ("failed", 3, 1)];
        for ((name, before, newest), waits) in names.into_iter().zip(waits) {
            let shown = app(&status, name);
            let code = |state: &ContainerState| state.terminated.as_ref().map(|end| end.exit_code);
            let last = shown.last_state.as_ref().and_then(code);
            let found = (waiting_reason(shown), code(state(shown)), last);
            let expected = match waits {
                true => (Some("test-error"), None, Some(newest)),
                false => (None, Some(newest), Some(before)),
            };
            assert_eq!(found, expected, "{name}, {policy}");
        }
    }
}

#[test]
fn a_succeeded_init_container_never_waits() {
    let mut scene = scene(pod("p").init("i").app("c"));
    scene.runtime = scene.runtime.exited(&scene.pod, "i", 0);
    scene.waiting.insert(
        "i".into(),
        WaitingReason {
            reason: "ErrImagePull".into(),
            message: String::new(),
        },
    );
    let status = scene.status();
    let init = &status.init_container_statuses.as_ref().unwrap()[0];
    assert!(init.state.as_ref().unwrap().terminated.is_some() && init.ready);
}

#[test]
fn the_last_state_is_the_instance_before() {
    let mut scene = scene(pod("p").app("c"));
    let mut newer = instance(&scene.pod, "c", Seen::Running);
    (newer.id, newer.attempt, newer.restart_count) = ("c-1".into(), 1, 1);
    scene.runtime = scene.runtime.exited(&scene.pod, "c", 137).with(newer);
    let status = scene.status();
    let c = app(&status, "c");
    assert_eq!(
        (c.restart_count, c.container_id.as_deref()),
        (1, Some("containerd://c-1"))
    );
    let last = c.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!(
        (last.exit_code, last.container_id.as_deref()),
        (137, Some("containerd://c-0"))
    );
}

/// The rows of upstream's Test_generateAPIPodStatus and TestConvertToAPIContainerStatuses on containers
/// that the runtime lost.
#[test]
fn a_container_that_the_runtime_lost_has_ended_in_an_unknown_way() {
    let mut scene = scene(pod("p").app("c"));
    scene.runtime = scene.runtime.running(&scene.pod, "c");
    scene.step();
    scene.runtime.containers.clear();
    let status = scene.status();
    let c = app(&status, "c");
    let last = c.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!(
        (last.exit_code, last.reason.as_deref()),
        (137, Some("ContainerStatusUnknown"))
    );
    assert_eq!(
        last.message.as_deref(),
        Some(
            "The container could not be located when the pod was deleted.  The container used to be Running"
        )
    );
    assert_eq!(
        (c.restart_count, waiting_reason(c)),
        (1, Some("ContainerCreating"))
    );
    assert_eq!(
        status.phase.as_deref(),
        Some("Running"),
        "it is not put back to Pending"
    );

    scene.pod.metadata.deletion_timestamp = Some(Time(at(0)));
    assert_eq!(
        app(&scene.status(), "c").restart_count,
        0,
        "a deleted pod restarts nothing"
    );

    scene.runtime = scene.runtime.with(instance(&scene.pod, "c", Seen::Unknown));
    let status = scene.status();
    let end = state(app(&status, "c")).terminated.as_ref().unwrap();
    assert_eq!(
        (end.exit_code, end.reason.as_deref()),
        (137, Some("ContainerStatusUnknown"))
    );
    assert_eq!(
        end.message.as_deref(),
        Some("The container could not be located when the pod was terminated")
    );
}

#[test]
fn an_end_that_was_reported_stays_when_the_container_is_removed() {
    let mut scene = scene(pod("p").app("c").policy("Never"));
    scene.runtime = scene.runtime.exited(&scene.pod, "c", 4);
    let before = scene.step();
    scene.runtime.containers.clear();
    assert_eq!(app(&scene.status(), "c"), app(&before, "c"));
}
