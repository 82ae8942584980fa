//! Requests to the API server about the node's object, each with a deadline.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use api_client::{ApiError, ByValue};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use logic_node::node_status::{self, NodeStatusPolicy, registration};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Makes the object, or puts the one that is there right.
pub(super) async fn register(
    api: &Api<ByValue<Node>>,
    policy: &NodeStatusPolicy,
    initial: &Node,
    within: Duration,
) -> Result<Node, ApiError> {
    match create(api, initial, within).await {
        Ok(node) => {
            metrics::node::startup::registered(kernel::wall());
            return Ok(node);
        }
        // A node that may not make the object may still have one.
        Err(ApiError::Exists { .. } | ApiError::Forbidden { .. }) => {}
        Err(trouble) => return Err(trouble),
    }
    let existing = get(api, &policy.name, within).await?;
    let Some(better) = registration::reconcile(policy, initial, &existing) else {
        return Ok(existing);
    };
    match node_status::patch(&existing, &better) {
        None => Ok(existing),
        Some(body) => patch(api, &policy.name, body, within).await,
    }
}

pub(super) async fn get<K>(
    api: &Api<ByValue<K>>,
    name: &str,
    within: Duration,
) -> Result<K, ApiError>
where
    K: Clone + DeserializeOwned + Debug,
{
    bounded(api.get(name), within).await
}

pub(super) async fn create<K>(
    api: &Api<ByValue<K>>,
    object: &K,
    within: Duration,
) -> Result<K, ApiError>
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let object = ByValue(object.clone());
    bounded(api.create(&PostParams::default(), &object), within).await
}

pub(super) async fn replace<K>(
    api: &Api<ByValue<K>>,
    name: &str,
    object: &K,
    within: Duration,
) -> Result<K, ApiError>
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let object = ByValue(object.clone());
    bounded(api.replace(name, &PostParams::default(), &object), within).await
}

/// A strategic merge patch of the status, with which a node's labels and annotations may go along.
pub(super) async fn patch<K>(
    api: &Api<ByValue<K>>,
    name: &str,
    body: Value,
    within: Duration,
) -> Result<K, ApiError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let (parameters, body) = (PatchParams::default(), Patch::Strategic(body));
    bounded(api.patch_status(name, &parameters, &body), within).await
}

async fn bounded<T>(
    call: impl Future<Output = Result<ByValue<T>, kube::Error>>,
    within: Duration,
) -> Result<T, ApiError> {
    match tokio::time::timeout(within, call).await {
        Ok(answer) => Ok(answer?.0),
        Err(_) => Err(ApiError::Unreachable {
            message: format!("no answer within {within:?}"),
        }),
    }
}
