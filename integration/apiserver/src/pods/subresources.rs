//! binding, eviction, resize.

use serde_json::{Value, json};

use crate::clock;
use crate::endpoints::answer::StatusError;
use crate::endpoints::request_info::RequestInfo;
use crate::kinds::core;
use crate::server::state::State;
use crate::store::VersionedStore;
use crate::verbs::{DeleteOptions, delete_object};

pub(crate) fn bind(
    state: &State,
    call: &RequestInfo,
    binding: &Value,
) -> Result<Value, StatusError> {
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    bind_to(&mut state.store(), (call.namespace(), call.name()), node)?;
    Ok(success())
}

/// Gives a pod to a node.
pub(super) fn bind_to(
    store: &mut VersionedStore,
    (namespace, name): (&str, &str),
    node: &str,
) -> Result<(), StatusError> {
    let pods = core("pods");
    let Some(pod) = store.get(pods, namespace, name) else {
        return Err(StatusError::not_found(pods, name));
    };
    if pod["metadata"].get("deletionTimestamp").is_some() {
        return Err(StatusError::conflict(
            pods,
            name,
            &format!("pod {name} is being deleted, cannot be assigned to a host"),
        ));
    }
    if let Some(had) = pod["spec"]["nodeName"]
        .as_str()
        .filter(|node| !node.is_empty())
    {
        return Err(StatusError::conflict(
            pods,
            name,
            &format!("pod {name} is already assigned to node \"{had}\""),
        ));
    }
    let mut pod = Value::clone(&pod);
    pod["spec"]["nodeName"] = json!(node);
    let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": clock::now_text()});
    match pod["status"]["conditions"].as_array_mut() {
        Some(conditions) => {
            conditions.retain(|known| known["type"] != "PodScheduled");
            conditions.push(condition);
        }
        None => pod["status"]["conditions"] = json!([condition]),
    }
    store.put(pods, pod);
    Ok(())
}

/// Deletes as an eviction does; there are no budgets for disruptions here.
pub(crate) fn evict(
    state: &State,
    call: &RequestInfo,
    eviction: &Value,
) -> Result<Value, StatusError> {
    let mut terms = DeleteOptions::of(&eviction["deleteOptions"]);
    terms.dry_run |= call.dry_run();
    let mut store = state.store();
    let pods = core("pods");
    let Some(pod) = store.get(pods, call.namespace(), call.name()) else {
        return Err(StatusError::not_found(pods, call.name()));
    };
    let waits = !matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed" | "Pending")
    );
    if !terms.dry_run && waits && pod["metadata"].get("deletionTimestamp").is_none() {
        let mut pod = Value::clone(&pod);
        let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
            "lastTransitionTime": clock::now_text()});
        if let Some(conditions) = pod["status"]["conditions"].as_array_mut() {
            conditions.retain(|known| known["type"] != "DisruptionTarget");
            conditions.push(condition);
        } else {
            pod["status"]["conditions"] = json!([condition]);
        }
        store.put(pods, pod);
    }
    delete_object(&mut store, pods, (call.namespace(), call.name()), &terms)?;
    Ok(success())
}

fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

/// Returns the pod with only the resources of its containers changed.
pub(crate) fn resized(before: &Value, wanted: &Value) -> Value {
    let mut pod = before.clone();
    for list in ["containers", "initContainers"] {
        for container in pod["spec"]
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let same = |other: &&Value| other["name"] == container["name"];
            let Some(new) = wanted["spec"][list]
                .as_array()
                .into_iter()
                .flatten()
                .find(same)
            else {
                continue;
            };
            for field in ["resources", "resizePolicy"] {
                if let Some(value) = new.get(field) {
                    container[field] = value.clone();
                }
            }
        }
    }
    if let Some(resources) = wanted["spec"].get("resources") {
        pod["spec"]["resources"] = resources.clone();
    }
    pod
}
