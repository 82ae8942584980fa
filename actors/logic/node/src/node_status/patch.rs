//! The change of the node's object: a strategic merge patch of labels, annotations and status.
//!
//! Upstream: `PatchNodeStatus` of component-helpers node/util, `nodeStatusHasChanged` (1.36). Addresses are replaced
//! as a whole: the API's merge key would merge two of one type into one.

use k8s_openapi::api::core::v1::Node;
use logic_api::decode::strategic_patch::{difference, prune};
use serde_json::{Map, Value, json};

/// The patch; none where nothing differs.
pub fn patch(before: &Node, after: &Node) -> Option<Value> {
    let patch = difference(&parts(before), &parts(after), "");
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Whether there is more to send than when the conditions were looked at.
pub fn changed(before: &Node, after: &Node) -> bool {
    let (mut before, mut after) = (parts(before), parts(after));
    for parts in [&mut before, &mut after] {
        let conditions = parts
            .get_mut("status")
            .and_then(|s| s.get_mut("conditions"))
            .and_then(Value::as_array_mut);
        let Some(conditions) = conditions else {
            continue;
        };
        conditions.sort_by_cached_key(|condition| condition["type"].to_string());
        for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
            condition.remove("lastHeartbeatTime");
        }
    }
    !difference(&before, &after, "").is_empty()
}

/// What the agent writes of the object, as JSON and without what is empty.
fn parts(node: &Node) -> Map<String, Value> {
    let metadata = json!({
        "labels": node.metadata.labels,
        "annotations": node.metadata.annotations,
    });
    let status = serde_json::to_value(&node.status).unwrap_or_default();
    let mut parts = json!({"metadata": metadata, "status": status});
    prune(&mut parts);
    match parts {
        Value::Object(parts) => parts,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}
