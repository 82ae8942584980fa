//! What dynamic resources need of the API server: ResourceClaims read, the node's ResourceSlices deleted.
//!
//! Upstream: cm/dra/manager.go (`PrepareResources`, by a request of its own for each claim) and
//! cm/dra/plugin/dra_plugin_manager.go (`wipeResourceSlices`), 1.36.

use std::time::Duration;

use api_client::{ApiClient, ApiError, ByValue, RequestLane};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::Api;
use kube::api::{DeleteParams, ListParams};

/// For the answer to one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Reads a ResourceClaim as the API has it now.
///
/// # Errors
/// There is none of that name, the node may not read it, or there is no answer.
pub async fn resource_claim(
    client: &ApiClient,
    namespace: &str,
    name: &str,
) -> Result<ResourceClaim, ApiError> {
    let api: Api<ByValue<ResourceClaim>> =
        Api::namespaced(client.kube(RequestLane::Work), namespace);
    let answer = tokio::time::timeout(TIMEOUT, api.get(name)).await;
    Ok(answer.map_err(|_| late())??.0)
}

/// Deletes the ResourceSlices that a field selector takes, such as `spec.nodeName=worker`.
///
/// # Errors
/// The node may not delete them, or there is no answer.
pub async fn delete_resource_slices(
    client: &ApiClient,
    field_selector: &str,
) -> Result<(), ApiError> {
    let api: Api<ByValue<ResourceSlice>> = Api::all(client.kube(RequestLane::Work));
    let selected = ListParams::default().fields(field_selector);
    let parameters = DeleteParams::default();
    let deletion = api.delete_collection(&parameters, &selected);
    let answer = tokio::time::timeout(TIMEOUT, deletion).await;
    drop(answer.map_err(|_| late())??);
    Ok(())
}

fn late() -> ApiError {
    ApiError::Unreachable {
        message: format!("no answer within {TIMEOUT:?}"),
    }
}
