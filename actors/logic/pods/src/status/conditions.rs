//! A pod's conditions (upstream's status/generate.go at v1.36).

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use logic_api::pod::conditions::{
    ALL_RESTARTING, CONTAINERS_READY, DISRUPTION_TARGET, INITIALIZED, READY, READY_TO_START,
    RESIZE_IN_PROGRESS, RESIZE_PENDING, SCHEDULED, TERMINATION_BY_KUBELET, is_kubelet_condition,
};
use logic_api::pod::{PodView, is_sidecar};
use logic_api::types::RuntimePod;

use super::restart_all::could_restart_all;
use super::{PodPhase, StatusInput, StatusStage};
use crate::pod_actions::{restart_all, sandbox};
use crate::resize::{ResizeRefusal, ResizeState};

/// All conditions, in upstream's order.
pub(super) fn generate(
    input: &StatusInput<'_>,
    phase: PodPhase,
    statuses: &[&ContainerStatus],
) -> Vec<PodCondition> {
    let (pod, runtime) = (input.pod, input.runtime);
    let given = input.given().and_then(|s| s.conditions.as_deref());
    let old = input
        .old()
        .and_then(|s| s.conditions.as_deref())
        .unwrap_or_default();
    let maker = ConditionBuilder { input, old };

    let mut list = given.unwrap_or_default().to_vec();
    list.retain(|c| !is_kubelet_condition(&c.type_));
    list.extend(maker.resize());
    maker.put_disruption(&mut list);
    let initialized = match initialized(pod, statuses, phase) {
        // Once done is done for good, also while init containers run again.
        answer if answer.status == "False" && was_true(old, INITIALIZED) => ConditionValue::yes(),
        answer => answer,
    };
    let ready = ready(pod, &list, statuses, phase);
    list.push(maker.make(READY_TO_START, ready_to_start(pod, runtime)));
    list.push(maker.make(INITIALIZED, initialized));
    list.push(maker.make(READY, ready));
    list.push(maker.make(CONTAINERS_READY, containers_ready(pod, statuses, phase)));
    list.push(maker.make(SCHEDULED, ConditionValue::yes()));
    if could_restart_all(pod) {
        // As upstream, this one names no generation.
        list.push(PodCondition {
            observed_generation: None,
            ..maker.make(ALL_RESTARTING, all_restarting(pod, runtime, phase))
        });
    }
    list
}

fn was_true(old: &[PodCondition], kind: &str) -> bool {
    old.iter().any(|c| c.type_ == kind && c.status == "True")
}

/// Makes conditions of answers.
struct ConditionBuilder<'a> {
    input: &'a StatusInput<'a>,
    old: &'a [PodCondition],
}

impl ConditionBuilder<'_> {
    /// The time of the last change stays while the status does.
    fn make(&self, kind: &str, answer: ConditionValue) -> PodCondition {
        let mut old = self.old.iter();
        let before = old.find(|c| c.type_ == kind && c.status == answer.status);
        let since = before.and_then(|c| c.last_transition_time.clone());
        PodCondition {
            type_: kind.to_owned(),
            status: answer.status.to_owned(),
            reason: (!answer.reason.is_empty()).then(|| answer.reason.to_owned()),
            message: (!answer.message.is_empty()).then_some(answer.message),
            last_probe_time: None,
            last_transition_time: Some(since.unwrap_or(Time(self.input.now))),
            observed_generation: self.input.pod.metadata.generation,
        }
    }

    /// An ended pod is not resized any more.
    fn resize(&self) -> Vec<PodCondition> {
        if self.input.stage == StatusStage::Terminated {
            return Vec::new();
        }
        let answers = resize(self.input.resize).into_iter();
        let made = answers.map(|(kind, answer)| self.make_resize(kind, answer));
        made.collect()
    }

    /// As upstream: another reason is a transition too, and the last probe is when the message last changed. The
    /// resize that is carried out may be older than the one that is pending.
    fn make_resize(&self, kind: &str, answer: ConditionValue) -> PodCondition {
        let carried_out = self
            .input
            .resize
            .generation
            .filter(|_| kind == RESIZE_IN_PROGRESS);
        let now = Some(Time(self.input.now));
        let mut new = self.make(kind, answer);
        new.observed_generation = carried_out.or(new.observed_generation);
        let mut old = self.old.iter();
        let before = old.find(|c| c.type_ == kind && c.reason == new.reason);
        if before.is_none() {
            new.last_transition_time.clone_from(&now);
        }
        let probed = before.filter(|c| c.message == new.message);
        new.last_probe_time = probed.and_then(|c| c.last_probe_time.clone()).or(now);
        new
    }

    /// Set once, when the node ends the pod; it stays, whatever the containers do.
    fn put_disruption(&self, list: &mut Vec<PodCondition>) {
        let told = self
            .input
            .failure
            .and_then(|failure| failure.disruption.as_ref());
        let new = told.map(|message| {
            let answer = ConditionValue {
                status: "True",
                reason: TERMINATION_BY_KUBELET,
                message: message.clone(),
            };
            self.make(DISRUPTION_TARGET, answer)
        });
        let kept = || {
            self.old
                .iter()
                .find(|c| c.type_ == DISRUPTION_TARGET)
                .cloned()
        };
        let Some(condition) = new.or_else(kept) else {
            return;
        };
        match list.iter_mut().find(|c| c.type_ == DISRUPTION_TARGET) {
            Some(place) => *place = condition,
            None => list.push(condition),
        }
    }
}

/// A condition's status with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionValue {
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// One word.
    pub reason: &'static str,
    /// A sentence for users.
    pub message: String,
}

impl ConditionValue {
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
}

/// Whether the sandbox is there, with its network.
pub fn ready_to_start(pod: &Pod, runtime: &RuntimePod) -> ConditionValue {
    match sandbox::sandbox_decision(pod, runtime) {
        sandbox::SandboxDecision::Keep(_) => ConditionValue::yes(),
        sandbox::SandboxDecision::Replace(_) => ConditionValue::no("", String::new()),
    }
}

/// The conditions that a resize has.
pub fn resize(state: &ResizeState) -> Vec<(&'static str, ConditionValue)> {
    let pending = state.pending.as_ref().map(|(refusal, message)| {
        let reason = match refusal {
            ResizeRefusal::Deferred => "Deferred",
            ResizeRefusal::Infeasible => "Infeasible",
        };
        let answer = ConditionValue {
            reason,
            message: message.clone(),
            ..ConditionValue::yes()
        };
        (RESIZE_PENDING, answer)
    });
    let progress = state.in_progress.then(|| {
        let answer = match &state.error {
            Some(error) => ConditionValue {
                reason: "Error",
                message: error.clone(),
                ..ConditionValue::yes()
            },
            None => ConditionValue::yes(),
        };
        (RESIZE_IN_PROGRESS, answer)
    });
    pending.into_iter().chain(progress).collect()
}

/// Whether all containers are being taken down to start over together.
///
/// The instance that set it off is removed last, so it is there until nothing is left.
pub fn all_restarting(pod: &Pod, runtime: &RuntimePod, phase: PodPhase) -> ConditionValue {
    match phase {
        PodPhase::Succeeded => ConditionValue::no("PodCompleted", String::new()),
        PodPhase::Failed => ConditionValue::no("PodFailed", String::new()),
        PodPhase::Pending | PodPhase::Running if restart_all::trigger(pod, runtime).is_none() => {
            ConditionValue::no("", String::new())
        }
        PodPhase::Pending | PodPhase::Running => ConditionValue {
            reason: "RestartAllContainersStarted",
            message: "container exited with restart policy rule".to_owned(),
            ..ConditionValue::yes()
        },
    }
}

pub fn containers_ready(
    pod: &Pod,
    statuses: &[&ContainerStatus],
    phase: PodPhase,
) -> ConditionValue {
    if statuses.is_empty() {
        return ConditionValue::no("UnknownContainerStatuses", String::new());
    }
    let sidecars = pod.init_containers().iter().filter(|c| is_sidecar(c));
    let names = sidecars
        .chain(pod.app_containers())
        .map(|c| c.name.as_str());
    let (mut unknown, mut unready) = (Vec::new(), Vec::new());
    for name in names {
        match statuses.iter().find(|s| s.name == name) {
            None => unknown.push(name),
            Some(status) if !status.ready => unready.push(name),
            Some(_) => {}
        }
    }
    if phase == PodPhase::Succeeded && unknown.is_empty() {
        return ConditionValue::no("PodCompleted", String::new());
    }
    if phase == PodPhase::Failed {
        return ConditionValue::no("PodFailed", String::new());
    }
    match complaint(&unknown, "unready", &unready) {
        Some(message) => ConditionValue::no("ContainersNotReady", message),
        None => ConditionValue::yes(),
    }
}

/// Ready: every container is, and every readiness gate is open.
pub fn ready(
    pod: &Pod,
    conditions: &[PodCondition],
    statuses: &[&ContainerStatus],
    phase: PodPhase,
) -> ConditionValue {
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
        ConditionValue::yes()
    } else {
        ConditionValue::no("ReadinessGatesNotReady", complaints.join(", "))
    }
}

pub fn initialized(pod: &Pod, statuses: &[&ContainerStatus], phase: PodPhase) -> ConditionValue {
    let inits = pod.init_containers();
    if statuses.is_empty() && !inits.is_empty() {
        return ConditionValue::no("UnknownContainerStatuses", String::new());
    }
    let (mut unknown, mut incomplete) = (Vec::new(), Vec::new());
    for container in inits {
        match statuses.iter().find(|s| s.name == container.name) {
            None => unknown.push(container.name.as_str()),
            Some(status) if !is_done(container, status) => {
                incomplete.push(container.name.as_str());
            }
            Some(_) => {}
        }
    }
    if phase == PodPhase::Succeeded && unknown.is_empty() {
        return ConditionValue {
            reason: "PodCompleted",
            ..ConditionValue::yes()
        };
    }
    if any_app_started(pod, statuses) {
        return ConditionValue::yes();
    }
    match complaint(&unknown, "incomplete", &incomplete) {
        Some(message) => ConditionValue::no("ContainersNotInitialized", message),
        None => ConditionValue::yes(),
    }
}

/// A sidecar need only have started.
fn is_done(init: &Container, status: &ContainerStatus) -> bool {
    match is_sidecar(init) {
        true => status.started == Some(true),
        false => status.ready,
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
