//! What the pods' area asks the device manager, whose actor lies in an area above it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kernel::{Recipient, Reply};
use logic_api::types::PodUid;
use logic_placement::devices::{ContainerDevices, DeviceCallError, PreferenceQuestion};
use logic_placement::topology::Assignment;

/// For a plugin's answer; longer than the device manager waits itself.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(120);

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

/// The way to the device manager; none on a node without one.
#[derive(Debug, Clone, Default)]
pub struct DevicePlugins(Option<Recipient<DeviceRequest>>);

impl DevicePlugins {
    pub fn new(manager: Recipient<DeviceRequest>) -> Self {
        DevicePlugins(Some(manager))
    }

    /// Asks each question; an answer that does not come is the plugin's word that it has none.
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
            let answer = match &self.0 {
                Some(manager) => manager.ask(PLUGIN_TIMEOUT, prefer).await,
                None => Ok(Err("there is no device manager".to_owned())),
            };
            answers.push((
                question,
                answer.unwrap_or_else(|error| Err(error.to_string())),
            ));
        }
        answers
    }

    /// Has a pod given its devices.
    ///
    /// # Errors
    ///
    /// A plugin does not give them, or there is no answer.
    pub(crate) async fn allocate(
        &self,
        pod: &PodUid,
        assignment: Arc<Assignment>,
    ) -> Result<(), DeviceCallError> {
        let allocate = |reply| DeviceRequest::Allocate {
            pod: pod.clone(),
            assignment,
            reply,
        };
        match &self.0 {
            Some(manager) => manager
                .ask(PLUGIN_TIMEOUT, allocate)
                .await
                .unwrap_or_else(|error| Err(DeviceCallError::Failed(error.to_string()))),
            None => Ok(()),
        }
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
        match &self.0 {
            Some(manager) => manager
                .ask(PLUGIN_TIMEOUT, pre_start)
                .await
                .unwrap_or_else(|error| Err(DeviceCallError::Failed(error.to_string()))),
            None => Ok(None),
        }
    }

    /// Frees the devices of a pod that has ended.
    pub(crate) fn forget(&self, pod: &PodUid) {
        let forget = DeviceRequest::Forget { pod: pod.clone() };
        if let Some(Err(full)) = self.0.as_ref().map(|manager| manager.tell(forget)) {
            tracing::warn!(%pod, "its devices are free later: {full}");
        }
    }
}
