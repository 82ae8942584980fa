//! Records on a real disk.

use std::fs;

use proto::cri::{PodSandboxConfig, PodSandboxMetadata};

use super::*;

fn record(id: &str) -> SandboxRecord {
    SandboxRecord {
        id: id.to_owned(),
        name: "web_default_u_0".to_owned(),
        phase: SandboxPhase::Ready,
        config: Wire(PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: "web".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        }),
        handler: String::new(),
        created: 1,
        boot: "b".to_owned(),
        addresses: vec!["10.0.0.1".to_owned()],
        attached: true,
    }
}

fn store(home: &std::path::Path) -> RecordStore {
    let (folder, damaged) = (home.join("sandboxes"), home.join("damaged"));
    fs::create_dir_all(&folder).unwrap();
    fs::create_dir_all(&damaged).unwrap();
    RecordStore::new(folder, damaged)
}

#[test]
fn a_record_comes_back_as_it_was_written() {
    let home = tempfile::tempdir().unwrap();
    let store = store(home.path());
    store.write("a", &record("a")).unwrap();
    let mut changed = record("a");
    changed.phase = SandboxPhase::NotReady;
    store.write("a", &changed).unwrap();
    assert_eq!(store.read_all::<SandboxRecord>().unwrap(), [changed]);
    store.remove("a").unwrap();
    store.remove("a").unwrap();
    assert!(store.read_all::<SandboxRecord>().unwrap().is_empty());
}

#[test]
fn a_damaged_record_is_set_aside_and_hides_no_other() {
    let home = tempfile::tempdir().unwrap();
    let store = store(home.path());
    for id in ["a", "b"] {
        store.write(id, &record(id)).unwrap();
    }
    fs::write(home.path().join("sandboxes/a/record.json"), "{\"id\":").unwrap();
    let read = store.read_all::<SandboxRecord>().unwrap();
    assert_eq!(read, [record("b")]);
    assert!(home.path().join("damaged/a/record.json").exists());
}

#[test]
fn a_write_that_was_cut_leaves_the_old_record_or_none() {
    let home = tempfile::tempdir().unwrap();
    let store = store(home.path());
    store.write("a", &record("a")).unwrap();
    fs::write(home.path().join("sandboxes/a/record.json.new"), "{\"i").unwrap();
    fs::create_dir(home.path().join("sandboxes/b")).unwrap();
    fs::create_dir(home.path().join("sandboxes/c")).unwrap();
    fs::write(home.path().join("sandboxes/c/record.json.new"), "{\"i").unwrap();
    assert_eq!(store.read_all::<SandboxRecord>().unwrap(), [record("a")]);
    let left = fs::read_dir(home.path().join("damaged")).unwrap();
    assert_eq!(left.count(), 0);
    assert!(!home.path().join("sandboxes/c").exists());
}

#[test]
fn ids_are_64_hexadecimal_digits_and_differ() {
    let (one, two) = (new_id().unwrap(), new_id().unwrap());
    assert!(one.len() == 64 && one.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_ne!(one, two);
}
