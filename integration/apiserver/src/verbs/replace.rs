//! update and patch: what changes, what cannot, and what follows.

use serde_json::{Value, json};

use super::{create, delete, prepare, validate};
use crate::auth::node;
use crate::encoding::empty_fields::tidy;
use crate::encoding::{events, patches};
use crate::endpoints::answer::StatusError;
use crate::endpoints::request_info::{RequestInfo, RequestVerb};
use crate::kinds::Resource;
use crate::server::state::State;
use crate::store::VersionedStore;
use crate::{certificates, pods};

const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

pub(super) fn update(
    state: &State,
    call: &RequestInfo,
    mut object: Value,
) -> Result<(u16, Value), StatusError> {
    let resource = call.resource;
    create::identify(call, &mut object)?;
    let said = object["metadata"]["name"].as_str().unwrap_or_default();
    if said.is_empty() {
        object["metadata"]["name"] = json!(call.name());
    } else if said != call.name() {
        return Err(create::named_otherwise(said, call.name()));
    }
    events::inward(resource, &mut object);
    let mut store = state.store();
    let Some(before) = store.get(resource, call.namespace(), call.name()) else {
        drop(store);
        return create_by_update(state, call, object);
    };
    check_uid(call, &before, &object)?;
    check_version(call, &before, &object)?;
    let after = replaced(call, &before, object)?;
    keep(state, &mut store, call, Value::clone(&before), after).map(|object| (200, object))
}

pub(super) fn patch(state: &State, call: &RequestInfo) -> Result<(u16, Value), StatusError> {
    let kind = patches::PatchType::parse(&call.content_type)?;
    let mut store = state.store();
    let Some(before) = store.get(call.resource, call.namespace(), call.name()) else {
        drop(store);
        if kind == patches::PatchType::Apply && call.subresource.is_none() {
            let object = patches::apply(kind, &json!({}), &call.body)?;
            return create::create(state, call, object).map(|object| (201, object));
        }
        return Err(StatusError::not_found(call.resource, call.name()));
    };
    let mut patched = Value::clone(&before);
    events::outward(call.resource, &mut patched);
    let mut patched = patches::apply(kind, &patched, &call.body)?;
    events::inward(call.resource, &mut patched);
    create::identify(call, &mut patched)?;
    if patched["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
        && !patched["metadata"]["resourceVersion"].is_null()
    {
        return Err(StatusError::conflict(call.resource, call.name(), MODIFIED));
    }
    let uid = &patched["metadata"]["uid"];
    if !uid.is_null() && *uid != before["metadata"]["uid"] {
        let why = format!("Invalid value: {uid}: field is immutable");
        return Err(StatusError::invalid(
            call.resource,
            call.name(),
            "metadata.uid",
            &why,
        ));
    }
    let after = replaced(call, &before, patched)?;
    keep(state, &mut store, call, Value::clone(&before), after).map(|object| (200, object))
}

/// Some kinds are made by their update.
fn create_by_update(
    state: &State,
    call: &RequestInfo,
    object: Value,
) -> Result<(u16, Value), StatusError> {
    let makes = matches!(
        call.resource.plural,
        "leases" | "events" | "endpoints" | "services" | "limitranges"
    );
    if !makes || call.subresource.is_some() || object["metadata"]["uid"].is_string() {
        return Err(StatusError::not_found(call.resource, call.name()));
    }
    let object = create::create(
        state,
        &RequestInfo {
            verb: RequestVerb::Create,
            ..call.clone()
        },
        object,
    )?;
    Ok((201, object))
}

fn check_uid(call: &RequestInfo, before: &Value, object: &Value) -> Result<(), StatusError> {
    let (had, said) = (
        before["metadata"]["uid"].as_str().unwrap_or_default(),
        object["metadata"]["uid"].as_str().unwrap_or_default(),
    );
    if said.is_empty() || said == had {
        return Ok(());
    }
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {said}, UID in object meta: {had}",
        call.resource.plural,
        call.name(),
    );
    Err(StatusError::conflict(call.resource, call.name(), &why))
}

fn check_version(call: &RequestInfo, before: &Value, object: &Value) -> Result<(), StatusError> {
    let said = object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default();
    if said.is_empty() {
        let strict = matches!(
            call.resource.plural,
            "leases"
                | "csinodes"
                | "resourceslices"
                | "clustertrustbundles"
                | "podcertificaterequests"
        );
        if strict {
            return Err(StatusError::invalid(
                call.resource,
                call.name(),
                "metadata.resourceVersion",
                "Invalid value: 0x0: must be specified for an update",
            ));
        }
        return Ok(());
    }
    if before["metadata"]["resourceVersion"] == json!(said) {
        return Ok(());
    }
    Err(StatusError::conflict(call.resource, call.name(), MODIFIED))
}

/// Returns the object as it becomes: the caller's, but for what the server keeps and what belongs to another
/// subresource.
fn replaced(call: &RequestInfo, before: &Value, mut object: Value) -> Result<Value, StatusError> {
    keep_metadata(before, &mut object);
    let part = |name: &str, object: &mut Value| {
        let mut after = before.clone();
        after["spec"][name] = object["spec"][name].take();
        after
    };
    object = match call.subresource() {
        None => whole(call.resource, before, object),
        Some("status") => status(call.resource, before, object),
        Some("approval") => {
            let mut after = before.clone();
            after["status"]["conditions"] = object["status"]["conditions"].take();
            after
        }
        Some("ephemeralcontainers") => {
            let mut after = part("ephemeralContainers", &mut object);
            pods::defaults::fill(&mut after);
            after
        }
        Some("finalize") => part("finalizers", &mut object),
        Some("resize") => pods::subresources::resized(before, &object),
        Some(_) => return Err(StatusError::not_allowed()),
    };
    tidy(&mut object);
    validate::change(call.resource, before, &object, call.subresource())?;
    Ok(object)
}

/// Of the metadata some is not for callers to change, whatever they send.
fn keep_metadata(before: &Value, object: &mut Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return;
    };
    metadata.remove("managedFields");
    metadata.remove("selfLink");
    for field in ["uid", "creationTimestamp"] {
        if metadata.get(field).is_none_or(Value::is_null) {
            metadata.insert(field.to_string(), before["metadata"][field].clone());
        }
    }
    for field in [
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ] {
        match before["metadata"].get(field) {
            Some(value) => drop(metadata.insert(field.to_string(), value.clone())),
            None => drop(metadata.remove(field)),
        }
    }
}

fn whole(resource: &Resource, before: &Value, mut object: Value) -> Value {
    if resource.has_status() {
        object["status"] = before["status"].clone();
    }
    match resource.storage_key {
        "pods" => pods::defaults::fill(&mut object),
        "secrets" => prepare::text_into_data(&mut object),
        _ => {}
    }
    object
}

fn status(resource: &Resource, before: &Value, mut object: Value) -> Value {
    let mut after = before.clone();
    after["metadata"] = object["metadata"].take();
    after["status"] = object["status"].take();
    if resource.storage_key == "pods" {
        // A status cannot give a pod away.
        after["metadata"]["ownerReferences"] = before["metadata"]["ownerReferences"].clone();
    }
    after
}

/// Keeps what came out, unless nothing changed; an object that was only waiting for its finalizers goes.
fn keep(
    state: &State,
    store: &mut VersionedStore,
    call: &RequestInfo,
    before: Value,
    mut after: Value,
) -> Result<Value, StatusError> {
    let resource = call.resource;
    node::admit(state, store, call, Some(&before), &after)?;
    if resource.storage_key == "certificatesigningrequests" {
        certificates::written(state, &mut after);
    }
    if resource.has_generation() && before["spec"] != after["spec"] {
        let generation = before["metadata"]["generation"]
            .as_i64()
            .unwrap_or_default();
        after["metadata"]["generation"] = json!(generation + 1);
    }
    if call.dry_run() || before == after {
        return Ok(after);
    }
    Ok(written(store, resource, after))
}

/// Keeps an object, or ends it if deletion has only waited for this.
fn written(store: &mut VersionedStore, resource: &Resource, object: Value) -> Value {
    let ends = delete::may_go(&object);
    let kept = store.put(resource, object);
    if ends {
        let field = |name: &str| kept["metadata"][name].as_str().unwrap_or_default();
        store.remove(resource, field("namespace"), field("name"));
        delete::sweep(store, field("namespace"));
    }
    Value::clone(&kept)
}
