//! Pods that are over: phases that are never left, failures by decree, what terminated pods show.

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
};

use super::*;
use crate::status::finish::closed;

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

/// A first instance whose start failed, and a second one under the same restart count, which ran and ended well.
#[test]
fn a_terminal_phase_stands_beside_the_ends_that_it_was_made_of_whichever_instance_is_removed_first()
{
    for policy in ["Never", "OnFailure"] {
        for from_api in [false, true] {
            let given = pod("p").app("c");
            let mut scene = scene(given.spec_with(|s| s.restart_policy = Some(policy.into())));
            let mut failed = instance(&scene.pod, "c", Seen::Exited);
            (failed.exit_code, failed.reason) = (128, "StartError".into());
            let ended = RuntimeContainer {
                id: "c-1".into(),
                attempt: 1,
                ..instance(&scene.pod, "c", Seen::Exited)
            };
            scene.runtime = scene.runtime.with(failed.clone()).with(ended);
            let over = scene.step();
            assert_eq!(over.phase.as_deref(), Some("Succeeded"));
            if from_api {
                (scene.pod.status, scene.previous) = (scene.previous.take(), None);
            }
            scene.runtime.containers = vec![failed];
            for stage in [StatusStage::Syncing, StatusStage::Terminated] {
                scene.stage = stage;
                let left = scene.status();
                assert_eq!(left.phase.as_deref(), Some("Succeeded"));
                assert_eq!(state(app(&left, "c")), state(app(&over, "c")));
            }
        }
    }
}

#[test]
fn a_failure_by_decree_fails_the_pod_with_its_reason() {
    let mut scene = scene(pod("p").app("c"));
    scene.runtime = scene.runtime.running(&scene.pod, "c");
    scene.failure = Some(PodFailure {
        reason: "DeadlineExceeded".into(),
        message: "Pod was active on the node longer than the specified deadline".into(),
        disruption: None,
        ..PodFailure::default()
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
    scene.failure = Some(PodFailure {
        reason: "Preempting".into(),
        message: "Preempted in order to admit critical pod".into(),
        disruption: Some("Pod was preempted by Kubelet to accommodate a critical pod.".into()),
        ..PodFailure::default()
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
    let failure = PodFailure {
        reason: "NodePorts".into(),
        message: "Predicate NodePorts failed".into(),
        disruption: None,
        ..PodFailure::default()
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
    scene.stage = StatusStage::Terminated;
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
    scene.stage = StatusStage::Terminated;
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
    scene.stage = StatusStage::Terminated;
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

/// A status by a sign: `w` waits, `r` runs, a digit has ended with it, `W` and `F` wait after an end with 0 or 2, `-`
/// is nothing now, after an end with 0.
fn signed(name: &str, sign: char) -> ContainerStatus {
    let ended = |exit_code| ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code,
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    };
    let waits = ContainerState {
        waiting: Some(ContainerStateWaiting::default()),
        ..ContainerState::default()
    };
    let runs = ContainerState {
        running: Some(ContainerStateRunning::default()),
        ..ContainerState::default()
    };
    let (state, last_state) = match sign {
        'r' => (Some(runs), None),
        'W' => (Some(waits), Some(ended(0))),
        'F' => (Some(waits), Some(ended(2))),
        '-' => (None, Some(ended(0))),
        digit if digit.is_ascii_digit() => (Some(ended(i32::from(digit == '1'))), None),
        _ => (Some(waits), None),
    };
    ContainerStatus {
        name: name.to_owned(),
        state,
        last_state,
        ..ContainerStatus::default()
    }
}

/// `?` has ended with an exit that was not observed.
fn sign(status: &ContainerStatus) -> char {
    let state = status.state.clone().unwrap_or_default();
    match (&state.terminated, state.waiting) {
        (Some(end), _) if end.reason.as_deref() == Some("ContainerStatusUnknown") => {
            assert_eq!(end.exit_code, 137);
            '?'
        }
        (Some(end), _) => char::from_digit(end.exit_code.unsigned_abs(), 10).unwrap(),
        (None, Some(_)) => 'w',
        (None, None) => '-',
    }
}

/// A pod of containers with these signs.
fn signed_pod(inits: &str, apps: &str) -> (Pod, PodStatus) {
    let list = |prefix: &str, signs: &str| -> Vec<ContainerStatus> {
        let named = signs.chars().enumerate();
        named
            .map(|(at, sign)| signed(&format!("{prefix}{at}"), sign))
            .collect()
    };
    let (inits, apps) = (list("init-", inits), list("", apps));
    let mut pod = pod("p");
    for status in &inits {
        pod = pod.init(&status.name);
    }
    for status in &apps {
        pod = pod.app(&status.name);
    }
    let known = PodStatus {
        init_container_statuses: Some(inits),
        container_statuses: Some(apps),
        ..PodStatus::default()
    };
    (pod, known)
}

/// Upstream's TestTerminatePod_DefaultUnknownStatus.
#[test]
fn containers_that_should_have_started_have_ended_and_the_others_wait() {
    let rows = [
        ("no previous state", "", "w", "", "?"),
        ("last termination state set", "", "F", "", "?"),
        ("an end that was seen stays", "", "1", "", "1"),
        (
            "the first init container is taken as tried",
            "w",
            "w",
            "?",
            "w",
        ),
        ("and only the first", "ww", "w", "?w", "w"),
        ("gaps", "ww1w", "w", "??1w", "w"),
        (
            "failed last container is uninitialized",
            "ww1",
            "w",
            "??1",
            "w",
        ),
        (
            "successful last container is initialized",
            "ww0",
            "w",
            "??0",
            "?",
        ),
        (
            "and so is one that succeeded before",
            "wwW",
            "w",
            "???",
            "?",
        ),
        (
            "running container proves initialization",
            "w",
            "r",
            "?",
            "?",
        ),
        ("terminated container proves it", "w", "0", "?", "0"),
        (
            "previously terminated container proves it",
            "w",
            "-",
            "?",
            "?",
        ),
    ];
    for (name, inits, apps, inits_after, apps_after) in rows {
        let (pod, known) = signed_pod(inits, apps);
        let ended = closed(&pod, &known);
        let signs = |list: Option<Vec<ContainerStatus>>| -> String {
            list.iter().flatten().map(sign).collect()
        };
        let found = (
            signs(ended.init_container_statuses),
            signs(ended.container_statuses),
        );
        assert_eq!(
            (found.0.as_str(), found.1.as_str()),
            (inits_after, apps_after),
            "{name}"
        );
    }
}

/// Upstream's TestTerminatePod_EnsurePodPhaseIsTerminal.
#[test]
fn a_pod_that_is_over_is_in_a_terminal_phase_whatever_it_was_in() {
    let rows = [
        ("Pending", "Failed"),
        ("Running", "Failed"),
        ("Succeeded", "Succeeded"),
        ("Failed", "Failed"),
        ("Unknown", "Failed"),
        ("SomeUnknownPhase", "Failed"),
    ];
    for (before, after) in rows {
        let known = PodStatus {
            phase: Some(before.into()),
            ..PodStatus::default()
        };
        let ended = closed(&pod("p").app("c"), &known);
        assert_eq!(ended.phase.as_deref(), Some(after), "{before}");
    }
}
