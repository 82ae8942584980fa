//! One client's watch: the pods that there are, then what changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::vec;

use futures_util::{Stream, stream};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use logic_api::pod::PodView;
use logic_api::types::PodUid;
use metrics::pods::pods_api::DROPPED_EVENTS;
use proto::pods::{EventType, WatchPodsEvent};
use state::status::{StatusChange, StatusWatch};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tonic::Status;

use super::service::{PodSources, encode};

/// What one client has been told, and what it is told next.
#[derive(Debug)]
pub(super) struct PodWatch {
    sources: PodSources,

    /// The pods that there were when the watch began, with the statuses at that time.
    first: vec::IntoIter<Arc<Pod>>,
    statuses: BTreeMap<PodUid, Arc<PodStatus>>,
    stage: WatchStage,
    changes: Receiver<StatusChange>,
    /// The pods that the client knows of: their metadata as a deleted pod shows them.
    known: BTreeMap<PodUid, ObjectMeta>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchStage {
    InitialSync,
    Changes,
    /// The client has been told why.
    Ended,
}

impl PodWatch {
    /// `pods` are asked for after the changes have begun.
    pub(super) fn new(sources: PodSources, pods: Vec<Arc<Pod>>, watch: StatusWatch) -> Self {
        PodWatch {
            sources,
            first: pods.into_iter(),
            statuses: watch.statuses,
            stage: WatchStage::InitialSync,
            changes: watch.changes,
            known: BTreeMap::new(),
        }
    }

    /// The events for the client, and at the end the reason. Each is made when the client takes it. `place` is the watch's
    /// among all watches.
    pub(super) fn events(
        self,
        place: OwnedSemaphorePermit,
    ) -> impl Stream<Item = Result<WatchPodsEvent, Status>> + use<> {
        stream::unfold((self, place), |(mut watch, place)| async move {
            if watch.stage == WatchStage::Ended {
                return None;
            }
            let event = watch.next().await;
            if event.is_err() {
                watch.stage = WatchStage::Ended;
            }
            Some((event, (watch, place)))
        })
    }

    async fn next(&mut self) -> Result<WatchPodsEvent, Status> {
        if let Some(pod) = self.first.next() {
            let status = self.statuses.remove(&pod.uid());
            return self.shown(&pod, status.as_deref());
        }
        if self.stage == WatchStage::InitialSync {
            self.stage = WatchStage::Changes;
            self.statuses.clear();
            return Ok(event(EventType::InitialSyncComplete, Vec::new()));
        }
        loop {
            let change = self.changes.recv().await.map_err(dropped)?;
            let event = match change {
                StatusChange::Changed { uid, status } => self.changed(&uid, &status).await?,
                StatusChange::Removed { uid } => self.removed(&uid)?,
            };
            if let Some(event) = event {
                return Ok(event);
            }
        }
    }

    /// A pod that is gone already is told as removed soon; one that the client does not know and that is being deleted is
    /// not new, as upstream.
    async fn changed(
        &mut self,
        uid: &PodUid,
        status: &PodStatus,
    ) -> Result<Option<WatchPodsEvent>, Status> {
        let Some(pod) = self.sources.pod(uid).await? else {
            return Ok(None);
        };
        if !self.known.contains_key(uid) && pod.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        self.shown(&pod, Some(status)).map(Some)
    }

    fn removed(&mut self, uid: &PodUid) -> Result<Option<WatchPodsEvent>, Status> {
        let Some(metadata) = self.known.remove(uid) else {
            return Ok(None);
        };
        let pod = Pod {
            metadata,
            ..Pod::default()
        };
        let bytes = counted(encode(&pod, None))?;
        Ok(Some(event(EventType::Deleted, bytes)))
    }

    fn shown(&mut self, pod: &Pod, status: Option<&PodStatus>) -> Result<WatchPodsEvent, Status> {
        let bytes = counted(encode(pod, status))?;
        let metadata = ObjectMeta {
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectMeta::default()
        };
        let kind = match self.known.insert(pod.uid(), metadata) {
            Some(_) => EventType::Modified,
            None => EventType::Added,
        };
        Ok(event(kind, bytes))
    }
}

fn event(kind: EventType, pod: Vec<u8>) -> WatchPodsEvent {
    WatchPodsEvent {
        r#type: kind.into(),
        pod,
    }
}

/// Counts an event that cannot be sent.
fn counted(bytes: Result<Vec<u8>, Status>) -> Result<Vec<u8>, Status> {
    bytes.inspect_err(|_| DROPPED_EVENTS.inc())
}

/// Why no further change comes: the client did not keep up, or the status manager has ended.
fn dropped(error: RecvError) -> Status {
    match error {
        RecvError::Lagged(missed) => {
            tracing::info!(
                missed,
                "a client that watches pods does not keep up, and is dropped"
            );
            DROPPED_EVENTS.inc();
            Status::resource_exhausted("watch client channel closed")
        }
        RecvError::Closed => Status::unavailable("the status manager starts again: watch again"),
    }
}
