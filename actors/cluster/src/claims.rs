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

#[cfg(test)]
mod tests {
    use api_client::plain;
    use apiserver::{Server, ServerOptions};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_claim_is_read_as_it_is_now() {
        let server = Server::start(ServerOptions::default()).await.unwrap();
        let client = plain(server.url().parse().unwrap());
        let absent = resource_claim(&client, "default", "gpu").await.unwrap_err();
        assert!(absent.to_string().contains("not found"), "{absent}");
        let claim = json!({ "metadata": { "name": "gpu" }, "spec": {} });
        let path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
        server.post(path, &claim).unwrap();
        let read = resource_claim(&client, "default", "gpu").await.unwrap();
        assert_eq!(read.metadata.name.as_deref(), Some("gpu"));
    }

    #[tokio::test]
    async fn slices_are_deleted_of_the_selected_node_and_driver_alone() {
        let server = Server::start(ServerOptions::default()).await.unwrap();
        let client = plain(server.url().parse().unwrap());
        let path = "/apis/resource.k8s.io/v1/resourceslices";
        for (name, node, driver) in [("a", "one", "x"), ("b", "one", "y"), ("c", "two", "x")] {
            let slice = json!({ "metadata": { "name": name }, "spec": { "nodeName": node, "driver": driver } });
            server.post(path, &slice).unwrap();
        }
        let left = || {
            let slices = server.list(path).unwrap().into_iter();
            let mut names: Vec<String> = slices
                .map(|slice| slice["metadata"]["name"].as_str().unwrap().to_owned())
                .collect();
            names.sort();
            names
        };
        let selector = "spec.nodeName=one,spec.driver=x";
        delete_resource_slices(&client, selector).await.unwrap();
        assert_eq!(left(), ["b", "c"]);
        delete_resource_slices(&client, "spec.nodeName=one")
            .await
            .unwrap();
        assert_eq!(left(), ["c"]);
    }
}
