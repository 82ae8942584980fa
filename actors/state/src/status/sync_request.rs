//! One round trip to the API server: a pod's status is patched, and a pod that is over deleted.

use std::sync::Arc;
use std::time::Duration;

use api_client::{ApiError, ByValue};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use logic_api::pod::PodView;
use logic_api::types::PodUid;
use logic_pods::status::status_patch::{self, Containers};
use serde_json::Value;

use super::entry::PodOwnership;

/// A request that takes longer is as good as unanswered.
const TIMEOUT: Duration = Duration::from_secs(30);

/// One pod's status to patch.
#[derive(Debug)]
pub(super) struct SyncRequest {
    /// The pod's own UID; its object may be a mirror.
    pub(super) uid: PodUid,
    pub(super) version: u64,
    /// The object as it was last seen.
    pub(super) pod: Arc<Pod>,
    pub(super) ours: Option<Arc<PodStatus>>,
    pub(super) life: PodOwnership,
}

/// The result of a request.
#[derive(Debug)]
pub struct SyncReport {
    pub(super) sync_request: SyncRequest,
    pub(super) result: Result<SyncOutcome, ApiError>,
}

#[derive(Debug)]
pub(super) enum SyncOutcome {
    /// The API shows our status; the object, if it had to be written.
    Told(Option<Arc<Pod>>),
    Deleted,
    /// There is no such object any more, or another one of its name.
    Gone,
}

impl SyncRequest {
    /// Whether the API shows all that it should.
    pub(super) fn is_idle(&self) -> bool {
        self.patch().is_none() && !self.may_delete()
    }

    pub(super) async fn run(mut self, kube: kube::Client) -> SyncReport {
        let api: Api<ByValue<Pod>> = Api::namespaced(kube, self.pod.namespace());
        let mut result = self.attempt(&api).await;
        if let Err(ApiError::Conflict { .. }) = result {
            result = match self.look_again(&api).await {
                Ok(Some(pod)) => {
                    self.pod = pod;
                    self.attempt(&api).await
                }
                Ok(None) => Ok(SyncOutcome::Gone),
                Err(trouble) => Err(trouble),
            };
        }
        if let Err(ApiError::NotFound { .. }) = result {
            result = Ok(SyncOutcome::Gone);
        }
        SyncReport {
            sync_request: self,
            result,
        }
    }

    pub(super) fn patch(&self) -> Option<Value> {
        let (ours, none) = (self.ours.as_ref()?, PodStatus::default());
        let now = kernel::timestamp();
        let merged = status_patch::merge(now, &self.pod, ours, Containers::of(ours));
        let shown = self.pod.status.as_ref().unwrap_or(&none);
        status_patch::patch(&self.pod.uid().to_string(), shown, &merged)
    }

    fn may_delete(&self) -> bool {
        self.life == PodOwnership::Over && status_patch::may_be_deleted(&self.pod)
    }

    async fn attempt(&mut self, api: &Api<ByValue<Pod>>) -> Result<SyncOutcome, ApiError> {
        let mut wrote = None;
        if let Some(patch) = self.patch() {
            let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
            let ByValue(pod) = answered(api.patch_status(self.pod.name(), &params, &patch)).await?;
            self.pod = Arc::new(slim(pod));
            wrote = Some(Arc::clone(&self.pod));
        }
        if !self.may_delete() {
            return Ok(SyncOutcome::Told(wrote));
        }
        let uid = Some(self.pod.uid().to_string());
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid,
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        answered(api.delete(self.pod.name(), &params)).await?;
        Ok(SyncOutcome::Deleted)
    }

    /// The object as it is now; none if it has been replaced.
    async fn look_again(&self, api: &Api<ByValue<Pod>>) -> Result<Option<Arc<Pod>>, ApiError> {
        let ByValue(pod) = answered(api.get(self.pod.name())).await?;
        Ok((pod.uid() == self.pod.uid()).then(|| Arc::new(slim(pod))))
    }
}

async fn answered<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, ApiError> {
    match tokio::time::timeout(TIMEOUT, request).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(ApiError::Unreachable {
            message: format!("no answer within {TIMEOUT:?}"),
        }),
    }
}

/// The fields that the next patch needs: the answer is kept until the watch has shown it.
fn slim(mut pod: Pod) -> Pod {
    pod.metadata.managed_fields = None;
    pod
}
