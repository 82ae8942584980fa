//! Objects of the API that pods refer to, as far as they are at hand.
//!
//! A decision asks [`Objects`], whoever fills it: today a folder of manifests, later the API server.

mod parse;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::node::v1::RuntimeClass;

pub use parse::{MAX_FILE_BYTES, MAX_OBJECT_BYTES, ObjectError, Parsed, parse};

/// What can be looked up. None means: there is no such object.
pub trait Objects: fmt::Debug + Send + Sync {
    fn config_map(&self, namespace: &str, name: &str) -> Option<Arc<ConfigMap>>;
    fn secret(&self, namespace: &str, name: &str) -> Option<Arc<Secret>>;
    fn runtime_class(&self, name: &str) -> Option<Arc<RuntimeClass>>;
    /// Every service of every namespace, in the order of namespace and name.
    fn services(&self) -> Vec<Arc<Service>>;
}

/// Namespace and name.
type Key = (String, String);

/// Objects that do not change.
#[derive(Clone, Debug, Default)]
pub struct StaticObjects {
    pub config_maps: BTreeMap<Key, Arc<ConfigMap>>,
    pub secrets: BTreeMap<Key, Arc<Secret>>,
    pub services: BTreeMap<Key, Arc<Service>>,
    pub runtime_classes: BTreeMap<String, Arc<RuntimeClass>>,
}

impl StaticObjects {
    /// Takes over what is not known yet; answers with the names of what was.
    pub fn merge(&mut self, other: Self) -> Vec<String> {
        let Self {
            config_maps,
            secrets,
            services,
            runtime_classes,
        } = other;
        let mut known = take_over("ConfigMap", &mut self.config_maps, config_maps, name_of);
        known.extend(take_over("Secret", &mut self.secrets, secrets, name_of));
        known.extend(take_over("Service", &mut self.services, services, name_of));
        let classes = &mut self.runtime_classes;
        known.extend(take_over(
            "RuntimeClass",
            classes,
            runtime_classes,
            String::clone,
        ));
        known
    }
}

fn name_of((namespace, name): &Key) -> String {
    format!("{namespace}/{name}")
}

fn take_over<K: Ord, V>(
    kind: &str,
    own: &mut BTreeMap<K, V>,
    other: BTreeMap<K, V>,
    name_of: fn(&K) -> String,
) -> Vec<String> {
    let mut known = Vec::new();
    for (key, value) in other {
        match own.entry(key) {
            Entry::Occupied(held) => known.push(format!("{kind} {}", name_of(held.key()))),
            Entry::Vacant(free) => drop(free.insert(value)),
        }
    }
    known
}

impl Objects for StaticObjects {
    fn config_map(&self, namespace: &str, name: &str) -> Option<Arc<ConfigMap>> {
        self.config_maps.get(&key(namespace, name)).cloned()
    }

    fn secret(&self, namespace: &str, name: &str) -> Option<Arc<Secret>> {
        self.secrets.get(&key(namespace, name)).cloned()
    }

    fn runtime_class(&self, name: &str) -> Option<Arc<RuntimeClass>> {
        self.runtime_classes.get(name).cloned()
    }

    fn services(&self) -> Vec<Arc<Service>> {
        self.services.values().cloned().collect()
    }
}

fn key(namespace: &str, name: &str) -> Key {
    (namespace.to_owned(), name.to_owned())
}
