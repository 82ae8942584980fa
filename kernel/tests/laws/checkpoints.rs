//! Checkpoints: whole or not at all, never silently empty, never rewritten without need.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

use kernel::checkpoint::{
    CheckpointError, CheckpointFile, CheckpointWriter, Flaw, LoadOutcome, Saved, Schema, decode,
    parse,
};
use kernel::testing::run_paused;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

const SCHEMA: Schema = Schema {
    kind: 7,
    version: 2,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Record {
    name: String,
    restarts: u32,
    object: Vec<u8>,
}

fn record(name: &str) -> Record {
    let object = br#"{"kind":"Pod"}"#.to_vec();
    Record {
        name: name.to_owned(),
        restarts: 3,
        object,
    }
}

struct CheckpointDir {
    folder: TempDir,
}

impl CheckpointDir {
    fn new() -> CheckpointDir {
        CheckpointDir {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("pods")
    }

    fn store(&self, schema: Schema) -> CheckpointFile {
        CheckpointFile::new(self.path(), schema)
    }

    fn load(&self) -> LoadOutcome<Record> {
        self.store(SCHEMA).load().unwrap()
    }

    fn saved(schema: Schema) -> CheckpointDir {
        let dir = CheckpointDir::new();
        dir.store(schema).save(&record("a")).unwrap();
        dir
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn why(&self) -> String {
        match self.load() {
            LoadOutcome::SetAside { moved_to, why } => {
                assert!(moved_to.symlink_metadata().is_ok());
                assert!(self.path().symlink_metadata().is_err());
                why
            }
            LoadOutcome::Fresh | LoadOutcome::Found(_) => panic!("it was taken for good"),
        }
    }
}

#[test]
fn what_was_saved_is_loaded_by_the_next_process() {
    let dir = CheckpointDir::saved(SCHEMA);
    assert_eq!(dir.load(), LoadOutcome::Found(record("a")));
    assert_eq!(dir.names(), ["pods"]);
    let mode = fs::metadata(dir.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_missing_file_or_folder_is_a_fresh_start() {
    let dir = CheckpointDir::new();
    assert_eq!(dir.load(), LoadOutcome::Fresh);
    let mut deep = CheckpointFile::new(dir.folder.path().join("a/b/pods"), SCHEMA);
    assert_eq!(deep.load::<Record>().unwrap(), LoadOutcome::Fresh);
    assert!(matches!(deep.save(&record("a")), Ok(Saved::Written { .. })));
}

#[test]
fn an_unchanged_value_is_not_written_again_not_even_by_the_next_process() {
    let dir = CheckpointDir::saved(SCHEMA);
    let mut store = dir.store(SCHEMA);
    assert_eq!(store.load().unwrap(), LoadOutcome::Found(record("a")));
    assert_eq!(store.save(&record("a")).unwrap(), Saved::Unchanged);
    let Saved::Written { bytes } = store.save(&record("b")).unwrap() else {
        panic!("a change is written")
    };
    assert_eq!(store.save(&record("b")).unwrap(), Saved::Unchanged);
    let stats = store.stats();
    assert_eq!((stats.writes, stats.bytes, stats.skipped), (1, bytes, 2));
    fs::remove_file(dir.path()).unwrap();
    assert!(matches!(
        store.save(&record("b")),
        Ok(Saved::Written { .. })
    ));
}

#[test]
fn every_truncation_is_detected() {
    let whole = fs::read(CheckpointDir::saved(SCHEMA).path()).unwrap();
    let dir = CheckpointDir::new();
    for length in 0..whole.len() {
        fs::write(dir.path(), &whole[..length]).unwrap();
        dir.why();
    }
}

#[test]
fn every_single_flipped_bit_is_detected() {
    let whole = fs::read(CheckpointDir::saved(SCHEMA).path()).unwrap();
    let dir = CheckpointDir::new();
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(dir.path(), &bytes).unwrap();
        dir.why();
    }
}

#[test]
fn bytes_added_at_the_end_are_detected() {
    let dir = CheckpointDir::saved(SCHEMA);
    let mut bytes = fs::read(dir.path()).unwrap();
    bytes.push(0);
    fs::write(dir.path(), bytes).unwrap();
    assert!(dir.why().starts_with("its header announces"));
}

#[test]
fn a_newer_schema_is_refused_and_set_aside_whole() {
    let dir = CheckpointDir::saved(Schema {
        version: 3,
        ..SCHEMA
    });
    let whole = fs::read(dir.path()).unwrap();
    assert_eq!(
        dir.why(),
        "it has schema version 3, this program reads up to 2"
    );
    assert_eq!(dir.names(), ["pods.newer-1"]);
    assert_eq!(
        fs::read(dir.folder.path().join("pods.newer-1")).unwrap(),
        whole
    );
}

#[test]
fn an_older_schema_is_migrated_or_set_aside() {
    let older = Schema {
        version: 1,
        ..SCHEMA
    };
    let dir = CheckpointDir::saved(older);
    let migrated = dir.store(SCHEMA).load_migrating(|version, payload| {
        assert_eq!(version, 1);
        let old: Record = decode(payload)?;
        Ok(Record {
            restarts: old.restarts + 1,
            ..old
        })
    });
    assert_eq!(
        migrated.unwrap(),
        LoadOutcome::Found(Record {
            restarts: 4,
            ..record("a")
        })
    );
    assert_eq!(dir.why(), "it has schema version 1, this program reads 2");
    assert_eq!(dir.names(), ["pods.older-1"]);
}

#[test]
fn the_wrong_kind_is_refused() {
    let dir = CheckpointDir::saved(Schema { kind: 8, ..SCHEMA });
    assert_eq!(dir.why(), "it is of kind 8, expected 7");
}

#[test]
fn another_type_behind_the_same_schema_is_refused() {
    let dir = CheckpointDir::new();
    dir.store(SCHEMA).save(&"a text, and no record").unwrap();
    assert!(dir.why().starts_with("its content does not fit its schema"));
}

#[test]
fn whatever_stands_in_the_files_place_is_set_aside_unread() {
    let dir = CheckpointDir::new();
    fs::create_dir(dir.path()).unwrap();
    assert_eq!(dir.why(), "it is no checkpoint file: it is no regular file");
    symlink("/nowhere", dir.path()).unwrap();
    dir.why();
    let huge = fs::File::create(dir.path()).unwrap();
    huge.set_len(1 << 40).unwrap();
    dir.why();
}

#[test]
fn three_damaged_files_are_kept_the_newest_first() {
    let dir = CheckpointDir::new();
    for text in ["one", "two", "three", "four", "five"] {
        fs::write(dir.path(), text).unwrap();
        dir.why();
    }
    assert_eq!(
        dir.names(),
        ["pods.damaged-1", "pods.damaged-2", "pods.damaged-3"]
    );
    for (n, text) in [(1, "five"), (2, "four"), (3, "three")] {
        let aside = dir.folder.path().join(format!("pods.damaged-{n}"));
        assert_eq!(fs::read_to_string(aside).unwrap(), text);
    }
}

#[test]
fn what_a_killed_writer_left_behind_is_removed_and_never_loaded() {
    let dir = CheckpointDir::saved(SCHEMA);
    fs::write(dir.folder.path().join("pods.tmp-9"), "half").unwrap();
    assert_eq!(dir.load(), LoadOutcome::Found(record("a")));
    assert_eq!(dir.names(), ["pods"]);
}

#[test]
fn leftovers_of_any_name_do_not_keep_a_value_from_being_saved() {
    let dir = CheckpointDir::new();
    for ticket in 0..100 {
        fs::write(dir.folder.path().join(format!("pods.tmp-{ticket}")), "half").unwrap();
    }
    dir.store(SCHEMA).save(&record("a")).unwrap();
    assert_eq!(dir.load(), LoadOutcome::Found(record("a")));
}

#[test]
fn a_value_too_large_is_refused_and_the_old_file_stays() {
    let dir = CheckpointDir::saved(SCHEMA);
    let huge = Record {
        object: vec![0; kernel::checkpoint::LIMIT + 1],
        ..record("a")
    };
    let error = dir.store(SCHEMA).save(&huge).unwrap_err();
    assert!(!error.transient());
    assert!(matches!(error, CheckpointError::Encode { .. }));
    assert_eq!(dir.load(), LoadOutcome::Found(record("a")));
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_that_names_the_file() {
    let dir = CheckpointDir::new();
    fs::write(dir.folder.path().join("file"), "").unwrap();
    let mut store = CheckpointFile::new(dir.folder.path().join("file/pods"), SCHEMA);
    let error = store.save(&record("a")).unwrap_err();
    assert!(error.transient());
    assert!(
        error.to_string().starts_with("cannot write checkpoint /"),
        "{error}"
    );
}

#[test]
fn many_changes_make_one_write_an_interval() {
    run_paused(|| async {
        let dir = CheckpointDir::new();
        let interval = Duration::from_secs(10);
        let mut writer = CheckpointWriter::new(dir.store(SCHEMA), interval);
        let now = kernel::now();
        assert_eq!(writer.due(now), None);
        writer.mark();
        assert_eq!(writer.due(now), Some(Duration::ZERO));
        let writing = writer.begin(now, &record("a")).unwrap().unwrap();
        writer.mark();
        assert_eq!(writer.due(now), None, "one write at a time");
        assert!(matches!(
            writer.finish(writing.run().await),
            Ok(Saved::Written { .. })
        ));
        assert_eq!(writer.due(now), Some(interval));
        assert_eq!(writer.due(now + interval), Some(Duration::ZERO));
        assert!(
            writer
                .begin(now + interval, &record("a"))
                .unwrap()
                .is_none(),
            "unchanged"
        );
        assert_eq!(writer.due(now + interval), None);
        assert_eq!((writer.stats().writes, writer.stats().skipped), (1, 1));
        assert_eq!(dir.load(), LoadOutcome::Found(record("a")));
    });
}

#[test]
fn a_write_that_failed_is_due_again() {
    run_paused(|| async {
        let dir = CheckpointDir::new();
        fs::write(dir.folder.path().join("file"), "").unwrap();
        let store = CheckpointFile::new(dir.folder.path().join("file/pods"), SCHEMA);
        let mut writer = CheckpointWriter::new(store, Duration::from_secs(10));
        writer.mark();
        let now = kernel::now();
        let writing = writer.begin(now, &record("a")).unwrap().unwrap();
        assert!(writer.finish(writing.run().await).is_err());
        assert_eq!(writer.due(now), Some(Duration::from_secs(10)));
    });
}

#[test]
fn a_write_left_behind_by_a_predecessor_never_replaces_a_newer_file() {
    run_paused(|| async {
        let dir = CheckpointDir::new();
        let mut predecessor = CheckpointWriter::new(dir.store(SCHEMA), Duration::ZERO);
        let stale = predecessor
            .begin(kernel::now(), &record("stale"))
            .unwrap()
            .unwrap();
        dir.store(SCHEMA).save(&record("newer")).unwrap();
        drop(stale.run().await);
        assert_eq!(dir.load(), LoadOutcome::Found(record("newer")));
        assert_eq!(dir.names(), ["pods"]);
    });
}

proptest! {
    #[test]
    fn any_value_comes_back_as_it_was(name in ".*", restarts: u32, object: Vec<u8>) {
        let dir = CheckpointDir::new();
        let record = Record { name, restarts, object };
        dir.store(SCHEMA).save(&record).unwrap();
        prop_assert_eq!(dir.load(), LoadOutcome::Found(record));
    }

    #[test]
    fn any_bytes_are_refused_without_a_panic(bytes: Vec<u8>) {
        let refused: Result<Record, Flaw> = decode(&bytes);
        drop(refused);
        prop_assert!(parse::<Record>(SCHEMA, &bytes).is_err());
        let dir = CheckpointDir::new();
        fs::write(dir.path(), bytes).unwrap();
        dir.why();
    }
}
