//! The difference of two objects as a strategic merge patch.
//!
//! Upstream: apimachinery's strategicpatch, as far as nodes and claims need it (1.36). Addresses are replaced as a
//! whole: the API's own rule for them would merge two of one type into one.

use serde_json::{Map, Value, json};

use super::absent_fields::drop_absent;

/// Drops what the API server does not keep of metadata and status; these themselves stay, to be compared.
pub fn prune(parts: &mut Value) {
    for (name, part) in parts.as_object_mut().into_iter().flatten() {
        match name.as_str() {
            // A label may be empty and still be one.
            "metadata" => drop_empty_maps(part),
            _ => drop_absent(part),
        }
        if part.is_null() {
            *part = Value::Object(Map::new());
        }
    }
}

fn drop_empty_maps(metadata: &mut Value) {
    let Value::Object(fields) = metadata else {
        return;
    };
    fields
        .retain(|_, field| !field.is_null() && field.as_object().is_none_or(|map| !map.is_empty()));
}

pub fn difference(
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
