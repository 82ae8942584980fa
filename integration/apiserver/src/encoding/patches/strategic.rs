//! Strategic merge patch: lists are merged by the keys of their items, in upstream's order, with all of its directives.

use serde_json::{Map, Value};

use super::order;
use crate::endpoints::answer::StatusError;

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE: &str = "$deleteFromPrimitiveList/";

/// How a list is patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListMerge {
    /// By the items that have the same value here.
    ByKey(&'static str),
    /// As a set of plain values.
    Set,
    /// As a whole.
    Atomic,
}

/// Returns how upstream's types mark a list, by its field; where a field has two meanings, the object's kind tells.
fn list_of(kind: &str, field: &str) -> ListMerge {
    match field {
        "conditions" if kind == "CertificateSigningRequest" => ListMerge::Atomic,
        "conditions" | "addresses" => ListMerge::ByKey("type"),
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "volumes"
        | "imagePullSecrets"
        | "secrets"
        | "schedulingGates"
        | "resourceClaims"
        | "resourceClaimStatuses"
        | "allocatedResourcesStatus"
        | "drivers" => ListMerge::ByKey("name"),
        "volumeMounts" => ListMerge::ByKey("mountPath"),
        "volumeDevices" => ListMerge::ByKey("devicePath"),
        "ports" if kind == "Service" => ListMerge::ByKey("port"),
        "ports" => ListMerge::ByKey("containerPort"),
        "hostAliases" | "podIPs" | "hostIPs" => ListMerge::ByKey("ip"),
        "topologySpreadConstraints" => ListMerge::ByKey("topologyKey"),
        "ownerReferences" | "reservedFor" => ListMerge::ByKey("uid"),
        "finalizers" | "podCIDRs" => ListMerge::Set,
        _ => ListMerge::Atomic,
    }
}

pub(super) fn apply(object: &mut Value, patch: &Value) -> Result<(), StatusError> {
    let kind = object["kind"].as_str().unwrap_or_default().to_string();
    let (Some(fields), Value::Object(patch)) = (object.as_object_mut(), patch) else {
        return Err(StatusError::bad_request(
            "a strategic merge patch is an object",
        ));
    };
    merge(fields, patch, &kind)
}

fn merge(
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    kind: &str,
) -> Result<(), StatusError> {
    match patch
        .get(PATCH)
        .map(|directive| directive.as_str().unwrap_or_default())
    {
        Some("replace") => {
            *original = patch.clone();
            original.remove(PATCH);
            return Ok(());
        }
        Some("delete") => {
            original.clear();
            return Ok(());
        }
        Some(other) => {
            return Err(StatusError::bad_request(format!(
                "unknown patch type found: {other}"
            )));
        }
        None => {}
    }
    if let Some(kept) = patch.get(RETAIN).and_then(Value::as_array) {
        original.retain(|name, _| kept.iter().any(|kept| kept == name));
    }
    for (name, values) in patch {
        if let Some(field) = name.strip_prefix(DELETE)
            && let (Some(items), Some(values)) = (
                original.get_mut(field).and_then(Value::as_array_mut),
                values.as_array(),
            )
        {
            items.retain(|item| !values.contains(item));
        }
    }
    for (name, value) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        merge_field(original, name, value, kind)?;
    }
    for (name, wanted) in patch {
        if let Some(field) = name.strip_prefix(ORDER)
            && let (Some(items), Some(wanted)) = (
                original.get_mut(field).and_then(Value::as_array_mut),
                wanted.as_array(),
            )
        {
            let before = items.clone();
            order::arrange(items, wanted, &before, list_of(kind, field));
        }
    }
    Ok(())
}

fn merge_field(
    original: &mut Map<String, Value>,
    name: &str,
    value: &Value,
    kind: &str,
) -> Result<(), StatusError> {
    match (original.get_mut(name), value) {
        (_, Value::Null) => {
            original.remove(name);
        }
        (Some(Value::Object(had)), Value::Object(patch)) => merge(had, patch, kind)?,
        (Some(Value::Array(had)), Value::Array(patch)) => match list_of(kind, name) {
            ListMerge::Atomic => *had = patch.clone(),
            ListMerge::Set => merge_set(had, patch),
            ListMerge::ByKey(key) => merge_items(had, patch, key, kind)?,
        },
        _ => match plain(value) {
            Some(value) => drop(original.insert(name.to_string(), value)),
            None => drop(original.remove(name)),
        },
    }
    Ok(())
}

fn merge_set(had: &mut Vec<Value>, patch: &[Value]) {
    let before = had.clone();
    for item in patch {
        if !had.contains(item) {
            had.push(item.clone());
        }
    }
    order::arrange(had, patch, &before, ListMerge::Set);
}

fn merge_items(
    had: &mut Vec<Value>,
    patch: &[Value],
    key: &'static str,
    kind: &str,
) -> Result<(), StatusError> {
    let mut wanted = Vec::with_capacity(patch.len());
    let mut replace = false;
    for item in patch {
        match item.get(PATCH).and_then(Value::as_str) {
            None => wanted.push(item.clone()),
            Some("delete") => {
                let value = key_of(item, key)?;
                had.retain(|old| old.get(key) != Some(value));
            }
            Some("replace") => replace = true,
            Some(other) => {
                return Err(StatusError::bad_request(format!(
                    "{other} of lists cannot be specified in the patch"
                )));
            }
        }
    }
    if replace {
        *had = wanted;
        return Ok(());
    }
    let before = had.clone();
    for item in &wanted {
        let value = key_of(item, key)?;
        match had.iter_mut().find(|old| old.get(key) == Some(value)) {
            Some(Value::Object(old)) => merge(old, item.as_object().unwrap_or(&Map::new()), kind)?,
            _ => had.extend(plain(item)),
        }
    }
    order::arrange(had, &wanted, &before, ListMerge::ByKey(key));
    Ok(())
}

fn key_of<'a>(item: &'a Value, key: &str) -> Result<&'a Value, StatusError> {
    let missing = || {
        StatusError::new(
            500,
            "InternalError",
            format!("map: {item} does not contain declared merge key: {key}"),
        )
    };
    item.get(key).ok_or_else(missing)
}

/// Returns what is new in a patch as it is kept: without nulls and directives; nothing if it is itself a directive.
fn plain(value: &Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(PATCH) && fields[PATCH] == "delete" => None,
        Value::Object(fields) => {
            let kept = fields
                .iter()
                .filter(|(name, value)| !value.is_null() && !name.starts_with('$'));
            Some(Value::Object(
                kept.filter_map(|(name, value)| Some((name.clone(), plain(value)?)))
                    .collect(),
            ))
        }
        Value::Array(items) => Some(Value::Array(items.iter().filter_map(plain).collect())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(value.clone()),
    }
}
