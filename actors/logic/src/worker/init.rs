//! How far a pod's initialisation has come (upstream's `computeInitContainerActions`).
//!
//! The list is read from its end, because ended init containers may have been removed meanwhile: the
//! last one that left a trace tells how far the pod got.

use k8s_openapi::api::core::v1::{self as core, Pod};

use crate::pod::PodView;
use crate::types::{Container, ContainerState, RestartPolicy, RuntimePod, Sandbox};

/// Where initialisation stands.
#[derive(Debug, PartialEq)]
pub enum Progress<'a> {
    Done,
    /// This one is running; everything else waits.
    Running(&'a str),
    /// This one starts now, for the first time or again.
    Next(&'a core::Container),
    /// This one failed for good, and the pod with it.
    Failed(&'a str),
}

pub fn progress<'a>(pod: &'a Pod, runtime: &RuntimePod, sandbox: &Sandbox) -> Progress<'a> {
    let inits = pod.init_containers();
    let Some(first) = inits.first() else {
        return Progress::Done;
    };
    if any_app_began(pod, runtime, sandbox) {
        return Progress::Done;
    }
    let last_seen = inits
        .iter()
        .enumerate()
        .rev()
        .find_map(|(index, c)| Some((index, c, runtime.newest(&c.name)?)));
    let Some((index, container, newest)) = last_seen else {
        return Progress::Next(first);
    };
    match newest.state {
        ContainerState::Running => Progress::Running(&container.name),
        ContainerState::Created => Progress::Next(container),
        ContainerState::Exited | ContainerState::Unknown if failed(newest) => {
            match pod.restart_policy() {
                RestartPolicy::Never => Progress::Failed(&container.name),
                RestartPolicy::Always | RestartPolicy::OnFailure => Progress::Next(container),
            }
        }
        ContainerState::Exited | ContainerState::Unknown => {
            inits.get(index + 1).map_or(Progress::Done, Progress::Next)
        }
    }
}

/// An init container killed for memory has failed, whatever code it exited with.
fn failed(container: &Container) -> bool {
    container.failed() || container.reason == "OOMKilled"
}

/// Whether any app container has come to be in this sandbox: then initialisation is over, even if the
/// runtime no longer knows the init containers.
///
/// One that is left of an earlier sandbox proves nothing: after a reboot, initialisation is done again.
fn any_app_began(pod: &Pod, runtime: &RuntimePod, sandbox: &Sandbox) -> bool {
    let newest = pod
        .app_containers()
        .iter()
        .filter_map(|c| runtime.newest(&c.name));
    newest.into_iter().any(|c| match c.state {
        ContainerState::Running => true,
        ContainerState::Created | ContainerState::Exited => c.sandbox == sandbox.id,
        ContainerState::Unknown => false,
    })
}

/// Whether any app container was ever created, in whatever sandbox.
pub fn any_app_created(pod: &Pod, runtime: &RuntimePod) -> bool {
    let newest = pod
        .app_containers()
        .iter()
        .filter_map(|c| runtime.newest(&c.name));
    newest
        .into_iter()
        .any(|c| c.state != ContainerState::Unknown)
}
