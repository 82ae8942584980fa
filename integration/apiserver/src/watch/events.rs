//! The lines of a watch: which events a client sees, and in which shape.

use serde_json::{Value, json};

use super::Initial;
use crate::{
    call::Call,
    selectors::Selection,
    store::{Change, Move, Store},
    tables, verbs,
};

/// What a client asked to see, and how.
pub(super) struct Shape {
    pub(super) call: Call,
    pub(super) selection: Selection,
    pub(super) table: tables::Wanted,
}

/// A place in the history, moving on.
pub(super) struct Lines {
    shape: Shape,
    version: u64,
    first: Vec<Value>,
}

impl Lines {
    pub(super) fn begin(store: &Store, shape: Shape, initial: Initial) -> Lines {
        let version = match initial {
            Initial::After(version) => version,
            Initial::Objects | Initial::List => store.version(),
        };
        let mut lines = Lines {
            shape,
            version,
            first: Vec::new(),
        };
        if initial == Initial::Objects || initial == Initial::List {
            let (resource, namespace) = (lines.shape.call.resource, lines.shape.call.namespace());
            let objects = store.list(resource, namespace);
            let taken = objects
                .iter()
                .filter(|object| lines.shape.selection.takes(object));
            lines.first = taken
                .map(|object| lines.shape.event("ADDED", object))
                .collect();
        }
        if initial == Initial::List {
            let mut mark = lines.bookmark();
            mark["object"]["metadata"]["annotations"] =
                json!({"k8s.io/initial-events-end": "true"});
            lines.first.push(mark);
        }
        lines
    }

    /// Returns what happened since it was asked last; none if that is forgotten.
    pub(super) fn news(&mut self, store: &Store) -> Option<Vec<Value>> {
        let changes = store
            .history()
            .after(self.version, self.shape.call.resource.shelf)?;
        self.version = self.version.max(store.version());
        let mut lines = std::mem::take(&mut self.first);
        lines.extend(changes.iter().filter_map(|change| self.shape.line(change)));
        Some(lines)
    }

    pub(super) fn bookmark(&self) -> Value {
        let resource = self.shape.call.resource;
        let mut object = json!({"kind": resource.kind, "apiVersion": resource.api_version(),
            "metadata": {"resourceVersion": self.version.to_string(), "creationTimestamp": null}});
        if resource.shelf == "pods" {
            object["spec"] = json!({"containers": null});
            object["status"] = json!({});
        }
        json!({"type": "BOOKMARK", "object": object})
    }

    pub(super) fn expired(&self) -> Value {
        let message = format!("too old resource version: {}", self.version);
        json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": "Expired", "code": 410}})
    }
}

impl Shape {
    /// Returns what a change looks like from inside the selection: who leaves it is deleted, who enters it is added.
    fn line(&self, change: &Change) -> Option<Value> {
        let inside = |object: &Value| {
            let namespace = self.call.namespace();
            (namespace.is_empty() || object["metadata"]["namespace"] == namespace)
                && self.selection.takes(object)
        };
        let is = change.kind != Move::Deleted && inside(&change.object);
        let was = change.before.as_deref().is_some_and(inside);
        match (was, is) {
            (false, false) => None,
            (false, true) => Some(self.event("ADDED", &change.object)),
            (true, true) => Some(self.event("MODIFIED", &change.object)),
            (true, false) => {
                let mut last = Value::clone(change.before.as_deref()?);
                last["metadata"]["resourceVersion"] = json!(change.version.to_string());
                Some(self.event("DELETED", &last))
            }
        }
    }

    fn event(&self, kind: &str, object: &Value) -> Value {
        let object = verbs::shown(&self.call, object.clone());
        json!({"type": kind, "object": tables::one(self.call.resource, self.table, object)})
    }
}
