//! Dead containers and sandboxes removed by the node's collector, when no worker does.

use std::time::Duration;

use clients::runtime::{RuntimeClient, RuntimeError};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use logic_api::types::{RuntimePod, SandboxId};
use logic_resources::container_gc::DeadContainer;
use logic_resources::node::policy::NodePolicy;

use crate::worker;

/// A container of unknown state is given upstream's shortest grace.
const UNKNOWN_GRACE: Duration = Duration::from_secs(2);

/// Removes a container, its log and the link to it; one that may still run is stopped before.
///
/// # Errors
/// Those of the runtime; then its log stays as well.
pub async fn remove_container(
    runtime: &RuntimeClient,
    node: &NodePolicy,
    dead: DeadContainer<'_>,
) -> Result<(), RuntimeError> {
    let id = &dead.container.id;
    if dead.is_unknown() {
        runtime.stop_container(id, UNKNOWN_GRACE).await?;
    }
    runtime.remove_container(id).await?;
    worker::remove_log(&outline(dead.pod), &dead.container.instance(), node).await;
    Ok(())
}

/// Removes a sandbox; only stopping releases its addresses, even if it is not ready.
///
/// # Errors
/// Those of the runtime.
pub async fn remove_sandbox(runtime: &RuntimeClient, id: &SandboxId) -> Result<(), RuntimeError> {
    runtime.stop_sandbox(id).await?;
    runtime.remove_sandbox(id).await
}

/// What names a pod's logs.
fn outline(pod: &RuntimePod) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            uid: Some(pod.uid.as_str().to_owned()),
            ..ObjectMeta::default()
        },
        ..Pod::default()
    }
}
