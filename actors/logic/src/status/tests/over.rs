//! Pods that are over: phases that are never left, failures by decree, what terminated pods show.

use super::*;

/// The rows of upstream's TestGenerateAPIPodStatus on phases that go back.
#[test]
fn a_terminal_phase_is_never_left() {
    for (from_previous, phase) in [
        (true, "Failed"),
        (false, "Failed"),
        (true, "Succeeded"),
        (false, "Succeeded"),
    ] {
        let mut scene = scene(pod("p").app("c"));
        scene.runtime = scene.runtime.running(&scene.pod, "c");
        let ended = PodStatus {
            phase: Some(phase.into()),
            reason: Some("Evicted".into()),
            ..PodStatus::default()
        };
        if from_previous {
            scene.previous = Some(ended);
        } else {
            scene.pod.status = Some(ended);
        }
        let status = scene.status();
        assert_eq!(status.phase.as_deref(), Some(phase));
        assert_eq!(
            status.reason.as_deref(),
            Some("Evicted"),
            "the reason stays with its phase"
        );
    }
}

#[test]
fn a_failure_by_decree_fails_the_pod_with_its_reason() {
    let mut scene = scene(pod("p").app("c"));
    scene.runtime = scene.runtime.running(&scene.pod, "c");
    scene.failure = Some(Failure {
        reason: "DeadlineExceeded".into(),
        message: "Pod was active on the node longer than the specified deadline".into(),
        disruption: None,
    });
    let status = scene.status();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    assert_eq!(
        condition(&status, "Ready").reason.as_deref(),
        Some("PodFailed")
    );
}

/// Upstream's TestGenerateAPIPodStatus row on the disruption condition, and what its eviction, preemption
/// and shutdown say.
#[test]
fn a_pod_that_the_node_ends_is_a_disruption_target_until_it_is_gone() {
    let mut scene = scene(pod("p").app("c"));
    scene.runtime = scene.runtime.running(&scene.pod, "c");
    scene.failure = Some(Failure {
        reason: "Preempting".into(),
        message: "Preempted in order to admit critical pod".into(),
        disruption: Some("Pod was preempted by Kubelet to accommodate a critical pod.".into()),
    });
    let status = scene.step();
    let said = condition(&status, "DisruptionTarget").clone();
    assert_eq!(
        (
            said.status.as_str(),
            said.reason.as_deref(),
            said.observed_generation
        ),
        ("True", Some("TerminationByKubelet"), Some(1))
    );
    assert_eq!(
        said.message.as_deref(),
        Some("Pod was preempted by Kubelet to accommodate a critical pod.")
    );
    (scene.failure, scene.now) = (None, at(60));
    assert_eq!(*condition(&scene.status(), "DisruptionTarget"), said);
}

/// Upstream's TestHandlePortConflicts and its kin: `rejectPod`.
#[test]
fn a_pod_that_was_not_admitted_has_failed_with_a_reason_and_nothing_else() {
    let pod = pod("p").app("c");
    let failure = Failure {
        reason: "NodePorts".into(),
        message: "Predicate NodePorts failed".into(),
        disruption: None,
    };
    let status = rejected(at(0), &pod, &failure);
    let expected = PodStatus {
        phase: Some("Failed".into()),
        reason: Some("NodePorts".into()),
        message: Some("Pod was rejected: Predicate NodePorts failed".into()),
        qos_class: Some("BestEffort".into()),
        observed_generation: Some(1),
        start_time: Some(Time(at(0))),
        ..PodStatus::default()
    };
    assert_eq!(status, expected);
}

/// Upstream's TestTerminatePod.
#[test]
fn a_terminated_pod_has_no_open_containers() {
    let mut scene = scene(pod("p").init("i").init("j").app("a").app("b"));
    scene.runtime = scene
        .runtime
        .exited(&scene.pod, "i", 0)
        .exited(&scene.pod, "j", 0)
        .exited(&scene.pod, "a", 0);
    scene.stage = Stage::Terminated;
    let status = scene.status();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    let b = state(app(&status, "b")).terminated.as_ref().unwrap();
    assert_eq!(
        (b.exit_code, b.reason.as_deref()),
        (137, Some("ContainerStatusUnknown"))
    );
    assert_eq!(
        state(app(&status, "a"))
            .terminated
            .as_ref()
            .unwrap()
            .exit_code,
        0
    );
}

/// Upstream's TestTerminatePodWaiting.
#[test]
fn a_pod_terminated_during_initialisation_leaves_its_app_containers_waiting() {
    let mut scene = scene(pod("p").init("i").init("j").app("a"));
    scene.stage = Stage::Terminated;
    let status = scene.status();
    let inits = status.init_container_statuses.as_ref().unwrap();
    assert!(
        state(&inits[0]).terminated.is_some(),
        "the first is taken as tried"
    );
    assert_eq!(waiting_reason(&inits[1]), Some("PodInitializing"));
    assert_eq!(waiting_reason(app(&status, "a")), Some("PodInitializing"));
}

/// The sidecar rows of upstream's TestTerminatePodWaiting.
#[test]
fn a_started_sidecar_as_last_init_container_means_that_the_pod_was_initialized() {
    let mut scene = scene(with_sidecar(pod("p"), "s").app("a"));
    scene.runtime = scene.runtime.running(&scene.pod, "s");
    scene.stage = Stage::Terminated;
    let status = scene.status();
    for closed in [init(&status, "s"), app(&status, "a")] {
        let end = state(closed).terminated.as_ref().unwrap();
        assert_eq!(
            end.reason.as_deref(),
            Some("ContainerStatusUnknown"),
            "{}",
            closed.name
        );
    }
    let slow = |c: &mut core::Container| c.startup_probe = Some(core::Probe::default());
    let spec = scene.pod.spec.as_mut().unwrap();
    slow(&mut spec.init_containers.as_mut().unwrap()[0]);
    assert_eq!(
        waiting_reason(app(&scene.status(), "a")),
        Some("PodInitializing")
    );
}
