//! The lines of a watch: which events a client sees, and in which format.

use serde_json::{Value, json};

use super::WatchStart;
use crate::encoding::tables;
use crate::endpoints::request_info::RequestInfo;
use crate::endpoints::selectors::ListSelector;
use crate::store::{ChangeType, ObjectChange, VersionedStore};
use crate::verbs;

/// A watch's selection, and the format of its events.
pub(super) struct EventFormat {
    pub(super) call: RequestInfo,
    pub(super) selection: ListSelector,
    pub(super) table: tables::Representation,
}

/// A place in the history, moving on.
pub(super) struct WatchEvents {
    format: EventFormat,
    version: u64,
    first: Vec<Value>,
}

impl WatchEvents {
    pub(super) fn begin(
        store: &VersionedStore,
        format: EventFormat,
        initial: WatchStart,
    ) -> WatchEvents {
        let version = match initial {
            WatchStart::After(version) => version,
            WatchStart::Objects | WatchStart::List => store.version(),
        };
        let mut lines = WatchEvents {
            format,
            version,
            first: Vec::new(),
        };
        if initial == WatchStart::Objects || initial == WatchStart::List {
            let (resource, namespace) = (lines.format.call.resource, lines.format.call.namespace());
            let objects = store.list(resource, namespace);
            let taken = objects
                .iter()
                .filter(|object| lines.format.selection.takes(object));
            lines.first = taken
                .map(|object| lines.format.event("ADDED", object))
                .collect();
        }
        if initial == WatchStart::List {
            let mut mark = lines.bookmark();
            mark["object"]["metadata"]["annotations"] =
                json!({"k8s.io/initial-events-end": "true"});
            lines.first.push(mark);
        }
        lines
    }

    /// Returns what happened since it was asked last; none if that is forgotten.
    pub(super) fn next_events(&mut self, store: &VersionedStore) -> Option<Vec<Value>> {
        let changes = store
            .history()
            .after(self.version, self.format.call.resource.storage_key)?;
        self.version = self.version.max(store.version());
        let mut lines = std::mem::take(&mut self.first);
        lines.extend(changes.iter().filter_map(|change| self.format.line(change)));
        Some(lines)
    }

    pub(super) fn bookmark(&self) -> Value {
        let resource = self.format.call.resource;
        let mut object = json!({"kind": resource.kind, "apiVersion": resource.api_version(),
            "metadata": {"resourceVersion": self.version.to_string(), "creationTimestamp": null}});
        if resource.storage_key == "pods" {
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

impl EventFormat {
    /// Returns a change as seen through the selection: an object that leaves it is deleted, one that enters it added.
    fn line(&self, change: &ObjectChange) -> Option<Value> {
        let inside = |object: &Value| {
            let namespace = self.call.namespace();
            (namespace.is_empty() || object["metadata"]["namespace"] == namespace)
                && self.selection.takes(object)
        };
        let is = change.kind != ChangeType::Deleted && inside(&change.object);
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
