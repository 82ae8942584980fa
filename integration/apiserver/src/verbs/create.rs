//! create: metadata by the server, admission, defaults, and the objects that follow from others.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use serde_json::{Value, json};

use super::{prepare, validate};
use crate::auth::node;
use crate::clock::simulation;
use crate::encoding::empty_fields::tidy;
use crate::encoding::events;
use crate::endpoints::answer::StatusError;
use crate::endpoints::request_info::{QueryParameters, RequestInfo, RequestVerb, UserInfo};
use crate::kinds::{self, Resource};
use crate::server::state::State;
use crate::store::VersionedStore;
use crate::{clock, pods};

/// The ConfigMap that every new namespace gets, as upstream's controller manager creates it.
const ROOT_CERTIFICATES: &str = "kube-root-ca.crt";

pub(super) fn create(
    state: &State,
    call: &RequestInfo,
    mut object: Value,
) -> Result<Value, StatusError> {
    let resource = call.resource;
    identify(call, &mut object)?;
    let mut store = state.store();
    admit_namespace(&store, call)?;
    name(call, &mut store, &mut object)?;
    let written = object["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_string();
    if store.get(resource, call.namespace(), &written).is_some() {
        return Err(StatusError::already_exists(resource, &written));
    }
    stamp(resource, &mut object);
    events::inward(resource, &mut object);
    if resource.storage_key == "pods" {
        pods::admission::admit(state, &mut store, &mut object)?;
    }
    prepare::for_create(state, call, &mut object);
    tidy(&mut object);
    validate::new(resource, &object)?;
    node::admit(state, &store, call, None, &object)?;
    if call.dry_run() {
        return Ok(object);
    }
    let kept = store.put(resource, object);
    if resource.storage_key == "namespaces" {
        furnish(state, &mut store, &written);
    }
    Ok(Value::clone(&kept))
}

/// Makes the namespaces that every cluster has.
pub(crate) fn found(state: &State) {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let call = internal("namespaces", None);
        create(state, &call, json!({"metadata": {"name": name}}))
            .expect("a new server has no namespace yet");
    }
}

fn internal(plural: &str, namespace: Option<&str>) -> RequestInfo {
    RequestInfo {
        verb: RequestVerb::Create,
        resource: kinds::core(plural),
        namespace: namespace.map(str::to_string),
        name: None,
        subresource: None,
        rest: String::new(),
        query: QueryParameters::default(),
        accept: String::new(),
        content_type: String::new(),
        user: UserInfo::default(),
        body: hyper::body::Bytes::new(),
    }
}

/// Checks what the object says it is, and writes it down where it says nothing.
pub(super) fn identify(call: &RequestInfo, object: &mut Value) -> Result<(), StatusError> {
    let resource = call.resource;
    for (field, wanted) in [
        ("kind", resource.kind.to_string()),
        ("apiVersion", resource.api_version()),
    ] {
        match object[field].as_str() {
            None => object[field] = json!(wanted),
            Some(said) if said == wanted => {}
            Some(said) => {
                return Err(StatusError::bad_request(format!(
                    "the object provided is unrecognized: {field} is \"{said}\", not \"{wanted}\""
                )));
            }
        }
    }
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    if !resource.namespaced {
        drop(
            object["metadata"]
                .as_object_mut()
                .and_then(|metadata| metadata.remove("namespace")),
        );
        return Ok(());
    }
    if call.namespace().is_empty() {
        return Err(StatusError::bad_request(
            "an empty namespace may not be set during creation",
        ));
    }
    match object["metadata"]["namespace"].as_str() {
        Some(said) if !said.is_empty() && said != call.namespace() => {
            Err(StatusError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ))
        }
        _ => {
            object["metadata"]["namespace"] = json!(call.namespace());
            Ok(())
        }
    }
}

fn admit_namespace(store: &VersionedStore, call: &RequestInfo) -> Result<(), StatusError> {
    if !call.resource.namespaced {
        return Ok(());
    }
    let namespaces = kinds::core("namespaces");
    let Some(namespace) = store.get(namespaces, "", call.namespace()) else {
        return Err(StatusError::not_found(namespaces, call.namespace()));
    };
    if namespace["metadata"].get("deletionTimestamp").is_some() {
        let why = format!(
            "unable to create new content in namespace {} because it is being terminated",
            call.namespace()
        );
        return Err(StatusError::forbidden(call.resource, call.name(), &why));
    }
    Ok(())
}

fn name(
    call: &RequestInfo,
    store: &mut VersionedStore,
    object: &mut Value,
) -> Result<(), StatusError> {
    let metadata = &mut object["metadata"];
    if metadata["name"].as_str().is_none_or(str::is_empty) {
        let Some(prefix) = metadata["generateName"]
            .as_str()
            .filter(|prefix| !prefix.is_empty())
        else {
            return Err(StatusError::invalid(
                call.resource,
                "",
                "metadata.name",
                "Required value: name or generateName is required",
            ));
        };
        metadata["name"] = json!(format!("{prefix}{}", store.suffix()));
    }
    match &call.name {
        Some(name) if metadata["name"] != json!(name) => Err(named_otherwise(
            metadata["name"].as_str().unwrap_or_default(),
            name,
        )),
        _ => Ok(()),
    }
}

pub(super) fn named_otherwise(said: &str, asked: &str) -> StatusError {
    StatusError::bad_request(format!(
        "the name of the object ({said}) does not match the name on the URL ({asked})"
    ))
}

/// Writes what only the server says.
fn stamp(resource: &Resource, object: &mut Value) {
    let metadata = object["metadata"]
        .as_object_mut()
        .expect("identified objects have metadata");
    for field in [
        "resourceVersion",
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "generation",
    ] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_string(), json!(uid()));
    metadata.insert("creationTimestamp".to_string(), json!(clock::now_text()));
    if resource.has_generation() {
        metadata.insert("generation".to_string(), json!(1));
    }
}

/// Returns a random UUID.
pub(crate) fn uid() -> String {
    let chance = || RandomState::new().build_hasher().finish();
    let random = || simulation::random().unwrap_or_else(chance);
    let (high, low) = (random(), random());
    let parts = [
        high >> 32,
        (high >> 16) & 0xffff,
        0x4000 | (high & 0xfff),
        0x8000 | (low >> 48) & 0x3fff,
        low & 0xffff_ffff_ffff,
    ];
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        parts[0], parts[1], parts[2], parts[3], parts[4]
    )
}

/// What the controllers of a cluster put into each new namespace.
fn furnish(state: &State, store: &mut VersionedStore, namespace: &str) {
    let mut add = |plural: &str, mut object: Value| {
        let resource = kinds::core(plural);
        identify(&internal(plural, Some(namespace)), &mut object)
            .expect("what is written here is well formed");
        stamp(resource, &mut object);
        store.put(resource, object);
    };
    add("serviceaccounts", json!({"metadata": {"name": "default"}}));
    add(
        "configmaps",
        json!({"metadata": {"name": ROOT_CERTIFICATES}, "data": {"ca.crt": state.auth.root_certificate()}}),
    );
}
