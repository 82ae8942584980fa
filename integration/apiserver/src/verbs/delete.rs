//! delete: preconditions, grace, finalizers; in upstream's order, so that watches see upstream's events.

use serde_json::{Value, json};

use super::read;
use crate::endpoints::answer;
use crate::endpoints::answer::StatusError;
use crate::endpoints::request_info::RequestInfo;
use crate::endpoints::selectors::ListSelector;
use crate::kinds::{self, Resource};
use crate::server::state::State;
use crate::store::VersionedStore;
use crate::{clock, pods};

/// The DeleteOptions that the double knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) dry_run: bool,
}

impl DeleteOptions {
    pub(crate) fn of(options: &Value) -> DeleteOptions {
        let text = |value: &Value| value.as_str().map(str::to_string);
        DeleteOptions {
            grace: options["gracePeriodSeconds"].as_i64(),
            uid: text(&options["preconditions"]["uid"]),
            version: text(&options["preconditions"]["resourceVersion"]),
            dry_run: options["dryRun"]
                .as_array()
                .is_some_and(|runs| runs.iter().any(|run| run == "All")),
        }
    }

    fn of_call(call: &RequestInfo) -> Result<DeleteOptions, StatusError> {
        let options = if call.body.is_empty() {
            Value::Null
        } else {
            super::parsed(&call.body)?
        };
        let mut terms = DeleteOptions::of(&options);
        if options.is_null() {
            terms.grace = call.query.number("gracePeriodSeconds");
        }
        terms.dry_run |= call.dry_run();
        Ok(terms)
    }
}

pub(super) fn delete(state: &State, call: &RequestInfo) -> Result<Value, StatusError> {
    let terms = DeleteOptions::of_call(call)?;
    let mut store = state.store();
    delete_object(
        &mut store,
        call.resource,
        (call.namespace(), call.name()),
        &terms,
    )
}

pub(super) fn collection(state: &State, call: &RequestInfo) -> Result<Value, StatusError> {
    let terms = DeleteOptions::of_call(call)?;
    let selection = ListSelector::parse(&call.query)?;
    let list = read::list(state, call)?;
    let mut store = state.store();
    for object in store
        .list(call.resource, call.namespace())
        .iter()
        .filter(|object| selection.takes(object))
    {
        let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
        delete_object(
            &mut store,
            call.resource,
            (field("namespace"), field("name")),
            &terms,
        )?;
    }
    Ok(list)
}

/// Deletes one object, or marks it for deletion, and returns the answer.
pub(crate) fn delete_object(
    store: &mut VersionedStore,
    resource: &Resource,
    (namespace, name): (&str, &str),
    terms: &DeleteOptions,
) -> Result<Value, StatusError> {
    let Some(kept) = store.get(resource, namespace, name) else {
        return Err(StatusError::not_found(resource, name));
    };
    check(resource, name, &kept, terms)?;
    let mut object = Value::clone(&kept);
    let step = pods::deletion::step(resource, &mut object, terms.grace);
    let finalizers = object["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|all| !all.is_empty());
    if step == DeletionStep::Pending {
        return Ok(object);
    }
    if step == DeletionStep::AtOnce
        && finalizers
        && object["metadata"].get("deletionTimestamp").is_none()
    {
        object["metadata"]["deletionTimestamp"] = json!(clock::now_text());
        object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        raise_generation(&mut object);
    }
    if resource.storage_key == "namespaces" {
        return Ok(end_namespace(store, resource, object, terms));
    }
    if terms.dry_run {
        return Ok(object);
    }
    // A deletion with grace, even of none, is a write of its own before the object goes.
    if object != *kept {
        object = Value::clone(&store.put(resource, object));
    }
    if finalizers || step == DeletionStep::Graceful(GracePeriod::Waits) {
        return Ok(object);
    }
    let last = store.remove(resource, namespace, name);
    sweep(store, namespace);
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    if resource.storage_key == "pods" {
        return Ok(last.map_or(object, |last| Value::clone(&last)));
    }
    Ok(answer::deleted(resource, name, uid))
}

/// How a deletion goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeletionStep {
    /// The kind knows no grace.
    AtOnce,
    /// Marked; it waits, or need not.
    Graceful(GracePeriod),
    /// Already under way, and this changes nothing.
    Pending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GracePeriod {
    Waits,
    Over,
}

/// Whether an object only waited for its finalizers and its grace.
pub(super) fn may_go(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let finalizers = metadata["finalizers"]
        .as_array()
        .is_some_and(|all| !all.is_empty());
    metadata.get("deletionTimestamp").is_some()
        && metadata["deletionGracePeriodSeconds"] == 0
        && !finalizers
}

pub(crate) fn raise_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"]
        .as_i64()
        .filter(|generation| *generation > 0)
    {
        object["metadata"]["generation"] = json!(generation + 1);
    }
}

fn check(
    resource: &Resource,
    name: &str,
    object: &Value,
    terms: &DeleteOptions,
) -> Result<(), StatusError> {
    let differs = |wanted: &Option<String>, field: &str| {
        wanted
            .as_ref()
            .is_some_and(|wanted| object["metadata"][field] != json!(wanted))
    };
    let refused = |word: &str, wanted: &Option<String>, field: &str, guess: &str| {
        let (wanted, had) = (
            wanted.as_deref().unwrap_or_default(),
            object["metadata"][field].as_str().unwrap_or_default(),
        );
        let why = format!(
            "the {word} in the precondition ({wanted}) does not match the {word} in record ({had}). The object might have been {guess}"
        );
        Err(StatusError::conflict(resource, name, &why))
    };
    if differs(&terms.uid, "uid") {
        return refused("UID", &terms.uid, "uid", "deleted and then recreated");
    }
    if differs(&terms.version, "resourceVersion") {
        return refused(
            "ResourceVersion",
            &terms.version,
            "resourceVersion",
            "modified",
        );
    }
    Ok(())
}

/// Does what the namespace controller does, at once: pods get their grace, the rest goes; the namespace goes when it is
/// empty.
fn end_namespace(
    store: &mut VersionedStore,
    resource: &Resource,
    mut object: Value,
    terms: &DeleteOptions,
) -> Value {
    object["metadata"]["deletionTimestamp"] = json!(clock::now_text());
    object["status"]["phase"] = json!("Terminating");
    if terms.dry_run {
        return object;
    }
    let object = Value::clone(&store.put(resource, object));
    let namespace = object["metadata"]["name"].as_str().unwrap_or_default();
    for inside in kinds::ALL
        .iter()
        .filter(|inside| inside.namespaced && inside.handling == kinds::Handling::Kept)
    {
        for one in store.list(inside, namespace) {
            let name = one["metadata"]["name"].as_str().unwrap_or_default();
            delete_object(store, inside, (namespace, name), &DeleteOptions::default())
                .unwrap_or_default();
        }
    }
    sweep(store, namespace);
    object
}

/// Takes away a namespace that is being ended and holds no pod any more.
pub(crate) fn sweep(store: &mut VersionedStore, namespace: &str) {
    let namespaces = kinds::core("namespaces");
    let ending = store
        .get(namespaces, "", namespace)
        .is_some_and(|object| object["metadata"].get("deletionTimestamp").is_some());
    if ending && store.list(kinds::core("pods"), namespace).is_empty() {
        store.remove(namespaces, "", namespace);
    }
}
