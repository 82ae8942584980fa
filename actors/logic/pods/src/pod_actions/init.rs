//! How far a pod's initialisation has come, and what its init containers and sidecars need (upstream's
//! `computeInitContainerActions`).
//!
//! The list is read from its end, because ended init containers may have been removed meanwhile: the
//! last one that left a trace tells how far the pod got. What stands before it is initialised; of that,
//! sidecars are kept alive.

use k8s_openapi::api::core::v1::{self as core, Pod};
use logic_api::pod::{PodView, is_sidecar};
use logic_api::types::{ContainerState, ProbeResult, RuntimeContainer, RuntimePod, RuntimeSandbox};

use super::PodObservation;
use super::rules::{restarts_when_killed, should_start};
use super::running::{ContainerAction, RestartReason, RunningContainer};

/// A sidecar's defects once it has started, in the order in which upstream asks.
const DEFECTS: &[RestartReason] = &[
    RestartReason::Changed,
    RestartReason::Liveness,
    RestartReason::Resize,
];

/// Where initialisation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InitProgress<'a> {
    Done,
    UnderWay,
    /// This one failed for good, and the pod with it.
    Failed(&'a str),
}

/// What was found.
#[derive(Debug)]
pub(super) struct Initialisation<'a> {
    pub(super) progress: InitProgress<'a>,
    /// In the order of the list; none where it failed.
    pub(super) needs: Vec<ContainerAction<'a>>,
    /// The container that everything else waits for, and why.
    pub(super) awaited: Option<(&'a str, &'static str)>,
}

pub(super) fn init_actions<'a>(
    pod: &'a Pod,
    observed: &PodObservation<'a>,
    sandbox: &RuntimeSandbox,
) -> Initialisation<'a> {
    let inits = pod.init_containers();
    let began = inits.is_empty() || any_app_began(pod, observed.runtime, sandbox);
    let mut reading = InitScan {
        pod,
        observed,
        inits,
        seen: began,
        progress: if began {
            InitProgress::Done
        } else {
            InitProgress::UnderWay
        },
        awaited: None,
    };
    let mut needs = Vec::new();
    for index in (0..inits.len()).rev() {
        needs.push(reading.container(index));
        if matches!(reading.progress, InitProgress::Failed(_)) {
            needs.clear();
            break;
        }
    }
    if !reading.seen {
        needs.push(
            inits
                .first()
                .map(ContainerAction::Start)
                .into_iter()
                .collect(),
        );
    }
    Initialisation {
        progress: reading.progress,
        needs: needs.into_iter().rev().flatten().collect(),
        awaited: reading.awaited,
    }
}

/// The list while it is read from its end.
struct InitScan<'a, 'o> {
    pod: &'a Pod,
    observed: &'o PodObservation<'a>,
    inits: &'a [core::Container],
    /// A later container left a trace: what comes now has been initialised before.
    seen: bool,
    progress: InitProgress<'a>,
    awaited: Option<(&'a str, &'static str)>,
}

impl<'a> InitScan<'a, '_> {
    fn container(&mut self, index: usize) -> Vec<ContainerAction<'a>> {
        let spec = &self.inits[index];
        let sidecar = is_sidecar(spec);
        let Some(newest) = self.observed.runtime.newest(&spec.name) else {
            let lost = self.seen && sidecar;
            return lost
                .then_some(ContainerAction::Start(spec))
                .into_iter()
                .collect();
        };
        if self.seen && !sidecar {
            return Vec::new();
        }
        let needs = match newest.state {
            // Its start was not finished.
            _ if newest.never_ran() => vec![ContainerAction::Start(spec)],
            ContainerState::Created => vec![ContainerAction::Start(spec)],
            ContainerState::Running if sidecar => self.running_sidecar(index, newest),
            ContainerState::Running => self.running_init(spec, newest),
            ContainerState::Exited | ContainerState::Unknown if sidecar => {
                vec![ContainerAction::Start(spec)]
            }
            ContainerState::Exited | ContainerState::Unknown => self.ended_init(index, newest),
        };
        self.seen = true;
        needs
    }

    fn running_init(
        &mut self,
        spec: &'a core::Container,
        newest: &'a RuntimeContainer,
    ) -> Vec<ContainerAction<'a>> {
        let running = RunningContainer::new(self.pod, (spec, newest), self.observed);
        if let Some(defect) = running.first(&[RestartReason::Resize]) {
            return self.replace(&running, defect);
        }
        self.awaited = Some((&spec.name, "the init container is still running"));
        running.resize().into_iter().collect()
    }

    /// The next container waits until a sidecar has started, but not for its liveness.
    fn running_sidecar(
        &mut self,
        index: usize,
        newest: &'a RuntimeContainer,
    ) -> Vec<ContainerAction<'a>> {
        let running = RunningContainer::new(self.pod, (&self.inits[index], newest), self.observed);
        if let Some(defect) = running.first(&[RestartReason::Startup]) {
            return self.replace(&running, defect);
        }
        if running.health.startup != ProbeResult::Success {
            if !self.seen {
                let name = running.spec.name.as_str();
                self.awaited = Some((name, "the sidecar has not passed its startup probe yet"));
            }
            return Vec::new();
        }
        let mut needs = match running.first(DEFECTS) {
            Some(defect) => self.replace(&running, defect),
            None => running.resize().into_iter().collect(),
        };
        needs.extend(self.initialised(index));
        needs
    }

    fn ended_init(&mut self, index: usize, newest: &RuntimeContainer) -> Vec<ContainerAction<'a>> {
        let spec = &self.inits[index];
        if !failed(newest) {
            return self.initialised(index).into_iter().collect();
        }
        let again = match newest.state {
            ContainerState::Exited => should_start(self.pod, spec, Some(newest)),
            ContainerState::Created | ContainerState::Running | ContainerState::Unknown => {
                restarts_when_killed(self.pod, spec)
            }
        };
        if !again {
            self.progress = InitProgress::Failed(&spec.name);
            return Vec::new();
        }
        vec![ContainerAction::Start(spec)]
    }

    /// The last one ends initialisation; after any other comes the next, if it has not come before.
    fn initialised(&mut self, index: usize) -> Option<ContainerAction<'a>> {
        let next = self.inits.get(index + 1);
        if next.is_none() {
            self.progress = InitProgress::Done;
        }
        next.filter(|_| !self.seen).map(ContainerAction::Start)
    }

    fn replace(
        &self,
        running: &RunningContainer<'a>,
        defect: RestartReason,
    ) -> Vec<ContainerAction<'a>> {
        let subject = match defect {
            RestartReason::Resize => "Container",
            RestartReason::Changed | RestartReason::Liveness | RestartReason::Startup => {
                "Init container"
            }
        };
        let message = format!("{subject} {} {}", running.spec.name, defect.text());
        vec![
            running.kill(defect, message),
            ContainerAction::Start(running.spec),
        ]
    }
}

/// An init container killed for memory has failed, whatever code it exited with.
fn failed(container: &RuntimeContainer) -> bool {
    container.failed() || container.reason == "OOMKilled"
}

/// Whether any app container has come to be in this sandbox: then initialisation is over, even if the
/// runtime no longer knows the init containers.
///
/// One that is left of an earlier sandbox proves nothing: after a reboot, initialisation is done again.
fn any_app_began(pod: &Pod, runtime: &RuntimePod, sandbox: &RuntimeSandbox) -> bool {
    newest_apps(pod, runtime).any(|c| match c.state {
        ContainerState::Running => true,
        ContainerState::Created | ContainerState::Exited => c.sandbox == sandbox.id,
        ContainerState::Unknown => false,
    })
}

/// Whether any app container was ever created, in whatever sandbox.
pub(super) fn any_app_created(pod: &Pod, runtime: &RuntimePod) -> bool {
    newest_apps(pod, runtime).any(|c| c.state != ContainerState::Unknown)
}

fn newest_apps<'r>(
    pod: &Pod,
    runtime: &'r RuntimePod,
) -> impl Iterator<Item = &'r RuntimeContainer> {
    let apps = pod.app_containers().iter();
    apps.filter_map(|c| runtime.newest(&c.name))
}
