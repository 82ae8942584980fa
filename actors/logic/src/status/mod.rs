//! A pod's status as the API shows it.
//!
//! [`pod_status`] mirrors upstream's `generateAPIPodStatus` (kubelet_pods.go), `TerminatePod` and
//! `updateStatusInternal` (status_manager.go) at v1.36: what the runtime says, what was said before, and
//! why containers wait become one status. Times are whole seconds, as the API keeps them.

pub mod conditions;
pub mod containers;
pub mod finish;
pub mod phase;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, HostIP, Pod, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::pod::PodView;
use crate::qos::pod_qos;
use crate::types::{Failure, RuntimePod, Waiting};

pub use phase::Phase;

/// Where the pod's worker is in the pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    Syncing,
    Terminating,
    /// Everything has stopped, and nothing will start again.
    Terminated,
}

/// Everything that a status is made of.
#[derive(Clone, Copy, Debug)]
pub struct StatusInput<'a> {
    pub now: Timestamp,
    pub pod: &'a Pod,
    pub runtime: &'a RuntimePod,
    /// What container ids are prefixed with: `containerd://...`.
    pub runtime_name: &'a str,
    /// Why containers wait: the plan's reasons, and those of starts that failed.
    pub waiting: &'a BTreeMap<String, Waiting>,
    /// The status made last; none lets the pod's own count.
    pub previous: Option<&'a PodStatus>,
    /// The node's addresses, primary first.
    pub host_ips: &'a [String],
    pub stage: Stage,
    /// Fails the pod by decree: rejected, evicted, past its deadline.
    pub failure: Option<&'a Failure>,
}

impl StatusInput<'_> {
    /// The pod's own status, as its source gave it.
    fn given(&self) -> Option<&PodStatus> {
        self.pod.status.as_ref()
    }

    /// What this status follows.
    fn old(&self) -> Option<&PodStatus> {
        self.previous.or(self.given())
    }
}

pub fn pod_status(input: &StatusInput<'_>) -> PodStatus {
    let (pod, old) = (input.pod, input.old());
    let mut inits = containers::init_statuses(input);
    let mut apps = containers::app_statuses(input);
    let next = next_phase(input, &inits, &apps);

    let mut status = PodStatus {
        reason: next.reason,
        message: next.message,
        observed_generation: pod.metadata.generation,
        qos_class: Some(pod_qos(pod).as_str().to_owned()),
        start_time: Some(
            old.and_then(|s| s.start_time.clone())
                .unwrap_or(Time(input.now)),
        ),
        // Whoever asked for these, it was not this agent.
        nominated_node_name: old.and_then(|s| s.nominated_node_name.clone()),
        ..PodStatus::default()
    };
    let mut phase = next.phase;
    if input.stage == Stage::Terminated {
        let initialized = finish::has_initialized(pod, &inits, &apps);
        finish::close_containers(&mut inits, &mut apps, initialized);
        // A static pod has no phase of its own to end in: its manifest decides whether it runs again.
        if !pod.is_static() && !phase.is_terminal() {
            phase = Phase::Failed;
        }
    }
    status.phase = Some(phase.as_str().to_owned());
    put_addresses(input, &mut status);
    status.conditions = Some(conditions::generate(input, phase, &inits, &apps));
    status.init_container_statuses = some_list(inits);
    status.container_statuses = some_list(apps);
    finish::normalize(pod, &mut status);
    debug_assert!(!was_terminal(input) || phase.is_terminal());
    status
}

struct Next {
    phase: Phase,
    reason: Option<String>,
    message: Option<String>,
}

/// The phase by the containers, then by what was: a terminal phase is never left.
fn next_phase(
    input: &StatusInput<'_>,
    inits: &[ContainerStatus],
    apps: &[ContainerStatus],
) -> Next {
    let given = phase_of(input.given());
    if let Some(failure) = input.failure {
        let phase = given.filter(|p| p.is_terminal()).unwrap_or(Phase::Failed);
        let (reason, message) = (failure.reason.clone(), failure.message.clone());
        return Next {
            phase,
            reason: Some(reason),
            message: Some(message),
        };
    }
    let statuses: Vec<_> = inits.iter().chain(apps).collect();
    let mut phase = phase::phase(input.pod, &statuses, input.stage);
    let old = phase_of(input.old());
    let terminal = |phase: &Option<Phase>| phase.filter(|p| p.is_terminal());
    // The API's word is final, ours comes next.
    if let Some(kept) = terminal(&given).or_else(|| terminal(&old).filter(|_| !phase.is_terminal()))
    {
        phase = kept;
    }
    let same = Some(phase) == old;
    let keep = |read: fn(&PodStatus) -> Option<&String>| {
        let text = |s: Option<&PodStatus>| s.and_then(read).filter(|t| !t.is_empty()).cloned();
        same.then(|| text(input.old()).or_else(|| text(input.given())))
            .flatten()
    };
    Next {
        phase,
        reason: keep(|s| s.reason.as_ref()),
        message: keep(|s| s.message.as_ref()),
    }
}

fn phase_of(status: Option<&PodStatus>) -> Option<Phase> {
    Phase::from_name(status?.phase.as_deref()?)
}

fn was_terminal(input: &StatusInput<'_>) -> bool {
    phase_of(input.old()).is_some_and(Phase::is_terminal)
}

/// The node's and the pod's addresses; a pod on the node's network has the node's, once and for all.
fn put_addresses(input: &StatusInput<'_>, status: &mut PodStatus) {
    let host_ips = &input.host_ips[..input.host_ips.len().min(2)];
    let mut pod_ips = pod_addresses(input.runtime.ips(), host_ips);
    if input.pod.host_network() && pod_ips.is_empty() {
        pod_ips = host_ips.to_vec();
    }
    status.host_ip = host_ips.first().cloned();
    status.host_ips = some_list(
        host_ips
            .iter()
            .map(|ip| HostIP { ip: ip.clone() })
            .collect(),
    );
    status.pod_ip = pod_ips.first().cloned();
    status.pod_ips = some_list(pod_ips.into_iter().map(|ip| PodIP { ip }).collect());
}

/// At most one address a family, the node's primary family first.
pub fn pod_addresses(ips: &[String], host_ips: &[String]) -> Vec<String> {
    let is_v6 = |ip: &String| ip.contains(':');
    let primary = host_ips.first().is_some_and(is_v6);
    let first_of = |family: bool| ips.iter().find(|ip| !ip.is_empty() && is_v6(ip) == family);
    first_of(primary)
        .into_iter()
        .chain(first_of(!primary))
        .cloned()
        .collect()
}

fn some_list<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

#[cfg(test)]
mod tests;
