//! What the pods' area asks the device manager, whose actor lies in an area above it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use kernel::{AskError, Recipient, Reply};
use logic_api::types::PodUid;
use logic_placement::devices::{
    ContainerDevices, DeviceCallError, PreferenceQuestion, update_health,
};
use logic_placement::topology::Assignment;
use state::assignments::Assignments;

/// For a plugin's answer; longer than the device manager waits itself.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(150);
/// Before a question is asked again that the device manager did not answer.
const RETRY_PERIOD: Duration = Duration::from_secs(1);

/// One question or fact for the device manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum DeviceRequest {
    /// Which of the devices does the plugin prefer?
    Prefer {
        question: PreferenceQuestion,
        reply: Reply<Result<BTreeSet<String>, String>>,
    },
    /// Have the plugins give a pod its devices, each where they have not already.
    Allocate {
        pod: PodUid,
        assignment: Arc<Assignment>,
        reply: Reply<Result<(), DeviceCallError>>,
    },
    /// Have the plugins prepare a container's devices; what does it get with them?
    PreStart {
        pod: PodUid,
        container: String,
        reply: Reply<Result<Option<ContainerDevices>, DeviceCallError>>,
    },
    /// The pod has ended: its devices are free.
    Forget { pod: PodUid },
}

/// Whether pods' statuses show the health of their devices (feature gate `ResourceHealthStatus`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HealthInStatus {
    #[default]
    Shown,
    Hidden,
}

/// The way to the device manager; none on a node without one.
#[derive(Debug, Clone, Default)]
pub struct DevicePlugins {
    manager: Option<Recipient<DeviceRequest>>,
    health: HealthInStatus,
    /// Pods that have ended and of which the device manager has not heard yet.
    unsent: Rc<RefCell<BTreeSet<PodUid>>>,
}

impl DevicePlugins {
    pub fn new(manager: Recipient<DeviceRequest>, health: HealthInStatus) -> Self {
        DevicePlugins {
            manager: Some(manager),
            health,
            unsent: Rc::default(),
        }
    }

    /// Puts the health of the devices that a pod's app containers have into its status; what others put there stays.
    pub(crate) fn show_health(
        &self,
        status: &mut PodStatus,
        pod: &PodUid,
        assignments: &Assignments,
    ) {
        let held = assignments.held();
        let (Some(held), HealthInStatus::Shown) = (held.get(pod), self.health) else {
            return;
        };
        let containers = status.container_statuses.iter_mut().flatten();
        update_health(containers, held, &assignments.devices());
    }

    /// Asks each question. What is not answered now is left out, after a pause: the same may be asked again.
    pub(crate) async fn prefer(
        &self,
        questions: Vec<PreferenceQuestion>,
    ) -> Vec<(PreferenceQuestion, Result<BTreeSet<String>, String>)> {
        let mut answers = Vec::new();
        for question in questions {
            let asked = question.clone();
            let prefer = |reply| DeviceRequest::Prefer {
                question: asked,
                reply,
            };
            match self.ask(prefer).await {
                Ok(Some(answer)) => answers.push((question, answer)),
                Ok(None) => answers.push((question, Err("there is no device manager".to_owned()))),
                Err(error) => {
                    tracing::warn!(resource = question.resource, "asked again: {error}");
                    tokio::time::sleep(RETRY_PERIOD).await;
                    break;
                }
            }
        }
        answers
    }

    /// Has a pod given its devices; the plugins' own refusal is the inner error.
    ///
    /// # Errors
    ///
    /// The device manager does not answer: the same may be asked again.
    pub(crate) async fn allocate(
        &self,
        pod: &PodUid,
        assignment: Arc<Assignment>,
    ) -> Result<Result<(), DeviceCallError>, AskError> {
        let allocate = |reply| DeviceRequest::Allocate {
            pod: pod.clone(),
            assignment,
            reply,
        };
        Ok(self.ask(allocate).await?.unwrap_or(Ok(())))
    }

    /// What a container gets with its devices, once they are prepared; none where it has none.
    ///
    /// # Errors
    ///
    /// A plugin does not prepare them, or there is no answer.
    pub(crate) async fn pre_start(
        &self,
        pod: &PodUid,
        container: &str,
    ) -> Result<Option<ContainerDevices>, DeviceCallError> {
        let pre_start = |reply| DeviceRequest::PreStart {
            pod: pod.clone(),
            container: container.to_owned(),
            reply,
        };
        let answer = self.ask(pre_start).await;
        let answer = answer.map_err(|error| DeviceCallError::Failed(error.to_string()))?;
        answer.unwrap_or(Ok(None))
    }

    /// Frees the devices of a pod that has ended.
    pub(crate) fn forget(&self, pod: &PodUid) {
        self.unsent.borrow_mut().insert(pod.clone());
        self.forget_unsent();
    }

    /// Tells of ended pods for which there was no room before.
    pub(crate) fn forget_unsent(&self) {
        let mut unsent = self.unsent.borrow_mut();
        match &self.manager {
            Some(manager) => unsent.retain(|pod| {
                let forget = DeviceRequest::Forget { pod: pod.clone() };
                let sent = manager.tell(forget);
                sent.inspect_err(|full| tracing::warn!(%pod, "its devices are free later: {full}"))
                    .is_err()
            }),
            None => unsent.clear(),
        }
    }

    /// None on a node without a device manager.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(Reply<T>) -> DeviceRequest,
    ) -> Result<Option<T>, AskError> {
        match &self.manager {
            Some(manager) => manager.ask(PLUGIN_TIMEOUT, question).await.map(Some),
            None => Ok(None),
        }
    }
}
