//! Upstream's status/generate_test.go tables.

use k8s_openapi::api::core::v1::PodReadinessGate;

use super::*;
use crate::status::conditions::{Answer, containers_ready, initialized, ready};

fn answer(status: &'static str, reason: &'static str, message: &str) -> Answer {
    Answer {
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
            Phase::Running,
            answer("False", "UnknownContainerStatuses", ""),
        ),
        (
            one(),
            vec![unready("other")],
            Phase::Running,
            not_ready("containers with unknown status: [1234]"),
        ),
        (
            two(),
            vec![with_ready(unready("1234")), with_ready(unready("5678"))],
            Phase::Running,
            answer("True", "", ""),
        ),
        (
            two(),
            vec![with_ready(unready("1234"))],
            Phase::Running,
            not_ready("containers with unknown status: [5678]"),
        ),
        (
            two(),
            vec![with_ready(unready("1234")), unready("5678")],
            Phase::Running,
            not_ready("containers with unready status: [5678]"),
        ),
        (
            two(),
            vec![unready("1234"), unready("5678")],
            Phase::Running,
            not_ready("containers with unready status: [1234 5678]"),
        ),
        (
            two(),
            vec![unready("1234")],
            Phase::Running,
            not_ready(
                "containers with unknown status: [5678], containers with unready status: [1234]",
            ),
        ),
        (
            one(),
            vec![unready("1234")],
            Phase::Succeeded,
            answer("False", "PodCompleted", ""),
        ),
        (
            one(),
            vec![unready("1234")],
            Phase::Failed,
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
            ready(&pod, &conditions, &statuses, Phase::Running),
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
            Phase::Running,
            answer("False", "UnknownContainerStatuses", ""),
        ),
        (none(), vec![], Phase::Running, answer("True", "", "")),
        (
            one(),
            vec![unready("app")],
            Phase::Running,
            answer(
                "False",
                "ContainersNotInitialized",
                "containers with unknown status: [1234]",
            ),
        ),
        (
            two(),
            vec![done("1234"), done("5678")],
            Phase::Running,
            answer("True", "", ""),
        ),
        (
            two(),
            vec![done("1234")],
            Phase::Running,
            answer(
                "False",
                "ContainersNotInitialized",
                "containers with unknown status: [5678]",
            ),
        ),
        (
            two(),
            vec![done("1234"), unready("5678")],
            Phase::Running,
            answer(
                "False",
                "ContainersNotInitialized",
                "containers with incomplete status: [5678]",
            ),
        ),
        (
            one(),
            vec![done("1234")],
            Phase::Succeeded,
            answer("True", "PodCompleted", ""),
        ),
        (
            one(),
            vec![unready("1234"), said("app", running())],
            Phase::Running,
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
