//! Laws of the folder of objects, on real folders and with real inotify.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::SystemTime;

use kernel::testing::{pass, run_paused};
use kernel::{ChildSpec, InjectedFault, Intensity, Supervisor, mailbox, system};
use logic_api::objects::{MAX_FILE_BYTES, Objects};
use tempfile::TempDir;

use super::folder_reader::{FileReading, FileRefusal, MOST_FILES};
use super::*;

/// For what inotify brings.
const SOON: Duration = Duration::from_secs(5);
/// Reads of the store until something comes true; far more than any test needs.
const MOST_CHANGES: usize = 20;

fn map(name: &str, value: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {{k: {value}}}}}\n"
    )
}

fn value(objects: &dyn Objects, name: &str) -> Option<String> {
    let map = objects.config_map("default", name)?;
    map.data.as_ref()?.get("k").cloned()
}

struct Rig {
    folder: TempDir,
    root: Supervisor,
    store: ObjectStore,
    changes: Changes,
}

impl Rig {
    /// Keeps the folder `name` in a temporary one that `prepare` fills.
    fn new(name: &str, prepare: impl FnOnce(&Path)) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        let path = folder.path().join(name);
        let (supply, store) = ObjectStore::new(load(path.to_str().unwrap()));
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let (_, port) = mailbox(MAILBOX);
        root.spawn(ChildSpec::permanent("objects"), port, move || {
            ObjectFolder::new(path.clone(), supply.clone())
        });
        Rig {
            folder,
            root,
            changes: store.changes(),
            store,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// As an editor or `mv` would: whole, in one step.
    fn put(&self, name: &str, text: &str) {
        let hidden = self.path(".new");
        fs::write(&hidden, text).unwrap();
        fs::rename(hidden, self.path(name)).unwrap();
    }

    /// Waits until this is what is at hand.
    async fn until(&mut self, is_so: impl Fn(&ObjectStore) -> bool) {
        for _ in 0..MOST_CHANGES {
            if is_so(&self.store) {
                return;
            }
            let next = tokio::time::timeout(SOON, self.changes.next()).await;
            assert!(next.is_ok(), "nothing changed");
        }
        panic!("it did not come true");
    }

    async fn view(&self) -> serde_json::Value {
        let tree = self.root.tree().await;
        let node = tree.find("test/objects").expect("the folder has a keeper");
        node.snapshot.clone()
    }

    /// What is wrong, without the folder's own path.
    async fn refused(&self) -> Vec<String> {
        let view = self.view().await;
        let list: Vec<String> = serde_json::from_value(view["refused"].clone()).unwrap();
        let folder = format!("{}/", self.folder.path().display());
        list.iter().map(|text| text.replace(&folder, "")).collect()
    }
}

fn with_folder(prepare: impl FnOnce(&Path), test: impl AsyncFnOnce(Rig)) {
    system::run(async move { test(Rig::new("", prepare)).await }).unwrap();
}

/// On a clock of its own, where no file seems to have been written lately.
fn paused(prepare: impl FnOnce(&Path), test: impl AsyncFnOnce(Rig)) {
    run_paused(|| async move {
        let rig = Rig::new("", prepare);
        pass(SOON).await;
        test(rig).await;
    });
}

fn is(name: &'static str, expected: &'static str) -> impl Fn(&ObjectStore) -> bool {
    move |shelf| value(shelf, name).as_deref() == Some(expected)
}

fn is_gone(name: &'static str) -> impl Fn(&ObjectStore) -> bool {
    move |shelf| value(shelf, name).is_none()
}

#[test]
fn a_bad_file_hides_no_good_one_and_the_first_name_stays() {
    let fill = |folder: &Path| {
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        write(
            "a.yaml",
            &format!("{}---\n{}", map("one", "a"), map("two", "a")),
        );
        write("b.json", "{\"apiVersion\": \"v1\", \"kind\": \"Pod\"}");
        write("c.yml", &map("one", "c"));
        write("d.yaml", &format!("{}---\nnonsense\n", map("three", "d")));
        write("e.txt", &map("four", "e"));
        write("f.yaml", &"x".repeat(MAX_FILE_BYTES + 1));
        write(".g.yaml", &map("four", "g"));
        fs::create_dir(folder.join("h.yaml")).unwrap();
        symlink("/dev/zero", folder.join("i.yaml")).unwrap();
        symlink("/nowhere", folder.join("j.yaml")).unwrap();
    };
    paused(fill, async |rig| {
        for (name, expected) in [("one", "a"), ("two", "a"), ("three", "d")] {
            assert_eq!(value(&rig.store, name).as_deref(), Some(expected));
        }
        assert_eq!(rig.store.snapshot().config_maps.len(), 3);
        let refused = rig.refused().await;
        let expected = [
            "b.json: document 1: found v1 Pod, expected",
            "c.yml: ConfigMap default/one stands in a file before it already",
            "d.yaml: document 2: found nothing nothing, expected",
            "f.yaml: the file has more than 10485760 bytes",
            "h.yaml: found a folder, expected a regular file",
            "i.yaml: found a device, expected a regular file",
            "j.yaml: found a link whose target is missing, expected a regular file",
        ];
        assert_eq!(refused.len(), expected.len(), "{refused:?}");
        for (said, expected) in refused.iter().zip(expected) {
            assert!(said.starts_with(expected), "{said}");
        }
    });
}

#[test]
fn a_folder_that_is_not_there_holds_nothing() {
    for folder in ["", "/nonexistent/objects"] {
        assert!(load(folder).is_empty());
    }
}

#[test]
fn files_beyond_the_bound_are_left_out_and_that_is_told() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..=MOST_FILES {
        let text = map(&format!("m{number:04}"), "x");
        fs::write(folder.path().join(format!("{number:04}.yaml")), text).unwrap();
    }
    let objects = load(folder.path().to_str().unwrap());
    assert_eq!(objects.len(), MOST_FILES);
    assert_eq!(value(&objects, &format!("m{MOST_FILES:04}")), None);
    assert!(value(&objects, "m0000").is_some());

    let (path, mut left) = (folder.path().join("0000.yaml"), 100);
    let reader = reader(folder.path(), kernel::wall());
    assert!(matches!(
        reader.read_if_changed(&path, &mut left),
        Ok(FileReading::Read { .. })
    ));
    assert!(matches!(
        reader.read_if_changed(&path, &mut left),
        Err(FileRefusal::TooMuch)
    ));
}

fn reader(folder: &Path, now: SystemTime) -> FolderReader {
    FolderReader {
        folder: folder.into(),
        known: BTreeMap::new(),
        now,
    }
}

#[test]
fn a_change_is_seen_at_once_and_what_did_not_change_is_the_same_object() {
    let fill = |folder: &Path| {
        fs::write(folder.join("a.yaml"), map("one", "first")).unwrap();
        fs::write(folder.join("b.yaml"), map("two", "first")).unwrap();
    };
    with_folder(fill, async |mut rig| {
        let before = rig.store.snapshot();
        rig.put("a.yaml", &map("one", "second"));
        rig.until(is("one", "second")).await;
        let after = rig.store.snapshot();
        let key = ("default".to_owned(), "two".to_owned());
        assert!(Arc::ptr_eq(
            &before.config_maps[&key],
            &after.config_maps[&key]
        ));

        rig.put("c.json", &map("three", "new"));
        rig.until(is("three", "new")).await;
        fs::remove_file(rig.path("a.yaml")).unwrap();
        rig.until(is_gone("one")).await;
        assert_eq!(value(&rig.store, "two").as_deref(), Some("first"));
    });
}

/// A writer that writes in place: what is not written yet is not missed.
#[test]
fn a_file_that_is_being_written_takes_nothing_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    let look = |text: &str, age: Duration| {
        fs::write(&path, text).unwrap();
        let changed = fs::metadata(&path).unwrap().modified().unwrap();
        let reader = reader(folder.path(), changed + age);
        reader.read_if_changed(&path, &mut 1000).unwrap()
    };
    let (young, old) = (Duration::from_millis(100), Duration::from_secs(1));
    let both = format!("{}---\n{}", map("one", "a"), map("two", "a"));
    let held = ManifestFile::default().after(look(&both, old));
    assert!(held.settled && held.stamp.is_some());

    let held = held.after(look("", young));
    assert!(!held.settled && held.stamp.is_none());
    assert_eq!(held.objects.len(), 2);
    let held = held.after(look(&map("one", "b"), young));
    assert_eq!(value(&held.objects, "one").as_deref(), Some("b"));
    assert_eq!(value(&held.objects, "two").as_deref(), Some("a"));

    let held = held.after(look(&map("one", "b"), old));
    assert_eq!(held.objects.len(), 1);
}

#[test]
fn what_a_file_held_stays_while_it_is_bad_and_goes_with_it() {
    let fill = |folder: &Path| {
        let both = format!("{}---\n{}", map("one", "a"), map("two", "a"));
        fs::write(folder.join("a.yaml"), both).unwrap();
    };
    paused(fill, async |mut rig| {
        rig.put("a.yaml", &format!("{}---\n[]\n", map("one", "b")));
        rig.until(is("one", "b")).await;
        assert_eq!(rig.refused().await.len(), 1);
        assert_eq!(value(&rig.store, "two").as_deref(), Some("a"));
        rig.put("a.yaml", &map("one", "c"));
        rig.until(is_gone("two")).await;
        assert_eq!(value(&rig.store, "one").as_deref(), Some("c"));

        rig.put("a.yaml", "{");
        rig.put("b.yaml", &map("three", "b"));
        rig.until(is("three", "b")).await;
        assert_eq!(value(&rig.store, "one").as_deref(), Some("c"));
        fs::remove_file(rig.path("a.yaml")).unwrap();
        rig.until(is_gone("one")).await;
    });
}

#[test]
fn a_keeper_that_restarts_takes_nothing_away_because_a_file_is_bad() {
    let fill = |folder: &Path| {
        fs::write(folder.join("a.yaml"), map("one", "a")).unwrap();
    };
    with_folder(fill, async |mut rig| {
        rig.put("b.yaml", &map("two", "a"));
        rig.until(is("two", "a")).await;
        rig.put("a.yaml", "{");
        rig.root
            .inject("test/objects", InjectedFault::Panic)
            .unwrap();
        rig.put("c.yaml", &map("three", "a"));
        rig.until(is("three", "a")).await;
        assert_eq!(value(&rig.store, "one").as_deref(), Some("a"));
        rig.put("a.yaml", "");
        rig.until(is_gone("one")).await;
        assert_eq!(value(&rig.store, "two").as_deref(), Some("a"));
    });
}

#[test]
fn what_is_immutable_is_changed_only_by_taking_it_away() {
    let closed = |value: &str| map("one", value).replace("data:", "immutable: true, data:");
    let fill = |folder: &Path| {
        fs::write(
            folder.join("a.yaml"),
            closed("a").replace("metaimmutable: true, data", "metadata"),
        )
        .unwrap();
    };
    paused(fill, async |mut rig| {
        rig.put("a.yaml", &map("one", "b"));
        rig.put("b.yaml", &map("two", "b"));
        rig.until(is("two", "b")).await;
        assert_eq!(value(&rig.store, "one").as_deref(), Some("a"));
        let refused = rig.refused().await;
        assert!(
            refused[0].starts_with("ConfigMap default/one: immutable: field is immutable"),
            "{refused:?}"
        );
        fs::remove_file(rig.path("a.yaml")).unwrap();
        rig.until(is_gone("one")).await;
        rig.put("a.yaml", &map("one", "b"));
        rig.until(is("one", "b")).await;
    });
}

#[test]
fn a_folder_may_come_and_go() {
    run_paused(|| async {
        let mut rig = Rig::new("later", |_| {});
        pass(SOON).await;
        assert_eq!(rig.refused().await, ["later does not exist"]);
        fs::create_dir(rig.path("later")).unwrap();
        fs::write(rig.path("later/a.yaml"), map("one", "a")).unwrap();
        pass(PACE.missing).await;
        assert_eq!(value(&rig.store, "one").as_deref(), Some("a"));
        rig.put("later/a.yaml", &map("one", "b"));
        rig.until(is("one", "b")).await;
        fs::rename(rig.path("later"), rig.path("elsewhere")).unwrap();
        rig.until(is_gone("one")).await;
    });
}

/// A volume of Kubernetes that holds the manifests swaps them all at once.
#[test]
fn a_folder_that_is_swapped_is_read_and_watched_anew() {
    let fill = |folder: &Path| {
        for version in ["v1", "v2"] {
            fs::create_dir(folder.join(version)).unwrap();
            let text = map("one", version);
            fs::write(folder.join(version).join("a.yaml"), text).unwrap();
        }
        symlink("v1", folder.join("now")).unwrap();
    };
    run_paused(|| async move {
        let mut rig = Rig::new("now", fill);
        pass(SOON).await;
        assert_eq!(value(&rig.store, "one").as_deref(), Some("v1"));
        symlink("v2", rig.path("next")).unwrap();
        fs::rename(rig.path("next"), rig.path("now")).unwrap();
        // Nothing tells of it but the period.
        pass(PERIOD).await;
        assert_eq!(value(&rig.store, "one").as_deref(), Some("v2"));
        fs::write(rig.path("v2/a.yaml"), map("one", "v3")).unwrap();
        rig.until(is("one", "v3")).await;
    });
}

#[test]
fn a_shelf_that_nobody_changes_lets_those_who_wait_wait() {
    run_paused(|| async {
        let mut objects = StaticObjects::default();
        let text = map("one", "a");
        drop(objects.merge(logic_api::objects::parse(text.as_bytes()).objects));
        let shelf = ObjectStore::fixed(objects);
        assert_eq!(value(&shelf, "one").as_deref(), Some("a"));
        let mut changes = shelf.changes();
        let waited = tokio::time::timeout(Duration::from_secs(3600), changes.next()).await;
        assert!(waited.is_err());
    });
}

#[test]
fn several_changes_are_told_as_one() {
    run_paused(|| async {
        let (supply, shelf) = ObjectStore::new(StaticObjects::default());
        let mut changes = shelf.changes();
        for _ in 0..3 {
            supply.send_replace(Arc::default());
        }
        changes.next().await;
        let more = tokio::time::timeout(Duration::from_secs(1), changes.next()).await;
        assert!(more.is_err());
    });
}
