//! A scheduler for a cluster of one node: whatever waits is bound to the first node that is ready and fits its
//! selector.

use std::sync::Arc;

use serde_json::{Value, json};

use super::subresources::bind_to;
use crate::clock;
use crate::kinds::core;
use crate::server::state::State;
use crate::store::VersionedStore;

/// Binds pods as long as the server runs; without the option it only waits.
pub(crate) async fn run(state: Arc<State>) {
    let pulse = state.store().pulse();
    loop {
        let change = pulse.notified();
        if state.options.scheduler {
            bind_all(&mut state.store());
        }
        change.await;
    }
}

fn bind_all(store: &mut VersionedStore) {
    let waiting: Vec<Arc<Value>> = store
        .list(core("pods"), "")
        .into_iter()
        .filter(|pod| waits(pod))
        .collect();
    if waiting.is_empty() {
        return;
    }
    let nodes: Vec<Arc<Value>> = store
        .list(core("nodes"), "")
        .into_iter()
        .filter(|node| is_ready(node))
        .collect();
    for pod in waiting {
        let field = |name: &str| pod["metadata"][name].as_str().unwrap_or_default();
        let Some(node) = nodes.iter().find(|node| fits(&pod, node)) else {
            continue;
        };
        let node = node["metadata"]["name"].as_str().unwrap_or_default();
        if bind_to(store, (field("namespace"), field("name")), node).is_ok() {
            bind(store, &pod, node);
        }
    }
}

/// Says whether a pod is to be bound.
pub(crate) fn waits(pod: &Value) -> bool {
    pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty)
        && pod["metadata"].get("deletionTimestamp").is_none()
        && pod["spec"]["schedulingGates"]
            .as_array()
            .is_none_or(Vec::is_empty)
}

/// Says whether a node takes pods.
pub(crate) fn is_ready(node: &Value) -> bool {
    let mut conditions = node["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        && node["spec"]["unschedulable"] != true
}

fn fits(pod: &Value, node: &Value) -> bool {
    let wanted = pod["spec"]["nodeSelector"]
        .as_object()
        .into_iter()
        .flatten();
    wanted
        .into_iter()
        .all(|(label, value)| node["metadata"]["labels"].get(label) == Some(value))
}

/// Records the event `Scheduled`, which `kubectl describe pod` shows.
fn bind(store: &mut VersionedStore, pod: &Value, node: &str) {
    let metadata = &pod["metadata"];
    let field = |name: &str| metadata[name].as_str().unwrap_or_default();
    let now = clock::now_text();
    let event = json!({
        "kind": "Event", "apiVersion": "v1",
        "metadata": {"name": format!("{}.{}", field("name"), store.suffix()), "namespace": field("namespace"), "uid": crate::verbs::uid(), "creationTimestamp": now},
        "involvedObject": {"kind": "Pod", "apiVersion": "v1", "namespace": field("namespace"), "name": field("name"), "uid": field("uid"), "resourceVersion": field("resourceVersion")},
        "reason": "Scheduled", "type": "Normal",
        "message": format!("Successfully assigned {}/{} to {node}", field("namespace"), field("name")),
        "source": {"component": "default-scheduler"}, "reportingComponent": "default-scheduler",
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    });
    store.put(core("events"), event);
}
