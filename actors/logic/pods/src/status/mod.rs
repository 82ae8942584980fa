//! A pod's status as the API shows it.
//!
//! [`pod_status`] mirrors upstream's `generateAPIPodStatus` (kubelet_pods.go), `TerminatePod` and
//! `updateStatusInternal` (status_manager.go) at v1.36: the runtime state, the last status, and the reasons why
//! containers wait become one status. Times are whole seconds, as the API keeps them.

pub mod conditions;
pub mod containers;
pub mod finish;
mod health;
pub mod phase;
pub mod pod_start;
mod resources;
pub mod restart_all;
pub mod status_patch;
pub mod terminal_on_arrival;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use containers::ContainerStatuses;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{HostIP, Pod, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use logic_api::pod::PodView;
use logic_api::types::{
    ContainerHealth, ContainerId, PodFailure, RuntimeContainer, RuntimePod, RuntimeSandbox,
    WaitingReason,
};
use logic_resources::qos::pod_qos;
use phase::PhaseFacts;
pub use phase::PodPhase;

use crate::resize::ResizeState;
use crate::runtime::runtime_class::HandlerFeatures;

/// Where the pod's worker is in the pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatusStage {
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
    /// The runtime's name, the prefix of container ids: `containerd://...`.
    pub runtime_name: &'a str,
    /// The features of the pod's runtime handler.
    pub handler: HandlerFeatures,
    /// Why containers wait: the plan's reasons, and those of starts that failed.
    pub waiting: &'a BTreeMap<String, WaitingReason>,
    /// The status made last; none lets the pod's own count.
    pub previous: Option<&'a PodStatus>,
    /// The node's addresses, primary first.
    pub host_ips: &'a [String],
    pub stage: StatusStage,
    /// Fails the pod by decree: rejected, evicted, past its deadline.
    pub failure: Option<&'a PodFailure>,
    /// Probe results by instance; an instance not listed has [`crate::probes::initial_health`].
    pub health: &'a BTreeMap<ContainerId, ContainerHealth>,
    /// Instances that were ended to be started again: their exits are not final.
    pub replaced: &'a BTreeSet<ContainerId>,
    /// Where an in-place resize stands.
    pub resize: &'a ResizeState,
    /// By container instance: the last words of those that ended ([`crate::container::termination`]).
    pub last_words: &'a BTreeMap<ContainerId, String>,
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

    /// A container's id as the API shows it.
    fn full_id(&self, container: &RuntimeContainer) -> String {
        format!("{}://{}", self.runtime_name, container.id)
    }
}

pub fn pod_status(input: &StatusInput<'_>) -> PodStatus {
    let (pod, old) = (input.pod, input.old());
    let mut statuses = ContainerStatuses::of(input);
    let next = next_phase(input, &statuses);

    let mut status = PodStatus {
        reason: next.reason,
        message: next.message,
        resources: Some(resources::of_pod(input)),
        allocated_resources: resources::allocated(pod),
        ..blank(input.now, pod, old)
    };
    let mut phase = next.phase;
    if input.stage == StatusStage::Terminated {
        finish::close_containers(pod, &mut statuses);
        // A static pod has no phase of its own to end in: its manifest decides whether it runs again.
        if !pod.is_static() && !phase.is_terminal() {
            phase = PodPhase::Failed;
        }
    }
    status.phase = Some(phase.as_str().to_owned());
    put_addresses(input, &mut status);
    status.conditions = Some(conditions::generate(input, phase, &statuses.lasting()));
    status.init_container_statuses = some_list(statuses.inits);
    status.container_statuses = some_list(statuses.apps);
    status.ephemeral_container_statuses = some_list(statuses.ephemerals);
    finish::normalize(pod, &mut status);
    debug_assert!(!was_terminal(input) || phase.is_terminal());
    status
}

/// The status of a pod that was not admitted: it failed, and nothing of it was ever made.
pub fn rejected(now: Timestamp, pod: &Pod, failure: &PodFailure) -> PodStatus {
    let mut status = PodStatus {
        phase: Some(PodPhase::Failed.as_str().to_owned()),
        reason: Some(failure.reason.clone()),
        message: Some(format!("Pod was rejected: {}", failure.message)),
        ..blank(now, pod, pod.status.as_ref())
    };
    finish::normalize(pod, &mut status);
    status
}

/// What every status says.
fn blank(now: Timestamp, pod: &Pod, old: Option<&PodStatus>) -> PodStatus {
    let started = old.and_then(|s| s.start_time.clone());
    PodStatus {
        observed_generation: pod.metadata.generation,
        qos_class: Some(pod_qos(pod).as_str().to_owned()),
        start_time: Some(started.unwrap_or(Time(now))),
        ..PodStatus::default()
    }
}

struct NextPhase {
    phase: PodPhase,
    reason: Option<String>,
    message: Option<String>,
}

/// The phase by the containers, then by what was: a terminal phase is never left.
fn next_phase(input: &StatusInput<'_>, statuses: &ContainerStatuses) -> NextPhase {
    let given = phase_of(input.given());
    if let Some(failure) = input.failure {
        let phase = given
            .filter(|p| p.is_terminal())
            .unwrap_or(PodPhase::Failed);
        let (reason, message) = (failure.reason.clone(), failure.message.clone());
        return NextPhase {
            phase,
            reason: Some(reason),
            message: Some(message),
        };
    }
    let initialized = phase::has_initialized(input.pod, input.runtime);
    let mut phase = phase::phase(
        input.pod,
        &statuses.lasting(),
        PhaseFacts {
            stage: input.stage,
            initialized,
            replaced: input.replaced,
        },
    );
    let old = phase_of(input.old());
    let terminal = |phase: &Option<PodPhase>| phase.filter(|p| p.is_terminal());
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
    NextPhase {
        phase,
        reason: keep(|s| s.reason.as_ref()),
        message: keep(|s| s.message.as_ref()),
    }
}

fn phase_of(status: Option<&PodStatus>) -> Option<PodPhase> {
    PodPhase::from_name(status?.phase.as_deref()?)
}

fn was_terminal(input: &StatusInput<'_>) -> bool {
    phase_of(input.old()).is_some_and(PodPhase::is_terminal)
}

/// The node's and the pod's addresses; a pod on the node's network has the node's, once and for all.
fn put_addresses(input: &StatusInput<'_>, status: &mut PodStatus) {
    let host_ips = &input.host_ips[..input.host_ips.len().min(2)];
    let mut pod_ips = pod_addresses(&known_addresses(input), host_ips);
    if input.pod.host_network() {
        match pod_ips.as_slice() {
            [] => pod_ips = host_ips.to_vec(),
            // The node has got its second address since.
            [one] => pod_ips.extend(
                host_ips
                    .get(1)
                    .filter(|ip| is_v6(ip) != is_v6(one))
                    .cloned(),
            ),
            _ => {}
        }
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

/// The addresses that the runtime tells; those that were told last of a pod none of whose sandboxes is ready, as of one
/// that has ended (upstream's `getPodIPs` of the PLEG).
fn known_addresses(input: &StatusInput<'_>) -> Vec<String> {
    let ips = input.runtime.ips();
    let is_up = input.runtime.sandboxes.iter().any(RuntimeSandbox::is_ready);
    if !ips.is_empty() || is_up {
        return ips.to_vec();
    }
    let told = input.old().and_then(|old| old.pod_ips.as_ref());
    told.into_iter().flatten().map(|ip| ip.ip.clone()).collect()
}

/// At most one address a family, the node's primary family first.
pub fn pod_addresses(ips: &[String], host_ips: &[String]) -> Vec<String> {
    let primary = host_ips.first().is_some_and(|ip| is_v6(ip));
    let first_of = |family: bool| ips.iter().find(|ip| !ip.is_empty() && is_v6(ip) == family);
    let both = first_of(primary).into_iter().chain(first_of(!primary));
    both.map(|ip| tidy(ip)).collect()
}

fn is_v6(ip: &str) -> bool {
    ip.contains(':')
}

/// The usual form, in case the runtime has another (`010.0.0.1`, `fd01:0:0:0:0:0:0:1`).
fn tidy(ip: &str) -> String {
    let parts = ip
        .split('.')
        .map(|part| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0",
            digits => digits,
        });
    let plain = match is_v6(ip) {
        true => ip.to_owned(),
        false => parts.collect::<Vec<_>>().join("."),
    };
    plain
        .parse::<IpAddr>()
        .map_or_else(|_| ip.to_owned(), |ip| ip.to_string())
}

fn some_list<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

#[cfg(test)]
mod tests;
