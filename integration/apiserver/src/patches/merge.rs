//! JSON merge patch, RFC 7386.

use serde_json::{Map, Value};

pub(super) fn apply(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(object) = target.as_object_mut() else {
        return;
    };
    for (name, value) in fields {
        if value.is_null() {
            object.remove(name);
        } else {
            apply(object.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}
