//! The objects, and what happened to them: one counter of versions, one history for all watches.

mod history;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use history::{ChangeHistory, ChangeType, ObjectChange};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::kinds::Resource;

type ObjectMap = BTreeMap<(String, String), Arc<Value>>;

/// All objects of a server.
#[derive(Debug)]
pub(crate) struct VersionedStore {
    version: u64,
    shelves: BTreeMap<&'static str, ObjectMap>,
    history: ChangeHistory,
    /// Wakes the watches in the order in which they began to wait, which tokio's own `watch` does not.
    pulse: Arc<Notify>,
    names: u64,
}

impl VersionedStore {
    pub(crate) fn new(history: usize) -> VersionedStore {
        // A cluster is never at its first version when a client comes.
        let version = 100;
        VersionedStore {
            version,
            shelves: BTreeMap::new(),
            history: ChangeHistory::new(history, version),
            pulse: Arc::default(),
            names: 0,
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn history(&self) -> &ChangeHistory {
        &self.history
    }

    /// Returns what each change wakes. A `notified()` that is made before a look misses no change after it.
    pub(crate) fn pulse(&self) -> Arc<Notify> {
        Arc::clone(&self.pulse)
    }

    pub(crate) fn get(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<Value>> {
        self.shelves
            .get(resource.storage_key)?
            .get(&(namespace.to_string(), name.to_string()))
            .cloned()
    }

    /// Returns the objects of a namespace, or of all if it is empty, ordered by namespace and name.
    pub(crate) fn list(&self, resource: &Resource, namespace: &str) -> Vec<Arc<Value>> {
        let storage_key = self.shelves.get(resource.storage_key);
        let all = storage_key.into_iter().flatten();
        all.filter(|((of, _), _)| namespace.is_empty() || of == namespace)
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// Keeps an object, new or changed, under the next version.
    pub(crate) fn put(&mut self, resource: &Resource, mut object: Value) -> Arc<Value> {
        let version = self.next();
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let key = key_of(&object);
        let object = Arc::new(object);
        let before = self
            .shelves
            .entry(resource.storage_key)
            .or_default()
            .insert(key, object.clone());
        let kind = if before.is_some() {
            ChangeType::Modified
        } else {
            ChangeType::Added
        };
        self.publish(ObjectChange {
            version,
            storage_key: resource.storage_key,
            kind,
            object: object.clone(),
            before,
        });
        object
    }

    /// Removes an object; its DELETED event has its last state, and the version of the removal.
    pub(crate) fn remove(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<Value>> {
        let key = (namespace.to_string(), name.to_string());
        let before = self.shelves.get_mut(resource.storage_key)?.remove(&key)?;
        let version = self.next();
        let mut last = Value::clone(&before);
        last["metadata"]["resourceVersion"] = json!(version.to_string());
        let object = Arc::new(last);
        self.publish(ObjectChange {
            version,
            storage_key: resource.storage_key,
            kind: ChangeType::Deleted,
            object: object.clone(),
            before: Some(before),
        });
        Some(object)
    }

    /// Forgets what happened until now: watches from older versions are answered with 410.
    pub(crate) fn expire_history(&mut self) {
        // The version moves on, as it does in a cluster where others write.
        let version = self.next();
        self.history.expire(version);
        self.pulse.notify_waiters();
    }

    /// Returns five letters for a generated name, never the same twice.
    pub(crate) fn suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        self.names += 1;
        let mut number = self.names.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let letter = |_| {
            let at = usize::try_from(number % 27).unwrap_or_default();
            number /= 27;
            char::from(LETTERS[at])
        };
        (0..5).map(letter).collect()
    }

    fn next(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn publish(&mut self, change: ObjectChange) {
        self.history.add(change);
        self.pulse.notify_waiters();
    }
}

fn key_of(object: &Value) -> (String, String) {
    let field = |name: &str| {
        object["metadata"][name]
            .as_str()
            .unwrap_or_default()
            .to_string()
    };
    (field("namespace"), field("name"))
}
