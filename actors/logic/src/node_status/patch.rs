//! What is sent of an object that is to be another one: a strategic merge patch of labels, annotations and status.
//!
//! Upstream: `PatchNodeStatus` of component-helpers node/util, `nodeStatusHasChanged` (1.36). Addresses are replaced as
//! a whole: the API's own word for them would merge two of one type into one.

use k8s_openapi::api::core::v1::Node;
use serde_json::{Map, Value, json};

/// The patch; none where nothing is to be sent.
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

/// Nothing, an empty list and an empty map all say the same; metadata and status themselves stay, to be compared.
pub(crate) fn prune(parts: &mut Value) {
    for part in parts.as_object_mut().into_iter().flatten() {
        strip(part.1);
        if part.1.is_null() {
            *part.1 = Value::Object(Map::new());
        }
    }
}

fn strip(value: &mut Value) {
    let Value::Object(map) = value else { return };
    map.values_mut().for_each(strip);
    map.retain(|_, value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    });
}

pub(crate) fn difference(
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    path: &str,
) -> Map<String, Value> {
    let mut patch = Map::new();
    for (key, new) in after {
        let path = format!("{path}/{key}");
        match (before.get(key), new) {
            (Some(old), new) if old == new => {}
            (Some(Value::Object(old)), Value::Object(new)) => {
                let inner = difference(old, new, &path);
                patch.insert(key.clone(), Value::Object(inner));
            }
            (Some(Value::Array(_)), Value::Array(new)) if path == "/status/addresses" => {
                patch.insert(key.clone(), replaced(new));
            }
            (old, Value::Array(new)) if path == "/status/conditions" => {
                let old = old.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                merge(key, old, new, &mut patch);
            }
            (_, new) => drop(patch.insert(key.clone(), new.clone())),
        }
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    patch
}

fn replaced(list: &[Value]) -> Value {
    let mut list = list.to_vec();
    list.push(json!({"$patch": "replace"}));
    Value::Array(list)
}

/// Of conditions only what differs is sent, each with its type; their order goes along.
fn merge(key: &str, before: &[Value], after: &[Value], patch: &mut Map<String, Value>) {
    let kind = |value: &Value| value.get("type").cloned().unwrap_or_default();
    let mut list = Vec::new();
    for new in after {
        let old = before.iter().find(|old| kind(old) == kind(new));
        match (old.and_then(Value::as_object), new.as_object()) {
            (Some(old), Some(new)) => {
                let mut inner = difference(old, new, "");
                if !inner.is_empty() {
                    inner.insert(
                        "type".to_owned(),
                        new.get("type").cloned().unwrap_or_default(),
                    );
                    list.push(Value::Object(inner));
                }
            }
            (None, _) | (_, None) => list.push(new.clone()),
        }
    }
    let gone = before.iter().map(kind);
    let gone = gone.filter(|old| !after.iter().any(|new| kind(new) == *old));
    list.extend(gone.map(|old| json!({"type": old, "$patch": "delete"})));
    let order: Vec<Value> = after.iter().map(|new| json!({"type": kind(new)})).collect();
    patch.insert(format!("$setElementOrder/{key}"), Value::Array(order));
    patch.insert(key.to_owned(), Value::Array(list));
}
