//! Empty fields are dropped: upstream's types drop them too, and equal objects must look equal.

use serde_json::Value;

/// Drops all fields that are null, at any depth.
pub(crate) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What is a pointer to a struct of optional fields in upstream's statuses: there, an empty map is kept.
const POINTERS: [&str; 3] = ["waiting", "running", "terminated"];
/// Texts of statuses that upstream's types drop where they are empty.
const TEXTS: [&str; 4] = ["message", "reason", "nominatedNodeName", "containerID"];

/// Drops the fields of a status that upstream's types omit where they are empty (`omitempty`): lists, maps, and some
/// texts.
fn drop_empty(status: &mut Value) {
    let is_empty = |name: &str, field: &Value| match field {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() && !POINTERS.contains(&name),
        Value::String(text) => text.is_empty() && TEXTS.contains(&name),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    };
    match status {
        Value::Object(fields) => {
            fields.values_mut().for_each(drop_empty);
            fields.retain(|name, field| !is_empty(name, field));
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Drops nulls, and the empty fields of metadata and status.
pub(crate) fn tidy(object: &mut Value) {
    drop_nulls(object);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, value| {
            !(value.as_array().is_some_and(Vec::is_empty)
                || value.as_object().is_some_and(serde_json::Map::is_empty))
        });
    }
    if let Some(status) = object.get_mut("status") {
        drop_empty(status);
    }
}
