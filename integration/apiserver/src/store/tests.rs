//! Versions and history.

use serde_json::json;

use super::{ChangeType, VersionedStore};
use crate::kinds::core;

fn config_map(name: &str) -> serde_json::Value {
    json!({"metadata": {"name": name, "namespace": "default"}})
}

#[test]
fn every_write_has_the_next_version_of_one_counter() {
    let mut store = VersionedStore::new(10);
    let (maps, pods) = (core("configmaps"), core("pods"));
    let first = store.put(maps, config_map("a"));
    let second = store.put(pods, config_map("a"));
    let gone = store.remove(maps, "default", "a").unwrap();
    let versions: Vec<u64> = [first, second, gone]
        .iter()
        .map(|object| {
            object["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    assert_eq!(versions, [101, 102, 103]);
    assert!(store.get(maps, "default", "a").is_none());
    assert!(store.get(pods, "default", "a").is_some());
}

#[test]
fn the_history_is_of_one_shelf_and_after_a_version() {
    let mut store = VersionedStore::new(10);
    store.put(core("configmaps"), config_map("a"));
    store.put(core("pods"), config_map("a"));
    store.put(core("configmaps"), config_map("a"));
    let moves = |after| {
        store
            .history()
            .after(after, "configmaps")
            .unwrap()
            .iter()
            .map(|change| change.kind)
            .collect::<Vec<_>>()
    };
    assert_eq!(moves(100), [ChangeType::Added, ChangeType::Modified]);
    assert_eq!(moves(101), [ChangeType::Modified]);
    assert_eq!(moves(103), []);
}

#[test]
fn what_is_forgotten_is_not_an_empty_history() {
    let mut store = VersionedStore::new(2);
    for name in ["a", "b", "c"] {
        store.put(core("configmaps"), config_map(name));
    }
    assert!(store.history().after(100, "configmaps").is_none());
    assert_eq!(store.history().after(101, "configmaps").unwrap().len(), 2);
    store.expire_history();
    assert!(store.history().after(103, "configmaps").is_none());
    assert_eq!(
        store
            .history()
            .after(store.version(), "configmaps")
            .unwrap()
            .len(),
        0
    );
}

#[test]
fn generated_names_differ() {
    let mut store = VersionedStore::new(1);
    let names: std::collections::BTreeSet<String> = (0..1000).map(|_| store.suffix()).collect();
    assert_eq!(names.len(), 1000);
}
