//! Validation: the few rules that a node's requests can break.

use serde_json::Value;

use crate::certificates;
use crate::endpoints::answer::StatusError;
use crate::kinds::Resource;
use crate::pods;

pub(super) fn new(resource: &Resource, object: &Value) -> Result<(), StatusError> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if !is_name(name) {
        let why = format!(
            "Invalid value: \"{name}\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
        );
        return Err(StatusError::invalid(resource, name, "metadata.name", &why));
    }
    if resource.storage_key == "pods"
        && object["spec"]["containers"]
            .as_array()
            .is_none_or(Vec::is_empty)
    {
        return Err(StatusError::invalid(
            resource,
            name,
            "spec.containers",
            "Required value",
        ));
    }
    if resource.storage_key == "podcertificaterequests" {
        return certificates::pods::check(&object["spec"])
            .map_err(|(field, why)| StatusError::invalid(resource, name, field, &why));
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    let ends = |letter: Option<char>| {
        letter.is_some_and(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit())
    };
    let inside = name.chars().all(|letter| {
        letter.is_ascii_lowercase() || letter.is_ascii_digit() || matches!(letter, '-' | '.' | ':')
    });
    name.len() <= 253 && ends(name.chars().next()) && ends(name.chars().last()) && inside
}

pub(super) fn change(
    resource: &Resource,
    before: &Value,
    after: &Value,
    subresource: Option<&str>,
) -> Result<(), StatusError> {
    let name = before["metadata"]["name"].as_str().unwrap_or_default();
    for field in ["uid", "name", "namespace", "creationTimestamp"] {
        if before["metadata"][field] != after["metadata"][field] {
            let why = format!(
                "Invalid value: {}: field is immutable",
                after["metadata"][field]
            );
            return Err(StatusError::invalid(
                resource,
                name,
                &format!("metadata.{field}"),
                &why,
            ));
        }
    }
    if before["immutable"] == Value::Bool(true)
        && (before["data"] != after["data"]
            || before["binaryData"] != after["binaryData"]
            || after["immutable"] != Value::Bool(true))
    {
        return Err(StatusError::invalid(
            resource,
            name,
            "data",
            "Forbidden: field is immutable when `immutable` is set",
        ));
    }
    match (resource.storage_key, subresource) {
        ("pods", None) => pod(resource, name, before, after),
        ("pods", Some("status")) => pods::transitions::check(before, after)
            .map_err(|(field, why)| StatusError::invalid(resource, name, &field, why)),
        ("podcertificaterequests", _) => certificates::pods::check_change(before, after)
            .map_err(|(field, why)| StatusError::invalid(resource, name, field, &why)),
        ("csinodes", None) => csi_node(resource, name, before, after),
        _ => Ok(()),
    }
}

/// Of a pod's spec only a few fields may change.
fn pod(resource: &Resource, name: &str, before: &Value, after: &Value) -> Result<(), StatusError> {
    let fixed = |object: &Value| {
        let mut spec = object["spec"].clone();
        for list in ["containers", "initContainers"] {
            for container in spec[list].as_array_mut().into_iter().flatten() {
                drop(
                    container
                        .as_object_mut()
                        .and_then(|fields| fields.remove("image")),
                );
            }
        }
        let fields = spec.as_object_mut()?;
        for changeable in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
            fields.remove(changeable);
        }
        fields.retain(|_, value| !value.is_null());
        Some(spec)
    };
    if fixed(before) == fixed(after) {
        return Ok(());
    }
    let why = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
        `spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
    Err(StatusError::invalid(resource, name, "spec", why))
}

/// A driver on a node keeps its node id and topology keys.
fn csi_node(
    resource: &Resource,
    name: &str,
    before: &Value,
    after: &Value,
) -> Result<(), StatusError> {
    let drivers = |object: &Value| {
        object["spec"]["drivers"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let after = drivers(after);
    for old in drivers(before) {
        let Some(new) = after.iter().find(|driver| driver["name"] == old["name"]) else {
            continue;
        };
        if new["nodeID"] != old["nodeID"] || new["topologyKeys"] != old["topologyKeys"] {
            return Err(StatusError::invalid(
                resource,
                name,
                "spec.drivers",
                "Invalid value: field is immutable",
            ));
        }
    }
    Ok(())
}
