//! What the API's status tells of a pod that runs here and that this agent has never met.
//!
//! Upstream's kubelet goes on from there after every restart; this agent remembers by itself, and so asks the API's
//! status once: when another agent has run the pod.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use logic_api::pod::PodView;
use logic_api::pod::conditions::{CONTAINERS_READY, INITIALIZED, READY, READY_TO_START, SCHEDULED};
use logic_api::types::{
    ContainerHealth, ContainerState, ProbeResult, RuntimeContainer, RuntimePod,
};

use crate::probes::initial_health;

/// The conditions of a pod that runs.
const LASTING: [&str; 5] = [
    READY_TO_START,
    INITIALIZED,
    READY,
    CONTAINERS_READY,
    SCHEDULED,
];

/// Since when the pod is on this node.
pub fn start_time(pod: &Pod) -> Option<Timestamp> {
    let time = pod.status.as_ref()?.start_time.as_ref()?;
    Some(time.0)
}

/// The previous status of a pod that another agent has run; `started` is the time since when this agent runs it.
///
/// The mirror pod of a static pod is not available. Where its containers run, no condition has changed since the pod
/// began: later changes are taken from the API ([`crate::status::status_patch::merge`]).
pub fn earlier(pod: &Pod, runtime: Option<&RuntimePod>, started: Timestamp) -> PodStatus {
    let mut status = pod.status.clone().unwrap_or_default();
    status.start_time = Some(Time(started));
    let mut conditions = status.conditions.iter().flatten();
    let is_told = conditions.any(|condition| condition.type_ == READY);
    if !is_told && runtime.is_some_and(|runtime| all_run(pod, runtime)) {
        let since = |kind: &str| PodCondition {
            type_: kind.to_owned(),
            status: "True".to_owned(),
            last_transition_time: Some(Time(started)),
            ..PodCondition::default()
        };
        let list = status.conditions.get_or_insert_default();
        list.extend(LASTING.map(since));
    }
    status
}

fn all_run(pod: &Pod, runtime: &RuntimePod) -> bool {
    let runs = |name: &str| {
        let mut all = runtime.containers.iter();
        all.any(|one| one.name == name && one.state == ContainerState::Running)
    };
    pod.app_containers().iter().all(|spec| runs(&spec.name))
}

/// The last probe results of a running container: one that was ready stays so until a probe fails.
pub fn health(pod: &Pod, container: &RuntimeContainer) -> Option<ContainerHealth> {
    let shown = running(pod, container)?;
    let (_, spec) = pod.container(&container.name)?;
    let mut health = initial_health(&spec);
    if shown.started == Some(true) {
        health.startup = ProbeResult::Success;
    }
    if shown.ready {
        health.startup = ProbeResult::Success;
        health.readiness = ProbeResult::Success;
    }
    Some(health)
}

/// Since when a container runs: the delays of its probes are over.
pub fn ran_since(pod: &Pod, container: &RuntimeContainer) -> Option<Timestamp> {
    let state = running(pod, container)?.state.as_ref()?;
    let since = state.running.as_ref()?.started_at.as_ref()?;
    Some(since.0)
}

/// The status of exactly this instance, shown as running.
fn running<'a>(pod: &'a Pod, container: &RuntimeContainer) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let runs = |shown: &&ContainerStatus| {
        let state = shown.state.as_ref();
        state.is_some_and(|state| state.running.is_some())
    };
    let shown = of_instance(status, container).filter(runs);
    shown.filter(|_| container.state == ContainerState::Running)
}

fn of_instance<'a>(
    status: &'a PodStatus,
    container: &RuntimeContainer,
) -> Option<&'a ContainerStatus> {
    let inits = status.init_container_statuses.iter().flatten();
    let mut all = inits.chain(status.container_statuses.iter().flatten());
    all.find(|shown| {
        let id = shown.container_id.as_deref().unwrap_or_default();
        let id = id.split_once("://").map_or(id, |(_, id)| id);
        shown.name == container.name && id == container.id.as_str()
    })
}
