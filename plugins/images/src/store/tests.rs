//! The store through crashes at every step, damaged files, full disks and collections.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::*;
use crate::archive::ArchiveError;
use crate::testing::{Faults, ImageBuilder, Tar, docker_archive, file_layer, limits, store};
use crate::{LayerError, Platform};

struct Rig {
    home: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        Self { home }
    }

    fn root(&self) -> PathBuf {
        self.home.path().join("store")
    }

    fn archive(&self, name: &str, image: &ImageBuilder, tag: &str) -> PathBuf {
        let path = self.home.path().join(name);
        fs::write(&path, docker_archive(image, tag)).unwrap();
        path
    }
}

async fn import(store: &Store, archive: &Path) -> Result<Image, ArchiveError> {
    let imported = store.import(archive, None, &Platform::host()).await;
    imported.map(|mut images| images.remove(0))
}

/// An image whose lowest layer is the same as of every other one of these.
fn image(name: &str) -> ImageBuilder {
    let mut base = Tar::default().folder("d", 0o755);
    for number in 0..10 {
        base = base.file(&format!("d/{number}"), b"base");
    }
    let top = Tar::default()
        .file("name", name.as_bytes())
        .hard_link("linked", "d/1")
        .file("d/new", b"1");
    let top = (0..60).fold(top, |top, number| top.file(&format!("{number}"), b"top"));
    ImageBuilder::plain(vec![base.end(), top.end()])
}

/// Panics unless everything that the image needs is there as it was made.
async fn assert_whole(store: &Store, image: &Image, name: &str) {
    let config = store.config(image).await.unwrap();
    assert_eq!(config.diff_ids().len(), 2);
    let folders = store.rootfs(image).unwrap();
    assert_eq!(fs::read_to_string(folders[0].join("name")).unwrap(), name);
    assert_eq!(
        fs::read_to_string(folders[0].join("linked")).unwrap(),
        "base"
    );
    for number in 0..10 {
        assert_eq!(
            fs::read_to_string(folders[1].join(format!("d/{number}"))).unwrap(),
            "base"
        );
    }
}

/// Everything that changes a store once; ends at the first step that fails.
async fn change_everything(store: &Store, second: &Path, third: &Path) -> Option<()> {
    let two = import(store, second).await.ok()?;
    store.lease("two", &two.id).await.ok()?;
    let three = import(store, third).await.ok()?;
    store.pin("three:1", true).await.ok()?;
    store
        .tag("three:1", &"other:1".parse().unwrap())
        .await
        .ok()?;
    store.remove("two:1").await.ok()?;
    store.collect().await.ok()?;
    store.unlease("two").await.ok()?;
    store.collect().await.ok()?;
    store.pin(&three.id.to_string(), false).await.ok()?;
    store.remove("other:1").await.ok()?;
    store.collect().await.ok()?;
    Some(())
}

#[tokio::test]
async fn a_crash_at_any_step_leaves_whole_images_and_what_is_leased() {
    let rig = Rig::new();
    let first = rig.archive("one.tar", &image("one"), "one:1");
    let second = rig.archive("two.tar", &image("two"), "two:1");
    let third = rig.archive("three.tar", &image("three"), "three:1");
    let mut cuts = 0;
    for step in 1.. {
        let root = rig.home.path().join(step.to_string());
        let before = store(&root);
        let one = import(&before, &first).await.unwrap();
        before.lease("one", &one.id).await.unwrap();
        before.remove("one:1").await.unwrap();
        drop(before);
        let faults = Arc::new(Faults::after(step));
        let disk = Disk {
            faults: Some(faults.clone()),
        };
        let ended = match Store::open_on(&root, limits(), disk) {
            Ok(store) => change_everything(&store, &second, &third).await,
            Err(_) => None,
        };
        if !faults.is_cut() {
            ended.expect("nothing failed");
            break;
        }
        faults.lose();
        cuts += 1;
        let after = store(&root);
        assert_eq!(after.damage(), [], "cut before step {step}");
        assert_whole(&after, &after.leased("one").unwrap(), "one").await;
        for found in after.list().into_iter().chain(after.leased("two")) {
            let name = if found.id == image("two").id() {
                "two"
            } else {
                "three"
            };
            assert_whole(&after, &found, name).await;
        }
        let collected = after.collect().await.unwrap();
        assert_eq!(collected.suspended, None);
        assert_whole(&after, &after.leased("one").unwrap(), "one").await;
        assert_nothing_left_over(&after, &root);
        drop(after);
        fs::remove_dir_all(&root).unwrap();
    }
    assert!(cuts > 200, "{cuts} cuts");
}

fn assert_nothing_left_over(store: &Store, root: &Path) {
    for folder in ["scratch", "trash", "damaged"] {
        assert_eq!(
            fs::read_dir(root.join(folder)).unwrap().count(),
            0,
            "{folder}"
        );
    }
    let state = store.inner().state();
    let layers: BTreeSet<_> = state
        .images
        .values()
        .flat_map(|image| image.chains.clone())
        .collect();
    assert_eq!(
        fs::read_dir(root.join("layers")).unwrap().count(),
        layers.len()
    );
    let blobs: BTreeSet<_> = state
        .images
        .values()
        .flat_map(|image| image.blobs().cloned().collect::<Vec<_>>())
        .collect();
    assert_eq!(
        fs::read_dir(root.join("blobs/sha256")).unwrap().count(),
        blobs.len()
    );
}

#[tokio::test]
async fn layers_are_kept_once_and_as_long_as_somebody_needs_them() {
    let rig = Rig::new();
    let store = store(&rig.root());
    let one = import(&store, &rig.archive("one.tar", &image("one"), "one:1"))
        .await
        .unwrap();
    let before = store.usage();
    let two = import(&store, &rig.archive("two.tar", &image("two"), "two:1"))
        .await
        .unwrap();
    assert!(
        store.usage().bytes - before.bytes < two.bytes,
        "the base was there"
    );
    assert_eq!(fs::read_dir(rig.root().join("layers")).unwrap().count(), 3);
    store.lease("container", &one.id).await.unwrap();
    store.pin("two:1", true).await.unwrap();
    assert!(matches!(
        store.remove("two:1").await,
        Err(StoreError::Pinned(_))
    ));
    store.remove("one:1").await.unwrap();
    assert!(matches!(
        store.image("one:1"),
        Err(StoreError::NoSuchImage(_))
    ));
    assert_eq!(store.collect().await.unwrap(), Collected::default());
    assert_whole(&store, &store.leased("container").unwrap(), "one").await;
    store.unlease("container").await.unwrap();
    store.pin("two:1", false).await.unwrap();
    store.untag(&"two:1".parse().unwrap()).await.unwrap();
    let collected = store.collect().await.unwrap();
    assert_eq!((collected.images, collected.layers), (2, 3));
    assert_eq!(store.usage(), Usage::default());
    assert_nothing_left_over(&store, &rig.root());
}

#[tokio::test]
async fn names_leases_and_pins_outlive_a_restart_and_one_process_has_the_store() {
    let rig = Rig::new();
    let first = store(&rig.root());
    let image = import(&first, &rig.archive("one.tar", &image("one"), "one:1"))
        .await
        .unwrap();
    first.tag("one:1", &"two:1".parse().unwrap()).await.unwrap();
    first.pin("one:1", true).await.unwrap();
    first.lease("c", &image.id).await.unwrap();
    assert!(matches!(
        Store::open(&rig.root(), limits()),
        Err(OpenError::InUse(_))
    ));
    let (list, usage, leases) = (first.list(), first.usage(), first.leases());
    drop(first);
    let second = store(&rig.root());
    assert_eq!(
        (second.list(), second.usage(), second.leases()),
        (list, usage, leases)
    );
    let id = image.id.hex();
    assert_eq!(
        second.image(&id[..12]).unwrap(),
        second.image("two:1").unwrap()
    );
    assert!(second.image(&id[..11]).is_err());
    assert_eq!(
        fs::metadata(rig.root()).unwrap().permissions().mode() & 0o7777,
        0o700
    );
}

#[tokio::test]
async fn what_is_damaged_is_set_aside_and_told_and_the_rest_goes_on() {
    let rig = Rig::new();
    let first = store(&rig.root());
    let one = import(&first, &rig.archive("one.tar", &image("one"), "one:1"))
        .await
        .unwrap();
    import(&first, &rig.archive("two.tar", &image("two"), "two:1"))
        .await
        .unwrap();
    drop(first);
    let blob = rig.root().join("blobs/sha256").join(one.id.hex());
    fs::write(&blob, "{}").unwrap();
    let second = store(&rig.root());
    assert_eq!(
        second.damage().len(),
        2,
        "the document and the image: {:?}",
        second.damage()
    );
    assert!(
        second
            .damage()
            .iter()
            .all(|damage| damage.path.starts_with(rig.root().join("damaged")))
    );
    assert_eq!(second.list().len(), 1);
    // It is mended by coming again.
    let again = import(&second, &rig.home.path().join("one.tar"))
        .await
        .unwrap();
    assert_whole(&second, &again, "one").await;
}

#[tokio::test]
async fn nothing_is_collected_while_a_lease_may_be_lost() {
    let rig = Rig::new();
    let first = store(&rig.root());
    let one = import(&first, &rig.archive("one.tar", &image("one"), "one:1"))
        .await
        .unwrap();
    first.lease("c", &one.id).await.unwrap();
    first.remove("one:1").await.unwrap();
    drop(first);
    let lease = fs::read_dir(rig.root().join("leases"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let content = fs::read(&lease).unwrap();
    fs::write(&lease, &content[..content.len() - 1]).unwrap();
    for _ in 0..2 {
        let store = store(&rig.root());
        assert!(store.collect().await.unwrap().suspended.is_some());
        assert_eq!(fs::read_dir(rig.root().join("layers")).unwrap().count(), 2);
    }
    // A folder in a record's place can't be read: it stays where it is.
    let unreadable = rig.root().join("images").join(Digest::of(b"x").hex());
    fs::create_dir(&unreadable).unwrap();
    let store = store(&rig.root());
    assert_eq!(store.damage()[0].path, unreadable);
    assert!(unreadable.exists());
}

/// The files that the store itself writes, from its root: not those of images.
fn own_files(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if path.ends_with("files") => {}
                true => folders.push(path),
                false => files.push(path.strip_prefix(root).unwrap().to_owned()),
            }
        }
    }
    files.sort();
    files
}

#[tokio::test]
async fn a_damaged_file_costs_what_it_is_about_and_comes_back() {
    let rig = Rig::new();
    let archives = ["one", "two"].map(|name| {
        let tag = format!("{name}:1");
        rig.archive(&format!("{name}.tar"), &image(name), &tag)
    });
    let made = store(&rig.root());
    let one = import(&made, &archives[0]).await.unwrap();
    import(&made, &archives[1]).await.unwrap();
    made.lease("c", &one.id).await.unwrap();
    let base = made.inner().record(&one.id).unwrap().chains[0]
        .hex()
        .to_owned();
    drop(made);
    let files = own_files(&rig.root());
    assert_eq!(files.len(), 17, "{files:?}");
    for file in &files {
        let name = file.to_str().unwrap();
        for way in ["emptied", "cut", "given a tail"] {
            let case = format!("{name} {way}");
            let root = rig.home.path().join("copy");
            let copied = std::process::Command::new("cp")
                .arg("-a")
                .arg(rig.root())
                .arg(&root)
                .status();
            assert!(copied.unwrap().success());
            let mut content = fs::read(root.join(file)).unwrap();
            match way {
                "emptied" => content.clear(),
                "cut" => content.truncate(content.len() / 2),
                _ => content.extend_from_slice(b"tail"),
            }
            fs::write(root.join(file), content).unwrap();
            let opened = store(&root);
            let whole = match name {
                "lock" | "layout" => 2,
                _ if name.starts_with("leases/") || name.ends_with("tar-split") => 2,
                _ if name.contains(&base) => 0,
                _ => 1,
            };
            assert_eq!(opened.list().len(), whole, "{case}: {:?}", opened.damage());
            let is_harmless = name == "lock" || name.ends_with("tar-split");
            assert_eq!(opened.damage().is_empty(), is_harmless, "{case}");
            // What is wrong with the rest of a tar is found where it is needed.
            if name.ends_with("tar-split") {
                let exported = opened
                    .export(&["one:1".to_owned(), "two:1".to_owned()], std::io::sink())
                    .await;
                // Behind the end of its last frame nothing is read.
                assert!(exported.is_err() || way == "given a tail", "{case}");
            }
            // Everything comes back with its archive, and nothing that is leased went meanwhile.
            for (archive, name) in archives.iter().zip(["one", "two"]) {
                let image = import(&opened, archive).await.unwrap();
                assert_whole(&opened, &image, name).await;
            }
            opened.lease("c", &one.id).await.unwrap();
            opened.remove("two:1").await.unwrap();
            assert_eq!(opened.collect().await.unwrap().suspended, None, "{case}");
            assert_whole(&opened, &opened.leased("c").unwrap(), "one").await;
            drop(opened);
            files::remove_tree(&root).unwrap();
        }
    }
}

#[tokio::test]
async fn a_damaged_lease_holds_the_collection_up_until_its_owner_ends_it() {
    let rig = Rig::new();
    let made = store(&rig.root());
    let one = import(&made, &rig.archive("one.tar", &image("one"), "one:1"))
        .await
        .unwrap();
    made.lease("c", &one.id).await.unwrap();
    made.remove("one:1").await.unwrap();
    drop(made);
    let lease = fs::read_dir(rig.root().join("leases"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    fs::write(lease.path(), "").unwrap();
    let opened = store(&rig.root());
    assert!(opened.collect().await.unwrap().suspended.is_some());
    opened.unlease("another").await.unwrap();
    assert!(opened.collect().await.unwrap().suspended.is_some());
    opened.unlease("c").await.unwrap();
    assert_eq!(opened.collect().await.unwrap().images, 1);
    drop(opened);
    let again = store(&rig.root());
    assert_eq!(again.collect().await.unwrap(), Collected::default());
}

#[tokio::test]
async fn another_layout_is_refused_by_name_and_a_damaged_one_is_written_again() {
    for (content, is_refused) in [
        ("oxlet images 2\n", true),
        ("oxlet images 2\ntail", true),
        ("oxlet images 1\n", false),
        ("oxlet images 1\ntail", false),
        ("oxlet images 1", false),
        ("oxlet im", false),
        ("", false),
        ("\0\0\0", false),
    ] {
        let rig = Rig::new();
        drop(store(&rig.root()));
        fs::write(rig.root().join("layout"), content).unwrap();
        let opened = Store::open(&rig.root(), limits());
        match is_refused {
            true => assert!(
                matches!(opened, Err(OpenError::Layout { .. })),
                "{content:?}"
            ),
            false => {
                drop(opened.unwrap());
                let again = fs::read_to_string(rig.root().join("layout")).unwrap();
                assert_eq!(again, "oxlet images 1\n", "{content:?}");
            }
        }
    }
}

#[tokio::test]
async fn every_bit_of_a_record_counts() {
    let record = NameRecordForTest::encode();
    for byte in 0..record.len() {
        let mut flipped = record.clone();
        flipped[byte] ^= 4;
        assert!(
            record::decode::<serde_json::Value>(&flipped).is_err(),
            "byte {byte}"
        );
    }
    record::decode::<serde_json::Value>(&record).unwrap();
}

struct NameRecordForTest;

impl NameRecordForTest {
    fn encode() -> Vec<u8> {
        record::encode(&serde_json::json!({"name": "x:1"}))
    }
}

/// A file system of its own, as small as it is told.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(folder: &Path, kibibytes: u32) -> Self {
        let options = std::ffi::CString::new(format!("size={kibibytes}k")).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", folder, "tmpfs", flags, options.as_c_str()).unwrap();
        Self(folder.to_owned())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let flags = rustix::mount::UnmountFlags::DETACH;
        rustix::mount::unmount(&self.0, flags).unwrap();
    }
}

#[tokio::test]
async fn a_full_disk_names_its_step_leaves_nothing_and_is_no_obstacle_later() {
    let rig = Rig::new();
    let folder = rig.home.path().join("disk");
    fs::create_dir(&folder).unwrap();
    let disk = SmallDisk::new(&folder, 2048);
    let store = store(&folder.join("store"));
    let big = ImageBuilder::plain(vec![
        file_layer("a", &[1; 600_000]),
        file_layer("b", &[2; 600_000]),
    ]);
    let archive = rig.archive("big.tar", &big, "big:1");
    let filler = folder.join("filler");
    let mut steps = BTreeSet::new();
    // From no room at all to enough, so that each step is the one that finds the disk full.
    for room in (0..1700_u32).step_by(52) {
        fs::File::create(&filler).unwrap();
        let free = rustix::fs::statvfs(&folder).unwrap();
        let fill = (free.f_bavail * free.f_frsize).saturating_sub(u64::from(room) << 10);
        let full = fs::write(&filler, vec![0; usize::try_from(fill).unwrap()]);
        full.unwrap();
        match import(&store, &archive).await {
            Ok(image) => {
                assert_eq!(image.bytes, store.usage().bytes);
                store.remove("big:1").await.unwrap();
            }
            Err(
                ArchiveError::Layer {
                    source: LayerError::Disk(error),
                    ..
                }
                | ArchiveError::Store(StoreError::Disk(error)),
            ) => {
                assert_eq!(
                    error.source.kind(),
                    std::io::ErrorKind::StorageFull,
                    "{error}"
                );
                steps.insert(error.step);
                assert!(store.list().is_empty());
            }
            Err(other) => panic!("{other:?}"),
        }
        fs::remove_file(&filler).unwrap();
        store.collect().await.unwrap();
    }
    assert!(steps.contains("write"), "{steps:?}");
    import(&store, &archive).await.unwrap();
    drop((store, disk));
}
