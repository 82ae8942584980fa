//! App containers of an initialised pod: which start, which stay, which are replaced.

use k8s_openapi::api::core::v1::{self as core, Pod};
use logic_api::pod::PodView;
use logic_api::types::ContainerState;

use super::PodObservation;
use super::rules::{restarts_when_killed, should_start};
use super::running::{ContainerAction, RestartReason, RunningContainer};

/// In the order in which upstream asks.
const DEFECTS: &[RestartReason] = &[
    RestartReason::Changed,
    RestartReason::Liveness,
    RestartReason::Startup,
    RestartReason::Resize,
];

/// What the app containers need.
#[derive(Debug, Default)]
pub(super) struct Apps<'a> {
    pub(super) needs: Vec<ContainerAction<'a>>,
    /// How many run on or start; the pod is over when there is none.
    pub(super) alive: usize,
    /// Those that have ended for good.
    pub(super) finished: Vec<&'a str>,
}

pub(super) fn app_actions<'a>(pod: &'a Pod, observed: &PodObservation<'a>) -> Apps<'a> {
    let mut apps = Apps::default();
    for spec in pod.app_containers() {
        match observed.runtime.newest(&spec.name) {
            Some(newest) if newest.state == ContainerState::Running => {
                apps.running(pod, &RunningContainer::new(pod, (spec, newest), observed));
            }
            newest => apps.stopped(
                spec,
                should_start(pod, spec, newest) || observed.is_replaced(&spec.name),
            ),
        }
    }
    apps
}

impl<'a> Apps<'a> {
    fn running(&mut self, pod: &Pod, running: &RunningContainer<'a>) {
        let name = &running.spec.name;
        let Some(defect) = running.first(DEFECTS) else {
            self.alive += 1;
            self.needs.extend(running.resize());
            return;
        };
        let restarts = match defect {
            RestartReason::Changed | RestartReason::Resize => true,
            RestartReason::Liveness | RestartReason::Startup => {
                restarts_when_killed(pod, running.spec)
            }
        };
        let mut message = format!("Container {name} {}", defect.text());
        if restarts && defect != RestartReason::Resize {
            message.push_str(", will be restarted");
        }
        self.needs.push(running.kill(defect, message));
        if restarts {
            self.start(running.spec);
        }
    }

    fn stopped(&mut self, spec: &'a core::Container, starts: bool) {
        if starts {
            self.start(spec);
        } else {
            self.finished.push(&spec.name);
        }
    }

    fn start(&mut self, spec: &'a core::Container) {
        self.alive += 1;
        self.needs.push(ContainerAction::Start(spec));
    }
}
