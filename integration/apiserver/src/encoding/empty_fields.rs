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

/// Drops nulls, and the metadata's empty lists and maps.
pub(crate) fn tidy(object: &mut Value) {
    drop_nulls(object);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, value| {
            !(value.as_array().is_some_and(Vec::is_empty)
                || value.as_object().is_some_and(serde_json::Map::is_empty))
        });
    }
}
