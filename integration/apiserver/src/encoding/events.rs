//! Events have two forms, of the core group and of events.k8s.io; the core one is kept.

use serde_json::Value;

use crate::kinds::Resource;

/// Fields of events.k8s.io, and what the core group calls them.
const NAMES: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// Turns what a client wrote into what is kept.
pub(crate) fn inward(resource: &Resource, object: &mut Value) {
    if resource.group == "events.k8s.io" {
        rename(object, NAMES.iter().copied());
        object["apiVersion"] = "v1".into();
    }
}

/// Turns what is kept into what the resource's version shows.
pub(crate) fn outward(resource: &Resource, object: &mut Value) {
    if resource.group == "events.k8s.io" {
        rename(object, NAMES.iter().map(|(new, old)| (*old, *new)));
        object["apiVersion"] = "events.k8s.io/v1".into();
    }
}

fn rename<'a>(object: &mut Value, names: impl Iterator<Item = (&'a str, &'a str)>) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    for (from, to) in names {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_string(), value);
        }
    }
}
