//! Records on a real disk.

use std::fs;

use proto::cri::{PodSandboxConfig, PodSandboxMetadata};

use super::*;
use crate::layout::Layout;

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
    let layout = Layout::make(home, &home.join("stages")).unwrap();
    RecordStore::new(layout.sandboxes(), layout)
}

/// The id with these first digits.
fn id(digits: &str) -> String {
    format!("{digits:0<64}")
}

#[test]
fn a_record_comes_back_as_it_was_written() {
    let home = tempfile::tempdir().unwrap();
    let store = store(home.path());
    let a = id("a");
    store.write(&record(&a)).unwrap();
    let mut changed = record(&a);
    changed.phase = SandboxPhase::NotReady;
    store.write(&changed).unwrap();
    assert_eq!(store.read_all::<SandboxRecord>().unwrap().sound, [changed]);
    let tree = store.remove(&a).unwrap();
    assert_eq!(
        tree,
        Some(home.path().join("removing").join(format!("{a}.0")))
    );
    assert_eq!(store.remove(&a).unwrap(), None);
    let left = store.read_all::<SandboxRecord>().unwrap();
    assert!(left.sound.is_empty() && left.lost.is_empty());
}

#[test]
fn a_damaged_record_is_set_aside_and_hides_no_other() {
    let home = tempfile::tempdir().unwrap();
    let store = store(home.path());
    let (a, b) = (id("a"), id("b"));
    store.write(&record(&b)).unwrap();
    let whole = serde_json::to_vec(&record(&a)).unwrap();
    let other = serde_json::to_vec(&record(&b)).unwrap();
    let (half, tail) = (&whole[..whole.len() / 2], [&whole[..], b"tail"].concat());
    for damage in [b"", half, &tail, b"\0\0", &other] {
        store.write(&record(&a)).unwrap();
        let path = home.path().join("sandboxes").join(&a).join("record.json");
        fs::write(&path, damage).unwrap();
        let read = store.read_all::<SandboxRecord>().unwrap();
        assert_eq!((read.sound, read.lost), (vec![record(&b)], vec![a.clone()]));
        let kept = home
            .path()
            .join("damaged")
            .join(format!("sandbox-{a}.json"));
        assert_eq!(fs::read(kept).unwrap(), damage);
        assert!(!path.exists() && path.parent().unwrap().exists());
    }
}

#[test]
fn what_lies_in_a_records_place_is_neither_followed_nor_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let store = store(home.path());
    let folder = home.path().join("sandboxes");
    for name in ["a", "b", "c", "d"].map(id) {
        fs::create_dir(folder.join(name)).unwrap();
    }
    let at = |digits: &str| folder.join(id(digits)).join("record.json");
    std::os::unix::fs::symlink("/etc/passwd", at("a")).unwrap();
    nix::unistd::mkfifo(&at("b"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    fs::File::create(at("c")).unwrap().set_len(1 << 40).unwrap();
    fs::create_dir(folder.join("lost+found")).unwrap();
    fs::write(folder.join(id("e")), "a file").unwrap();
    let read = store.read_all::<SandboxRecord>().unwrap();
    let lost: std::collections::BTreeSet<_> = read.lost.into_iter().collect();
    assert_eq!(lost, ["a", "b", "c", "d"].map(id).into());
    assert!(folder.join("lost+found").exists());
}

#[test]
fn the_latest_damaged_records_are_kept() {
    let home = tempfile::tempdir().unwrap();
    let store = store(home.path());
    for number in 0..40 {
        let name = id(&format!("{number:02}"));
        store.write(&record(&name)).unwrap();
        fs::write(
            home.path()
                .join("sandboxes")
                .join(&name)
                .join("record.json"),
            "",
        )
        .unwrap();
        store.read_all::<SandboxRecord>().unwrap();
        fs::remove_dir(home.path().join("sandboxes").join(&name)).unwrap();
    }
    let kept = fs::read_dir(home.path().join("damaged")).unwrap();
    assert_eq!(kept.count(), 32);
}

#[test]
fn a_write_that_was_cut_leaves_the_old_record_or_none() {
    let home = tempfile::tempdir().unwrap();
    let store = store(home.path());
    let (a, b) = (id("a"), id("b"));
    store.write(&record(&a)).unwrap();
    let folder = home.path().join("sandboxes");
    fs::write(folder.join(&a).join("record.json.new"), "{\"i").unwrap();
    fs::create_dir(folder.join(&b)).unwrap();
    fs::write(folder.join(&b).join("record.json.new"), "{\"i").unwrap();
    let read = store.read_all::<SandboxRecord>().unwrap();
    assert_eq!((read.sound, read.lost), (vec![record(&a)], vec![b]));
    let kept = fs::read_dir(home.path().join("damaged")).unwrap();
    assert_eq!(kept.count(), 0);
}

#[test]
fn a_record_that_could_not_be_read_again_is_not_written() {
    let home = tempfile::tempdir().unwrap();
    let store = store(home.path());
    let mut long = record(&id("a"));
    long.handler = "x".repeat(9 << 20);
    store.write(&long).unwrap_err();
    assert!(!home.path().join("sandboxes").join(id("a")).exists());
}

#[test]
fn a_start_is_noted_and_a_note_that_is_damaged_counts_for_none() {
    let home = tempfile::tempdir().unwrap();
    let store = store(home.path());
    let a = id("a");
    store.write(&record(&a)).unwrap();
    assert_eq!(store.noted_start(&a), 0);
    store.note_start(&a, 1_795_000_000_000_000_000).unwrap();
    assert_eq!(store.noted_start(&a), 1_795_000_000_000_000_000);
    for damage in [
        "",
        "179500000000",
        "17950000000000000000000\n",
        "1795tail\n",
        "-5\n",
    ] {
        fs::write(
            home.path().join("sandboxes").join(&a).join("started"),
            damage,
        )
        .unwrap();
        assert_eq!(store.noted_start(&a), 0, "{damage}");
    }
}

#[test]
fn ids_are_64_hexadecimal_digits_and_differ() {
    let (one, two) = (new_id().unwrap(), new_id().unwrap());
    assert!(one.len() == 64 && one.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_ne!(one, two);
}
