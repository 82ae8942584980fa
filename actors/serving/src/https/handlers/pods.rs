//! The pods of the node, listed piece by piece: their text is never held as a whole.

use std::sync::Arc;

use futures_util::{Stream, stream};
use hyper::StatusCode;
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use logic_api::pod::PodView;
use serde::Serialize;

use super::{KubeletHandlers, failed};
use crate::http::{HandlerResponse, streamed, text};
use crate::https::route::ContainerTarget;
use crate::node::{KubeletHost, PodsWithStatuses};

/// A list is sent in pieces of about this many bytes.
const PIECE: usize = 32 * 1024;

impl<N: KubeletHost> KubeletHandlers<N> {
    pub(super) async fn pods(&self) -> Result<HandlerResponse, HandlerResponse> {
        let pods = self.node.pods().await.map_err(failed)?;
        Ok(streamed(list(pods)))
    }

    pub(super) async fn running_pods(&self) -> Result<HandlerResponse, HandlerResponse> {
        let pods = self.node.running_pods().await.map_err(failed)?;
        let pods = pods.into_iter().map(Arc::new).collect();
        Ok(streamed(list(PodsWithStatuses {
            pods,
            ..PodsWithStatuses::default()
        })))
    }

    /// Returns the pod that a request names.
    pub(super) async fn pod(&self, target: &ContainerTarget) -> Result<Arc<Pod>, HandlerResponse> {
        let pods = self.node.pods().await.map_err(failed)?;
        match pods.named(&target.namespace, &target.pod) {
            Some(pod) => Ok(Arc::clone(pod)),
            None => Err(text(StatusCode::NOT_FOUND, "pod does not exist")),
        }
    }
}

/// Whether a pod's spec has a container of this name, of whatever kind.
pub(super) fn has_container(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else {
        return false;
    };
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    pod.all_containers()
        .any(|(_, container)| container.name == name)
        || ephemeral.into_iter().any(|one| one.name == name)
}

/// A `v1 PodList`.
fn list(pods: PodsWithStatuses) -> impl Stream<Item = Bytes> + Send + 'static {
    let PodsWithStatuses { pods, statuses } = pods;
    let mut pods = pods.into_iter();
    let mut piece = Vec::with_capacity(PIECE);
    piece.extend_from_slice(br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#);
    let (mut first, mut ended) = (true, false);
    stream::iter(std::iter::from_fn(move || {
        while !ended && piece.len() < PIECE {
            let Some(pod) = pods.next() else {
                piece.extend_from_slice(b"]}\n");
                ended = true;
                break;
            };
            let before = piece.len();
            if !first {
                piece.push(b',');
            }
            let kept = statuses.get(&pod.uid()).map(Arc::as_ref);
            match serde_json::to_writer(&mut piece, &Item::new(&pod, kept)) {
                Ok(()) => first = false,
                Err(error) => {
                    tracing::error!("a pod has no JSON: {error}");
                    piece.truncate(before);
                }
            }
        }
        let full = std::mem::take(&mut piece);
        (!full.is_empty()).then(|| Bytes::from(full))
    }))
}

/// An item of a list has no kind and version of its own.
#[derive(Debug, Serialize)]
struct Item<'a> {
    metadata: &'a ObjectMeta,
    spec: Option<&'a PodSpec>,
    status: Option<&'a PodStatus>,
}

impl<'a> Item<'a> {
    /// The kept status is newer than that of the pod's definition.
    fn new(pod: &'a Pod, kept: Option<&'a PodStatus>) -> Self {
        Item {
            metadata: &pod.metadata,
            spec: pod.spec.as_ref(),
            status: kept.or(pod.status.as_ref()),
        }
    }
}
