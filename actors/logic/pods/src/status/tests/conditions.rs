//! Upstream's status/generate_test.go tables.

use k8s_openapi::api::core::v1::PodReadinessGate;

use super::*;
use crate::resize::ResizeRefusal;
use crate::status::conditions::{
    ConditionValue, containers_ready, initialized, ready, ready_to_start, resize,
};

fn answer(status: &'static str, reason: &'static str, message: &str) -> ConditionValue {
    ConditionValue {
        status,
        reason,
        message: message.into(),
    }
}

/// Upstream's TestGenerateContainersReadyCondition.
#[test]
fn containers_ready_condition_is_upstreams() {
    let not_ready = |message: &str| answer("False", "ContainersNotReady", message);
    let one = || pod("p").app("1234");
    let two = || pod("p").app("1234").app("5678");
    let unready = |name: &str| said(name, waits());
    let cases = [
        (
            pod("p"),
            vec![],
            PodPhase::Running,
            answer("False", "UnknownContainerStatuses", ""),
        ),
        (
            one(),
            vec![unready("other")],
            PodPhase::Running,
            not_ready("containers with unknown status: [1234]"),
        ),
        (
            two(),
            vec![with_ready(unready("1234")), with_ready(unready("5678"))],
            PodPhase::Running,
            answer("True", "", ""),
        ),
        (
            two(),
            vec![with_ready(unready("1234"))],
            PodPhase::Running,
            not_ready("containers with unknown status: [5678]"),
        ),
        (
            two(),
            vec![with_ready(unready("1234")), unready("5678")],
            PodPhase::Running,
            not_ready("containers with unready status: [5678]"),
        ),
        (
            two(),
            vec![unready("1234"), unready("5678")],
            PodPhase::Running,
            not_ready("containers with unready status: [1234 5678]"),
        ),
        (
            two(),
            vec![unready("1234")],
            PodPhase::Running,
            not_ready(
                "containers with unknown status: [5678], containers with unready status: [1234]",
            ),
        ),
        (
            one(),
            vec![unready("1234")],
            PodPhase::Succeeded,
            answer("False", "PodCompleted", ""),
        ),
        (
            one(),
            vec![unready("1234")],
            PodPhase::Failed,
            answer("False", "PodFailed", ""),
        ),
    ];
    for (pod, statuses, phase, expected) in cases {
        let statuses: Vec<_> = statuses.iter().collect();
        assert_eq!(
            containers_ready(&pod, &statuses, phase),
            expected,
            "{statuses:?}"
        );
    }
}

/// Upstream's TestGeneratePodReadyCondition.
#[test]
fn ready_condition_asks_the_readiness_gates_as_upstream() {
    let gate = |kind: &str| PodReadinessGate {
        condition_type: kind.into(),
    };
    let condition = |kind: &str, status: &str| PodCondition {
        type_: kind.into(),
        status: status.into(),
        ..PodCondition::default()
    };
    let app = [with_ready(said("a", running()))];
    let absent = "corresponding condition of pod readiness gate \"gate1\" does not exist.";
    let closed = "the status of pod readiness gate \"gate1\" is not \"True\", but False";
    let both = format!(
        "{absent}, the status of pod readiness gate \"gate2\" is not \"True\", but Unknown"
    );
    let cases = [
        (vec![], vec![], answer("True", "", "")),
        (
            vec![gate("gate1")],
            vec![],
            answer("False", "ReadinessGatesNotReady", absent),
        ),
        (
            vec![gate("gate1")],
            vec![condition("gate1", "False")],
            answer("False", "ReadinessGatesNotReady", closed),
        ),
        (
            vec![gate("gate1")],
            vec![condition("gate1", "True")],
            answer("True", "", ""),
        ),
        (
            vec![gate("gate1"), gate("gate2")],
            vec![condition("gate2", "Unknown")],
            answer("False", "ReadinessGatesNotReady", &both),
        ),
    ];
    for (gates, conditions, expected) in cases {
        let pod = pod("p")
            .app("a")
            .spec_with(|spec| spec.readiness_gates = Some(gates));
        let statuses: Vec<_> = app.iter().collect();
        assert_eq!(
            ready(&pod, &conditions, &statuses, PodPhase::Running),
            expected
        );
    }
}

/// Upstream's TestGeneratePodInitializedCondition.
#[test]
fn initialized_condition_is_upstreams() {
    let none = || pod("p").app("app");
    let one = || none().init("1234");
    let two = || one().init("5678");
    let done = |name: &str| with_ready(said(name, ended(0)));
    let unready = |name: &str| said(name, waits());
    let cases = [
        (
            one(),
            vec![],
            PodPhase::Running,
            answer("False", "UnknownContainerStatuses", ""),
        ),
        (none(), vec![], PodPhase::Running, answer("True", "", "")),
        (
            one(),
            vec![unready("app")],
            PodPhase::Running,
            answer(
                "False",
                "ContainersNotInitialized",
                "containers with unknown status: [1234]",
            ),
        ),
        (
            two(),
            vec![done("1234"), done("5678")],
            PodPhase::Running,
            answer("True", "", ""),
        ),
        (
            two(),
            vec![done("1234")],
            PodPhase::Running,
            answer(
                "False",
                "ContainersNotInitialized",
                "containers with unknown status: [5678]",
            ),
        ),
        (
            two(),
            vec![done("1234"), unready("5678")],
            PodPhase::Running,
            answer(
                "False",
                "ContainersNotInitialized",
                "containers with incomplete status: [5678]",
            ),
        ),
        (
            one(),
            vec![done("1234")],
            PodPhase::Succeeded,
            answer("True", "PodCompleted", ""),
        ),
        (
            one(),
            vec![unready("1234"), said("app", running())],
            PodPhase::Running,
            answer("True", "", ""),
        ),
    ];
    for (pod, statuses, phase, expected) in cases {
        let statuses: Vec<_> = statuses.iter().collect();
        assert_eq!(
            initialized(&pod, &statuses, phase),
            expected,
            "{statuses:?}"
        );
    }
}

/// The sidecar rows of upstream's TestGenerateContainersReadyCondition.
#[test]
fn sidecars_have_to_be_ready_too() {
    let pod = with_sidecar(with_sidecar(pod("p").init("i"), "s1"), "s2").app("a");
    let not_ready = |message: &str| answer("False", "ContainersNotReady", message);
    let is_ready = |name: &str| with_ready(said(name, running()));
    let cases = [
        (
            vec![is_ready("a")],
            not_ready("containers with unknown status: [s1 s2]"),
        ),
        (
            vec![is_ready("s1"), is_ready("s2"), is_ready("a")],
            answer("True", "", ""),
        ),
        (
            vec![is_ready("s1"), is_ready("a")],
            not_ready("containers with unknown status: [s2]"),
        ),
        (
            vec![is_ready("s1"), said("s2", running()), is_ready("a")],
            not_ready("containers with unready status: [s2]"),
        ),
    ];
    for (statuses, expected) in cases {
        let statuses: Vec<_> = statuses.iter().collect();
        assert_eq!(
            containers_ready(&pod, &statuses, PodPhase::Running),
            expected
        );
    }
}

/// The sidecar rows of upstream's TestGeneratePodInitializedCondition.
#[test]
fn a_started_sidecar_is_initialized() {
    let pod = with_sidecar(pod("p"), "s").app("a");
    let incomplete = || {
        let message = "containers with incomplete status: [s]";
        answer("False", "ContainersNotInitialized", message)
    };
    let cases = [
        (vec![said("s", running())], incomplete()),
        (vec![started(said("s", running()))], answer("True", "", "")),
        (
            vec![said("s", running()), said("a", running())],
            answer("True", "", ""),
        ),
        (
            vec![said("s", waits()), said("a", ended(0))],
            answer("True", "", ""),
        ),
    ];
    for (statuses, expected) in cases {
        let statuses: Vec<_> = statuses.iter().collect();
        assert_eq!(initialized(&pod, &statuses, PodPhase::Running), expected);
    }
}

/// Upstream's TestGeneratePodReadyToStartContainersCondition.
#[test]
fn ready_to_start_means_a_sandbox_with_an_address() {
    let pod = pod("p").app("a");
    assert_eq!(ready_to_start(&pod, &runtime(&pod)), answer("True", "", ""));
    let (mut nowhere, mut two) = (runtime(&pod), runtime(&pod));
    nowhere.sandboxes[0].ips.clear();
    two.sandboxes.push(sandbox(1, SandboxState::Ready));
    let gone = runtime(&pod).with_sandbox(SandboxState::NotReady);
    for known in [nowhere, RuntimePod::default(), gone, two] {
        // As upstream, without a reason.
        assert_eq!(ready_to_start(&pod, &known), answer("False", "", ""));
    }
}

/// Upstream's TestPodResizeConditions.
#[test]
fn a_resize_shows_as_pending_and_in_progress() {
    let waits = |refusal| Some((refusal, "why".to_owned()));
    let cases = [
        (ResizeState::default(), vec![]),
        (
            ResizeState {
                pending: waits(ResizeRefusal::Deferred),
                ..ResizeState::default()
            },
            vec![("PodResizePending", answer("True", "Deferred", "why"))],
        ),
        (
            ResizeState {
                pending: waits(ResizeRefusal::Infeasible),
                in_progress: true,
                ..ResizeState::default()
            },
            vec![
                ("PodResizePending", answer("True", "Infeasible", "why")),
                ("PodResizeInProgress", answer("True", "", "")),
            ],
        ),
        (
            ResizeState {
                in_progress: true,
                error: Some("oops".into()),
                ..ResizeState::default()
            },
            vec![("PodResizeInProgress", answer("True", "Error", "oops"))],
        ),
    ];
    for (state, expected) in cases {
        assert_eq!(resize(&state), expected);
    }
}

#[test]
fn resize_conditions_carry_their_generation_and_go_when_the_pod_has_ended() {
    let mut scene = scene(pod("p").app("c"));
    scene.pod.metadata.generation = Some(7);
    scene.resize = ResizeState {
        in_progress: true,
        generation: Some(5),
        ..ResizeState::default()
    };
    let status = scene.step();
    assert_eq!(
        condition(&status, "PodResizeInProgress").observed_generation,
        Some(5)
    );
    for kind in [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ] {
        assert_eq!(
            condition(&status, kind).observed_generation,
            Some(7),
            "{kind}"
        );
    }
    assert_eq!(status.observed_generation, Some(7));
    scene.resize.pending = Some((ResizeRefusal::Deferred, "later".into()));
    let both = scene.status();
    let generation = |kind| condition(&both, kind).observed_generation;
    assert_eq!(generation("PodResizePending"), Some(7));
    assert_eq!(generation("PodResizeInProgress"), Some(5));
    (scene.resize, scene.now) = (ResizeState::default(), at(5));
    let kinds = |status: PodStatus| -> Vec<String> {
        status
            .conditions
            .into_iter()
            .flatten()
            .map(|c| c.type_)
            .collect()
    };
    assert!(!kinds(scene.status()).contains(&"PodResizeInProgress".to_owned()));
    scene.resize.in_progress = true;
    scene.stage = StatusStage::Terminated;
    assert!(!kinds(scene.status()).contains(&"PodResizeInProgress".to_owned()));
}

/// Upstream's `updatedPodResizeCondition`, as TestPodResizeConditions leaves its times out.
#[test]
fn a_resize_that_waits_for_another_reason_is_a_transition_and_new_words_are_a_probe() {
    let mut scene = scene(pod("p").app("c"));
    let steps = [
        (0, ResizeRefusal::Deferred, "memory", 0, 0),
        (10, ResizeRefusal::Deferred, "memory", 0, 0),
        (20, ResizeRefusal::Deferred, "cpu", 0, 20),
        (30, ResizeRefusal::Infeasible, "cpu", 30, 30),
        (40, ResizeRefusal::Infeasible, "cpu", 30, 30),
    ];
    for (second, refusal, why, since, probed) in steps {
        scene.now = at(second);
        scene.resize.pending = Some((refusal, why.to_owned()));
        let status = scene.step();
        let found = condition(&status, "PodResizePending");
        let times = [&found.last_transition_time, &found.last_probe_time];
        let times = times.map(|time| time.as_ref().unwrap().0);
        assert_eq!(times, [at(since), at(probed)], "at {second}");
    }
}
