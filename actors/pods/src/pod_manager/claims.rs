//! What the pods' area asks the manager of dynamic resources, whose actor lies in an area above it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kernel::{AskError, Recipient, Reply, watch};
use logic_placement::claims::health::KnownClaims;
use logic_placement::claims::{ClaimsError, ContainerClaimError, has_claims};
use thiserror::Error;

/// For the jobs before it, the API server and the drivers; longer than each of them has.
const JOB_TIMEOUT: Duration = Duration::from_secs(150);
/// For an answer from memory.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// One question for the manager of dynamic resources.
#[derive(Debug, strum::IntoStaticStr)]
pub enum ClaimRequest {
    /// Have the drivers prepare the pod's claims, each where they have not already.
    Prepare {
        pod: Arc<Pod>,
        reply: Reply<Result<(), ClaimsError>>,
    },
    /// Have the drivers undo the pod's claims that no other pod uses.
    Unprepare {
        pod: Arc<Pod>,
        reply: Reply<Result<(), ClaimsError>>,
    },
    /// Which CDI devices does the container get of the pod's claims?
    Devices {
        pod: Arc<Pod>,
        container: String,
        reply: Reply<Result<Vec<String>, ContainerClaimError>>,
    },
}

/// Why a pod's claims are not as they should be.
#[derive(Debug, Error)]
pub enum ClaimRequestError {
    #[error(transparent)]
    Claims(#[from] ClaimsError),
    #[error(transparent)]
    Container(#[from] ContainerClaimError),
    #[error("the manager of dynamic resources: {0}")]
    Silent(#[from] AskError),
}

/// The way to the manager of dynamic resources; none on a node without one.
#[derive(Debug, Clone, Default)]
pub struct PodClaims(Option<ClaimManager>);

#[derive(Debug, Clone)]
struct ClaimManager {
    requests: Recipient<ClaimRequest>,
    /// What it knows, for statuses; none where they do not show devices.
    known: Option<watch::Receiver<Arc<KnownClaims>>>,
}

impl PodClaims {
    /// `known` is what the manager knows, where the pods' statuses are to show it.
    pub fn new(
        requests: Recipient<ClaimRequest>,
        known: Option<watch::Receiver<Arc<KnownClaims>>>,
    ) -> Self {
        PodClaims(Some(ClaimManager { requests, known }))
    }

    /// Puts the devices of the pod's claims into its status, with their health.
    pub(crate) fn show(&self, status: &mut PodStatus, pod: &Pod, now: Timestamp) {
        let manager = self.0.as_ref().filter(|_| has_claims(pod));
        let known = manager.and_then(|manager| manager.known.as_ref());
        if let (Some(known), Some(statuses)) = (known, &mut status.container_statuses) {
            known.borrow().show(statuses, pod, now);
        }
    }

    /// Has the pod's claims prepared.
    ///
    /// # Errors
    ///
    /// They are not, or it is not known whether they are: the same may be asked again.
    pub(crate) async fn prepare(&self, pod: &Arc<Pod>) -> Result<(), ClaimRequestError> {
        let Some(manager) = self.manager_of(pod) else {
            return Ok(());
        };
        let pod = pod.clone();
        let prepare = |reply| ClaimRequest::Prepare { pod, reply };
        Ok(manager.ask(JOB_TIMEOUT, prepare).await??)
    }

    /// Has the pod's claims undone that no other pod uses.
    ///
    /// # Errors
    ///
    /// They are not, or it is not known whether they are: the same may be asked again.
    pub(crate) async fn unprepare(&self, pod: &Arc<Pod>) -> Result<(), ClaimRequestError> {
        let Some(manager) = self.manager_of(pod) else {
            return Ok(());
        };
        let pod = pod.clone();
        let unprepare = |reply| ClaimRequest::Unprepare { pod, reply };
        Ok(manager.ask(JOB_TIMEOUT, unprepare).await??)
    }

    /// The CDI names of the devices that a container gets of its pod's claims.
    ///
    /// # Errors
    ///
    /// A claim of the container is not prepared, or there is no answer.
    pub(crate) async fn devices(
        &self,
        pod: &Arc<Pod>,
        container: &str,
    ) -> Result<Vec<String>, ClaimRequestError> {
        let Some(manager) = self.manager_of(pod) else {
            return Ok(Vec::new());
        };
        let (pod, container) = (pod.clone(), container.to_owned());
        let devices = |reply| ClaimRequest::Devices {
            pod,
            container,
            reply,
        };
        Ok(manager.ask(QUERY_TIMEOUT, devices).await??)
    }

    /// Whether anything may have to be prepared or undone for the pod.
    pub(crate) fn concerns(&self, pod: &Pod) -> bool {
        self.manager_of(pod).is_some()
    }

    /// None where the pod has no claim.
    fn manager_of(&self, pod: &Pod) -> Option<&Recipient<ClaimRequest>> {
        let manager = self.0.as_ref().filter(|_| has_claims(pod))?;
        Some(&manager.requests)
    }
}
