//! Pods for tests, as manifests.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

/// A pod from YAML, with a UID equal to its name.
pub fn pod(yaml: &str) -> Arc<Pod> {
    let mut pod: Pod = serde_saphyr::from_str(yaml).expect("a manifest of a pod");
    pod.metadata.uid = pod.metadata.name.clone();
    pod.metadata
        .namespace
        .get_or_insert_with(|| "default".to_owned());
    Arc::new(pod)
}
