//! update and patch: what changes, what cannot, and what follows.

use serde_json::{Value, json};

use super::{create, delete, prepare, validate};
use crate::{
    answer::Failure,
    auth::node,
    call::{Call, Verb},
    certificates, events,
    kinds::Resource,
    patches, pods,
    state::State,
    store::Store,
};

const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";

pub(super) fn update(state: &State, call: &Call, mut object: Value) -> Result<(u16, Value), Failure> {
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

pub(super) fn patch(state: &State, call: &Call) -> Result<(u16, Value), Failure> {
    let kind = patches::Kind::parse(&call.content_type)?;
    let mut store = state.store();
    let Some(before) = store.get(call.resource, call.namespace(), call.name()) else {
        drop(store);
        if kind == patches::Kind::Apply && call.subresource.is_none() {
            let object = patches::apply(kind, &json!({}), &call.body)?;
            return create::create(state, call, object).map(|object| (201, object));
        }
        return Err(Failure::not_found(call.resource, call.name()));
    };
    let mut patched = Value::clone(&before);
    events::outward(call.resource, &mut patched);
    let mut patched = patches::apply(kind, &patched, &call.body)?;
    events::inward(call.resource, &mut patched);
    create::identify(call, &mut patched)?;
    if patched["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"] && !patched["metadata"]["resourceVersion"].is_null() {
        return Err(Failure::conflict(call.resource, call.name(), MODIFIED));
    }
    let uid = &patched["metadata"]["uid"];
    if !uid.is_null() && *uid != before["metadata"]["uid"] {
        let why = format!("Invalid value: {uid}: field is immutable");
        return Err(Failure::invalid(call.resource, call.name(), "metadata.uid", &why));
    }
    let after = replaced(call, &before, patched)?;
    keep(state, &mut store, call, Value::clone(&before), after).map(|object| (200, object))
}

/// Some kinds are made by their update.
fn create_by_update(state: &State, call: &Call, object: Value) -> Result<(u16, Value), Failure> {
    let makes = matches!(call.resource.plural, "leases" | "events" | "endpoints" | "services" | "limitranges");
    if !makes || call.subresource.is_some() || object["metadata"]["uid"].is_string() {
        return Err(Failure::not_found(call.resource, call.name()));
    }
    let object = create::create(state, &Call { verb: Verb::Create, ..call.clone() }, object)?;
    Ok((201, object))
}

fn check_uid(call: &Call, before: &Value, object: &Value) -> Result<(), Failure> {
    let (had, said) = (before["metadata"]["uid"].as_str().unwrap_or_default(), object["metadata"]["uid"].as_str().unwrap_or_default());
    if said.is_empty() || said == had {
        return Ok(());
    }
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {said}, UID in object meta: {had}",
        call.resource.plural,
        call.name(),
    );
    Err(Failure::conflict(call.resource, call.name(), &why))
}

fn check_version(call: &Call, before: &Value, object: &Value) -> Result<(), Failure> {
    let said = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if said.is_empty() {
        let strict = matches!(call.resource.plural, "leases" | "csinodes" | "resourceslices" | "clustertrustbundles" | "podcertificaterequests");
        if strict {
            return Err(Failure::invalid(call.resource, call.name(), "metadata.resourceVersion", "Invalid value: 0x0: must be specified for an update"));
        }
        return Ok(());
    }
    if before["metadata"]["resourceVersion"] == json!(said) {
        return Ok(());
    }
    Err(Failure::conflict(call.resource, call.name(), MODIFIED))
}

/// Returns the object as it becomes: the caller's, but for what the server keeps and what belongs to another subresource.
fn replaced(call: &Call, before: &Value, mut object: Value) -> Result<Value, Failure> {
    let resource = call.resource;
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        metadata.remove("selfLink");
        for field in ["uid", "creationTimestamp"] {
            if metadata.get(field).is_none_or(Value::is_null) {
                metadata.insert(field.to_string(), before["metadata"][field].clone());
            }
        }
        for field in ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
            match before["metadata"].get(field) {
                Some(value) => drop(metadata.insert(field.to_string(), value.clone())),
                None => drop(metadata.remove(field)),
            }
        }
    }
    match call.subresource() {
        Some("status") => {
            let status = object["status"].take();
            let metadata = object["metadata"].take();
            object = before.clone();
            object["metadata"] = metadata;
            object["status"] = status;
            if resource.shelf == "pods" {
                // A status cannot give a pod away.
                object["metadata"]["ownerReferences"] = before["metadata"]["ownerReferences"].clone();
                if object["metadata"]["ownerReferences"].is_null() {
                    drop(object["metadata"].as_object_mut().and_then(|metadata| metadata.remove("ownerReferences")));
                }
            }
        }
        Some("approval") => {
            let conditions = object["status"]["conditions"].take();
            object = before.clone();
            object["status"]["conditions"] = conditions;
        }
        Some("ephemeralcontainers") => {
            let containers = object["spec"]["ephemeralContainers"].take();
            object = before.clone();
            object["spec"]["ephemeralContainers"] = containers;
            pods::defaults::fill(&mut object);
        }
        Some("resize") => object = pods::subresources::resized(before, &object),
        Some("finalize") => {
            let finalizers = object["spec"]["finalizers"].take();
            object = before.clone();
            object["spec"]["finalizers"] = finalizers;
        }
        Some(_) => return Err(Failure::not_allowed()),
        None => {
            if resource.has_status() {
                object["status"] = before["status"].clone();
            }
            match resource.shelf {
                "pods" => pods::defaults::fill(&mut object),
                "secrets" => prepare::text_into_data(&mut object),
                _ => {}
            }
        }
    }
    tidy(&mut object);
    validate::change(resource, before, &object, call.subresource())?;
    Ok(object)
}

/// Fields of nothing are not kept.
fn tidy(object: &mut Value) {
    for part in [&["metadata"][..], &["status"], &["spec"]] {
        let Some(fields) = part.iter().try_fold(&mut *object, |at, step| at.get_mut(step)).and_then(Value::as_object_mut) else { continue };
        fields.retain(|_, value| !value.is_null());
    }
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|name, value| !(matches!(name.as_str(), "finalizers" | "ownerReferences") && value.as_array().is_some_and(Vec::is_empty)));
    }
}

/// Keeps what came out, unless nothing changed; an object that was only waiting for its finalizers goes.
fn keep(state: &State, store: &mut Store, call: &Call, before: Value, mut after: Value) -> Result<Value, Failure> {
    let resource = call.resource;
    node::admit(state, store, call, Some(&before), &after)?;
    if resource.shelf == "certificatesigningrequests" {
        certificates::written(state, &mut after);
    }
    if resource.has_generation() && before["spec"] != after["spec"] {
        let generation = before["metadata"]["generation"].as_i64().unwrap_or_default();
        after["metadata"]["generation"] = json!(generation + 1);
    }
    if call.dry_run() || before == after {
        return Ok(after);
    }
    Ok(written(store, resource, after))
}

/// Keeps an object, or ends it if deletion has only waited for this.
fn written(store: &mut Store, resource: &Resource, object: Value) -> Value {
    let ends = delete::may_go(&object);
    let kept = store.put(resource, object);
    if ends {
        let field = |name: &str| kept["metadata"][name].as_str().unwrap_or_default();
        store.remove(resource, field("namespace"), field("name"));
        delete::sweep(store, field("namespace"));
    }
    Value::clone(&kept)
}
