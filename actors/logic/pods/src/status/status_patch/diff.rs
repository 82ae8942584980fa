//! The strategic merge patch that makes one status of another.
//!
//! Mirrors apimachinery's strategicpatch (`CreateTwoWayMergePatch`), as far as a pod's status needs it. Lists of
//! claims are not merged here: [`super::merge`] takes them as they are, so they never differ.

use k8s_openapi::api::core::v1::PodStatus;
use logic_api::decode::absent_fields::is_absent;
use serde_json::{Map, Value, json};

use super::equality::same;

/// Lists that are merged by a key; every other list is replaced as a whole.
const MERGED: [(&str, &str); 3] = [("conditions", "type"), ("hostIPs", "ip"), ("podIPs", "ip")];

/// The patch for the pod with this UID, which the server checks; none if nothing would change.
pub fn patch(uid: &str, old: &PodStatus, new: &PodStatus) -> Option<Value> {
    if old == new {
        return None;
    }
    let status = difference("", &json(old), &json(new));
    (!status.is_empty()).then(|| json!({ "metadata": { "uid": uid }, "status": status }))
}

pub(super) fn json(status: &PodStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(map)) => map,
        // A status is a struct of plain values under string keys.
        Ok(_) | Err(_) => Map::new(),
    }
}

/// The patch of an object: new values, and null for removed ones.
fn difference(
    field: &str,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
) -> Map<String, Value> {
    let mut patch = Map::new();
    for (key, new) in new {
        let old = old.get(key).unwrap_or(&Value::Null);
        let whole = [(key.clone(), new.clone())].into_iter().collect();
        // The object around decides whether the two are amounts.
        let before = [(key.clone(), old.clone())].into_iter().collect();
        if same(field, &Value::Object(before), &Value::Object(whole)) || is_absent(key, new) {
            continue;
        }
        put(&mut patch, key, old, new);
    }
    for (key, old) in old {
        if !is_absent(key, old) && new.get(key).is_none_or(|new| is_absent(key, new)) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    patch
}

fn put(patch: &mut Map<String, Value>, key: &str, old: &Value, new: &Value) {
    let merge_key = MERGED
        .iter()
        .find(|(field, _)| *field == key)
        .map(|(_, by)| *by);
    match (old, new, merge_key) {
        (Value::Object(old), Value::Object(new), _) => {
            patch.insert(key.to_owned(), Value::Object(difference(key, old, new)));
        }
        (Value::Array(old), Value::Array(new), Some(by)) if !old.is_empty() => {
            let changes = changes(by, old, new);
            if !changes.is_empty() {
                patch.insert(key.to_owned(), Value::Array(changes));
            }
            let order = new.iter().map(|item| json!({ by: item[by] })).collect();
            patch.insert(format!("$setElementOrder/{key}"), Value::Array(order));
        }
        _ => drop(patch.insert(key.to_owned(), new.clone())),
    }
}

/// The patch of a list: changed and new elements in their order, then those to delete.
fn changes(by: &str, old: &[Value], new: &[Value]) -> Vec<Value> {
    let of =
        |list: &[Value], item: &Value| list.iter().find(|other| other[by] == item[by]).cloned();
    let change = |item: &Value| {
        let Some(Value::Object(before)) = of(old, item) else {
            return Some(item.clone());
        };
        let mut change = difference("", &before, item.as_object()?);
        if change.is_empty() {
            return None;
        }
        change.insert(by.to_owned(), item[by].clone());
        Some(Value::Object(change))
    };
    let gone = old.iter().filter(|item| of(new, item).is_none());
    let deletions = gone.map(|item| json!({ "$patch": "delete", by: item[by] }));
    new.iter().filter_map(change).chain(deletions).collect()
}
