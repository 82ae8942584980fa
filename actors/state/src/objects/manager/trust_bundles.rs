//! ClusterTrustBundles, in the version that the API server has.
//!
//! Upstream: `ensureManagerSet` of pkg/kubelet/clustertrustbundle/clustertrustbundle_manager.go (1.36), which asks for
//! the versions; here the watch of the newer one is answered with 404 where there is only the older one.

use api_client::{ApiError, ObjectSelector};
use futures_util::{StreamExt, stream};
use k8s_openapi::api::certificates::{v1alpha1, v1beta1};
use kube::Api;
use logic_api::objects::ApiObject;

use super::fetch_request::FetchStream;
use super::fetching::{followed, whole};

/// Those of v1beta1, or of v1alpha1 where the server does not serve the former.
pub(super) fn watch(api: kube::Client) -> FetchStream {
    let all = ObjectSelector::default;
    let newer = followed(Api::all(api.clone()), all(), whole(ApiObject::TrustBundle));
    let older = followed(Api::all(api), all(), |bundle| {
        whole(ApiObject::TrustBundle)(newer_version(bundle))
    });
    stream::once(choose(newer, older)).flatten().boxed()
}

/// Where neither is served, the newer one is tried on, and its refusal is told.
async fn choose(mut newer: FetchStream, mut older: FetchStream) -> FetchStream {
    match newer.next().await {
        Some(Err(refusal @ ApiError::NotFound { .. })) => match older.next().await {
            Some(Ok(first)) => stream::iter([Ok(first)]).chain(older).boxed(),
            Some(Err(_)) | None => stream::iter([Err(refusal)]).chain(newer).boxed(),
        },
        Some(first) => stream::iter([first]).chain(newer).boxed(),
        None => newer,
    }
}

fn newer_version(bundle: v1alpha1::ClusterTrustBundle) -> v1beta1::ClusterTrustBundle {
    v1beta1::ClusterTrustBundle {
        metadata: bundle.metadata,
        spec: v1beta1::ClusterTrustBundleSpec {
            signer_name: bundle.spec.signer_name,
            trust_bundle: bundle.spec.trust_bundle,
        },
    }
}
