//! PodCertificateRequests: submitted to the API server, and watched there.

use api_client::{ApiError, ByValue, ObjectEvent, ObjectSelector, watch};
use futures_util::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1beta1::{PodCertificateRequest, PodCertificateRequestSpec};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use logic_api::objects::{PendingCertificateRequest, PodCertificateSpec};

use super::fetch_request::{FetchStream, ResponseContent};

/// The certificate to request, and the pod and node that request it.
pub(super) struct CertificateOrder {
    pub(super) wanted: PodCertificateSpec,
    pub(super) asked: PendingCertificateRequest,
    pub(super) node_name: String,
    /// None until the node's object is known.
    pub(super) node_uid: Option<String>,
}

/// Creates the request, or finds the one that exists already.
pub(super) async fn submit(
    api: kube::Client,
    order: CertificateOrder,
) -> Result<PodCertificateRequest, ApiError> {
    let namespace = order.wanted.namespace.clone();
    let accounts: Api<ServiceAccount> = Api::namespaced(api.clone(), &namespace);
    let account = accounts.get(&order.wanted.service_account).await?;
    let node_uid = match &order.node_uid {
        Some(uid) => uid.clone(),
        None => {
            let nodes: Api<ByValue<Node>> = Api::all(api.clone());
            let node = nodes.get(&order.node_name).await?;
            node.0.metadata.uid.unwrap_or_default()
        }
    };
    let request = order.request(account.metadata.uid.unwrap_or_default(), node_uid);
    let requests: Api<PodCertificateRequest> = Api::namespaced(api, &namespace);
    let made = requests.create(&PostParams::default(), &request).await;
    match made.map_err(ApiError::from) {
        Err(ApiError::Exists { message }) => {
            let found = requests.get(&order.asked.name).await?;
            match found.spec.stub_pkc_s10_request == request.spec.stub_pkc_s10_request {
                true => Ok(found),
                false => Err(ApiError::Exists { message }),
            }
        }
        made => made,
    }
}

impl CertificateOrder {
    fn request(&self, account_uid: String, node_uid: String) -> PodCertificateRequest {
        let wanted = &self.wanted;
        let annotations = wanted.user_annotations.iter().cloned().collect();
        PodCertificateRequest {
            metadata: ObjectMeta {
                name: Some(self.asked.name.clone()),
                namespace: Some(wanted.namespace.clone()),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Pod".to_owned(),
                    name: wanted.pod_name.clone(),
                    uid: wanted.pod_uid.clone(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            spec: PodCertificateRequestSpec {
                signer_name: wanted.signer_name.clone(),
                pod_name: wanted.pod_name.clone(),
                pod_uid: wanted.pod_uid.clone(),
                service_account_name: wanted.service_account.clone(),
                service_account_uid: account_uid,
                node_name: self.node_name.clone(),
                node_uid,
                max_expiration_seconds: wanted.max_expiration_seconds,
                stub_pkc_s10_request: ByteString(self.asked.request.clone()),
                unverified_user_annotations: Some(annotations)
                    .filter(|_| !wanted.user_annotations.is_empty()),
                ..PodCertificateRequestSpec::default()
            },
            status: None,
        }
    }
}

/// Watches a request for as long as the stream is held. A node may watch its own only, by this selection.
pub(super) fn follow(
    api: kube::Client,
    wanted: &PodCertificateSpec,
    (name, node_name): (&str, &str),
) -> FetchStream {
    let requests: Api<ByValue<PodCertificateRequest>> = Api::namespaced(api, &wanted.namespace);
    let fields = format!("metadata.name={name},spec.nodeName={node_name}");
    let seen = |event: ObjectEvent<PodCertificateRequest>| match event {
        ObjectEvent::Listed(all) => all.into_iter().next(),
        ObjectEvent::Applied(request) => Some(request),
        ObjectEvent::Deleted(_) => None,
    };
    let steps = watch(requests, ObjectSelector::fields(fields));
    let said = move |step: Result<ObjectEvent<PodCertificateRequest>, ApiError>| {
        step.map(|event| ResponseContent::Request(seen(event).map(Box::new)))
    };
    steps.map(said).boxed()
}
