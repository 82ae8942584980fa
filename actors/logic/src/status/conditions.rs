//! A pod's conditions (upstream's status/generate.go).

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Phase, StatusInput};
use crate::pod::PodView;
use crate::worker::sandbox;

pub const READY_TO_START: &str = "PodReadyToStartContainers";
pub const INITIALIZED: &str = "Initialized";
pub const READY: &str = "Ready";
pub const CONTAINERS_READY: &str = "ContainersReady";
pub const SCHEDULED: &str = "PodScheduled";
pub const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// Conditions that others set and that stay as they are.
fn is_ours(kind: &str) -> bool {
    [
        READY_TO_START,
        INITIALIZED,
        READY,
        CONTAINERS_READY,
        SCHEDULED,
    ]
    .contains(&kind)
}

pub(super) fn generate(
    input: &StatusInput<'_>,
    phase: Phase,
    inits: &[ContainerStatus],
    apps: &[ContainerStatus],
) -> Vec<PodCondition> {
    let all: Vec<_> = inits.iter().chain(apps).collect();
    let given = input
        .given()
        .and_then(|s| s.conditions.as_deref())
        .unwrap_or_default();
    let old = input
        .old()
        .and_then(|s| s.conditions.as_deref())
        .unwrap_or_default();
    let mut list: Vec<_> = given
        .iter()
        .filter(|c| !is_ours(&c.type_))
        .cloned()
        .collect();
    if let Some(disruption) = old.iter().find(|c| c.type_ == DISRUPTION_TARGET) {
        list.retain(|c| c.type_ != DISRUPTION_TARGET);
        list.push(disruption.clone());
    }
    let has_sandbox = matches!(
        sandbox::judge(input.pod, input.runtime),
        sandbox::Verdict::Keep(_)
    );
    let ours = [
        (
            READY_TO_START,
            if has_sandbox {
                Answer::yes()
            } else {
                Answer::no("", String::new())
            },
        ),
        (INITIALIZED, initialized(input.pod, &all, phase)),
        (READY, ready(input.pod, &list, &all, phase)),
        (CONTAINERS_READY, containers_ready(input.pod, &all, phase)),
        (SCHEDULED, Answer::yes()),
    ];
    for (kind, answer) in ours {
        list.push(answer.condition(kind, input, old));
    }
    list
}

/// A condition's status with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
}

impl Answer {
    fn yes() -> Self {
        Self {
            status: "True",
            reason: "",
            message: String::new(),
        }
    }

    fn no(reason: &'static str, message: String) -> Self {
        Self {
            status: "False",
            reason,
            message,
        }
    }

    /// The time of the last change stays while the status does.
    fn condition(self, kind: &str, input: &StatusInput<'_>, old: &[PodCondition]) -> PodCondition {
        let before = old
            .iter()
            .find(|c| c.type_ == kind && c.status == self.status);
        let since = before.and_then(|c| c.last_transition_time.clone());
        PodCondition {
            type_: kind.to_owned(),
            status: self.status.to_owned(),
            reason: (!self.reason.is_empty()).then(|| self.reason.to_owned()),
            message: (!self.message.is_empty()).then_some(self.message),
            last_probe_time: None,
            last_transition_time: Some(since.unwrap_or(Time(input.now))),
            observed_generation: input.pod.metadata.generation,
        }
    }
}

pub fn containers_ready(pod: &Pod, statuses: &[&ContainerStatus], phase: Phase) -> Answer {
    if statuses.is_empty() {
        return Answer::no("UnknownContainerStatuses", String::new());
    }
    let names = pod.app_containers().iter().map(|c| c.name.as_str());
    let (mut unknown, mut unready) = (Vec::new(), Vec::new());
    for name in names {
        match statuses.iter().find(|s| s.name == name) {
            None => unknown.push(name),
            Some(status) if !status.ready => unready.push(name),
            Some(_) => {}
        }
    }
    if phase == Phase::Succeeded && unknown.is_empty() {
        return Answer::no("PodCompleted", String::new());
    }
    if phase == Phase::Failed {
        return Answer::no("PodFailed", String::new());
    }
    match complaint(&unknown, "unready", &unready) {
        Some(message) => Answer::no("ContainersNotReady", message),
        None => Answer::yes(),
    }
}

/// Ready: every container is, and every readiness gate is open.
pub fn ready(
    pod: &Pod,
    conditions: &[PodCondition],
    statuses: &[&ContainerStatus],
    phase: Phase,
) -> Answer {
    let containers = containers_ready(pod, statuses, phase);
    if containers.status != "True" {
        return containers;
    }
    let gates = pod
        .spec()
        .and_then(|s| s.readiness_gates.as_deref())
        .unwrap_or_default();
    let complaints: Vec<_> = gates
        .iter()
        .filter_map(|gate| {
            let kind = &gate.condition_type;
            match conditions.iter().find(|c| c.type_ == *kind) {
                None => Some(format!(
                    "corresponding condition of pod readiness gate {kind:?} does not exist."
                )),
                Some(c) if c.status == "True" => None,
                Some(c) => {
                    let status = &c.status;
                    Some(format!(
                        "the status of pod readiness gate {kind:?} is not \"True\", but {status}"
                    ))
                }
            }
        })
        .collect();
    if complaints.is_empty() {
        Answer::yes()
    } else {
        Answer::no("ReadinessGatesNotReady", complaints.join(", "))
    }
}

pub fn initialized(pod: &Pod, statuses: &[&ContainerStatus], phase: Phase) -> Answer {
    let inits = pod.init_containers();
    if statuses.is_empty() && !inits.is_empty() {
        return Answer::no("UnknownContainerStatuses", String::new());
    }
    let (mut unknown, mut incomplete) = (Vec::new(), Vec::new());
    for container in inits {
        match statuses.iter().find(|s| s.name == container.name) {
            None => unknown.push(container.name.as_str()),
            Some(status) if !status.ready => incomplete.push(container.name.as_str()),
            Some(_) => {}
        }
    }
    if phase == Phase::Succeeded && unknown.is_empty() {
        return Answer {
            reason: "PodCompleted",
            ..Answer::yes()
        };
    }
    if any_app_started(pod, statuses) {
        return Answer::yes();
    }
    match complaint(&unknown, "incomplete", &incomplete) {
        Some(message) => Answer::no("ContainersNotInitialized", message),
        None => Answer::yes(),
    }
}

fn any_app_started(pod: &Pod, statuses: &[&ContainerStatus]) -> bool {
    let started = |status: &&ContainerStatus| {
        let state = status.state.as_ref();
        state.is_some_and(|s| s.running.is_some() || s.terminated.is_some())
    };
    pod.app_containers().iter().any(|c| {
        let status = statuses.iter().find(|s| s.name == c.name);
        status.is_some_and(started)
    })
}

/// `containers with unknown status: [a], containers with unready status: [b c]`.
fn complaint(unknown: &[&str], other: &str, listed: &[&str]) -> Option<String> {
    let part = |word: &str, names: &[&str]| {
        (!names.is_empty()).then(|| format!("containers with {word} status: [{}]", names.join(" ")))
    };
    let parts: Vec<_> = [part("unknown", unknown), part(other, listed)]
        .into_iter()
        .flatten()
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}
