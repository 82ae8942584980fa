//! Archives of Docker and of containerd, and archives that lie.

use std::fs;

use super::*;
use crate::testing::{ImageBuilder, Tar, docker_archive, file_layer, store};

fn image() -> ImageBuilder {
    ImageBuilder::plain(vec![file_layer("a", b"1"), file_layer("b", b"2")])
}

fn oci_archive(image: &ImageBuilder, annotations: &serde_json::Value) -> Tar {
    let blob = |content: &[u8]| format!("blobs/sha256/{}", Digest::of(content).hex());
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [
        {"digest": Digest::of(&image.manifest), "size": image.manifest.len(), "annotations": annotations},
    ]});
    let mut tar = Tar::default().file("oci-layout", b"{}");
    for content in image.packed.iter().chain([&image.config, &image.manifest]) {
        tar = tar.long(b'0', blob(content).as_bytes(), content);
    }
    tar.file("index.json", &serde_json::to_vec(&index).unwrap())
}

async fn import(
    archive: &[u8],
    name: Option<&str>,
) -> (tempfile::TempDir, Store, Result<Vec<Image>, ArchiveError>) {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("archive.tar");
    fs::write(&path, archive).unwrap();
    let store = store(&home.path().join("store"));
    let name = name.map(|name| name.parse().unwrap());
    let imported = store.import(&path, name.as_ref(), &Platform::host()).await;
    (home, store, imported)
}

#[tokio::test]
async fn dockers_and_containerds_archives_are_the_same_image() {
    let image = image();
    let name = serde_json::json!({"io.containerd.image.name": "docker.io/library/x:1"});
    let oci = oci_archive(&image, &name).end();
    for archive in [docker_archive(&image, "x:1"), oci] {
        let (_home, store, imported) = import(&archive, None).await;
        let imported = imported.unwrap();
        assert_eq!(
            (imported[0].id.clone(), imported[0].tags.as_slice()),
            (image.id(), ["docker.io/library/x:1".to_owned()].as_slice())
        );
        let folders = store.rootfs(&store.image("x:1").unwrap()).unwrap();
        assert_eq!(fs::read(folders[0].join("b")).unwrap(), b"2");
        assert_eq!(fs::read(folders[1].join("a")).unwrap(), b"1");
    }
}

#[tokio::test]
async fn an_archive_without_a_name_needs_one() {
    let archive = oci_archive(&image(), &serde_json::json!({})).end();
    assert!(import(&archive, None).await.2.is_err());
    let (_home, store, imported) = import(&archive, Some("given:1")).await;
    imported.unwrap();
    store.image("given:1").unwrap();
}

#[tokio::test]
async fn an_archive_that_lies_is_refused() {
    let image = image();
    let none = serde_json::json!({"io.containerd.image.name": "x:1"});
    let mut other = image.clone();
    other.packed[1] = file_layer("b", b"other");
    // The blob has the right name and another content.
    let name = format!("blobs/sha256/{}", Digest::of(&image.packed[1]).hex());
    let lying = oci_archive(&image, &none)
        .long(b'0', name.as_bytes(), &other.packed[1])
        .end();
    let (_home, store, imported) = import(&lying, None).await;
    assert!(matches!(
        imported.unwrap_err(),
        ArchiveError::Layer {
            source: LayerError::Mismatch { .. },
            ..
        }
    ));
    assert!(store.list().is_empty());
    for wrong in [
        Tar::default().end(),
        Tar::default().file("manifest.json", b"[").end(),
        Tar::default()
            .file(
                "manifest.json",
                br#"[{"Config": "/etc/passwd", "RepoTags": ["x:1"], "Layers": []}]"#,
            )
            .end(),
        Tar::default()
            .symlink("manifest.json", "manifest.json")
            .end(),
        b"\x1f\x8b no tar".to_vec(),
        vec![0xff; 2048],
    ] {
        assert!(import(&wrong, None).await.2.is_err());
    }
}

/// A writer that who has it later can read.
#[derive(Clone, Default)]
struct Shared(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn export(store: &Store, images: &[&str]) -> Result<Vec<u8>, ExportError> {
    let out = Shared::default();
    let images: Vec<_> = images.iter().map(|&image| image.to_owned()).collect();
    store.export(&images, out.clone()).await?;
    let written = out.0.lock().unwrap().clone();
    Ok(written)
}

async fn import_stream(store: &Store, archive: Vec<u8>) -> Result<Vec<Image>, ArchiveError> {
    let import = Import {
        origin: "-".into(),
        name: None,
        platform: Platform::host(),
    };
    store.import_stream(io::Cursor::new(archive), import).await
}

/// A layer with everything whose headers could come back differently.
fn odd_layer() -> Vec<u8> {
    Tar::default()
        .folder("d", 0o1777)
        .pax(&[
            ("mtime", b"5.25"),
            ("SCHILY.xattr.user.a", b"b"),
            ("comment", b"x"),
        ])
        .file("d/f", &[7; 5000])
        .hard_link("d/g", "d/f")
        .symlink("s", "d/f")
        .file("empty", b"")
        .long(b'0', &[b'n'; 200], b"long")
        .blank("blank")
        .entry(b'9', b"unknown", "", 0o644, b"skipped")
        .file("d/.wh.gone", b"")
        .raw(&[0; 4096])
        .end()
}

#[tokio::test]
async fn an_exported_image_is_the_same_one_wherever_it_is_imported() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let first = store(&home.path().join("first"));
    let image = ImageBuilder::gzip(vec![odd_layer(), file_layer("b", b"2")]);
    let name = serde_json::json!({"io.containerd.image.name": "docker.io/library/x:1"});
    let archive = oci_archive(&image, &name).end();
    let imported = import_stream(&first, archive).await.unwrap();
    let exported = export(&first, &["x:1"]).await.unwrap();
    let second = store(&home.path().join("second"));
    let again = import_stream(&second, exported.clone()).await.unwrap();
    assert_eq!(
        (&again[0].id, &again[0].tags),
        (&imported[0].id, &imported[0].tags)
    );
    assert_eq!(again[0].id, image.id());
    let bytes = |store: &Store| {
        let folders = store.rootfs(&store.image("x:1").unwrap()).unwrap();
        fs::read(folders[1].join("d/f")).unwrap()
    };
    assert_eq!(bytes(&second), bytes(&first));
    // Nothing of the node, the time or the way here is in it.
    assert_eq!(export(&second, &["x:1"]).await.unwrap(), exported);
    assert_eq!(
        export(&second, &[&image.id().to_string()]).await.unwrap(),
        exported
    );
}

#[tokio::test]
async fn several_images_share_a_layer_in_one_archive_and_each_keeps_its_names() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let one = store(&home.path().join("one"));
    let base = file_layer("base", &[1; 200_000]);
    for (name, layers) in [
        ("a:1", vec![base.clone()]),
        ("b:1", vec![base.clone(), odd_layer()]),
    ] {
        let archive = docker_archive(&ImageBuilder::plain(layers), name);
        import_stream(&one, archive).await.unwrap();
    }
    one.tag("b:1", &"c:2".parse().unwrap()).await.unwrap();
    let id = one.image("b:1").unwrap().id;
    let exported = export(&one, &["a:1", &id.to_string()]).await.unwrap();
    assert!(exported.len() < 2 * base.len(), "the layer is there once");
    let other = store(&home.path().join("other"));
    import_stream(&other, exported).await.unwrap();
    assert_eq!(
        other.image("b:1").unwrap().id,
        other.image("c:2").unwrap().id
    );
    assert_eq!(other.list().len(), 2);
    let absent = export(&one, &["a:1", "absent:1"]).await.unwrap_err();
    assert!(absent.to_string().contains("absent"), "{absent}");
}

#[tokio::test]
async fn a_layer_whose_tar_cannot_be_made_again_is_named() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let root = home.path().join("store");
    let store = store(&root);
    let twice = Tar::default().file("a", b"1").file("a", b"2").end();
    let image = ImageBuilder::plain(vec![twice]);
    import_stream(&store, docker_archive(&image, "x:1"))
        .await
        .unwrap();
    let refused = export(&store, &["x:1"]).await.unwrap_err();
    assert!(matches!(refused, ExportError::Mismatch { .. }), "{refused}");
    let chain = &store.inner().record(&image.id()).unwrap().chains[0];
    fs::remove_file(root.join(format!("layers/{}/files/a", chain.hex()))).unwrap();
    let refused = export(&store, &["x:1"]).await.unwrap_err();
    assert!(
        refused.to_string().contains(&chain.to_string()),
        "{refused}"
    );
}

#[tokio::test]
async fn an_archive_may_be_packed_and_must_be_whole_and_within_its_bound() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let root = home.path().join("store");
    let limits = crate::Limits {
        archive_bytes: 100_000,
        ..crate::testing::limits()
    };
    let store = Store::open(&root, limits).unwrap();
    let plain = docker_archive(&image(), "x:1");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    io::Write::write_all(&mut gzip, &plain).unwrap();
    let gzip = gzip.finish().unwrap();
    for packed in [gzip.clone(), zstd::encode_all(plain.as_slice(), 1).unwrap()] {
        import_stream(&store, packed).await.unwrap();
        store.remove("x:1").await.unwrap();
    }
    let bomb = zstd::encode_all([0; 200_000].as_slice(), 1).unwrap();
    for broken in [
        gzip[..gzip.len() / 2].to_vec(),
        plain[..plain.len() / 2].to_vec(),
        bomb,
    ] {
        import_stream(&store, broken).await.unwrap_err();
    }
    assert!(store.list().is_empty());
    assert_eq!(fs::read_dir(root.join("scratch")).unwrap().count(), 0);
}

#[tokio::test]
async fn of_an_index_the_asked_platform_is_taken() {
    let foreign = ImageBuilder::plain(vec![file_layer("other", b"1")]);
    let own = image();
    let blob = |content: &[u8]| format!("blobs/sha256/{}", Digest::of(content).hex());
    let entry = |image: &ImageBuilder, architecture: &str| {
        serde_json::json!({"digest": Digest::of(&image.manifest), "size": image.manifest.len(),
            "platform": {"os": "linux", "architecture": architecture}})
    };
    let host = serde_json::to_value(Platform::host()).unwrap();
    let list = serde_json::json!({"schemaVersion": 2, "manifests": [
        entry(&foreign, "s390x"), entry(&own, host["architecture"].as_str().unwrap()),
    ]});
    let list = serde_json::to_vec(&list).unwrap();
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [{
        "digest": Digest::of(&list), "size": list.len(),
        "annotations": {"org.opencontainers.image.ref.name": "localhost/x:1"},
    }]});
    let mut tar = Tar::default().file("oci-layout", b"{}");
    // As exports of one platform do, the archive lacks the blobs of the other.
    for content in own.packed.iter().chain([&own.config, &own.manifest, &list]) {
        tar = tar.long(b'0', blob(content).as_bytes(), content);
    }
    let archive = tar
        .file("index.json", &serde_json::to_vec(&index).unwrap())
        .end();
    let (_home, store, imported) = import(&archive, None).await;
    assert_eq!(imported.unwrap()[0].id, own.id());
    store
        .image(&format!("localhost/x@{}", Digest::of(&list)))
        .unwrap();
    let import = Import {
        origin: "-".into(),
        name: None,
        platform: "linux/s390x".parse().unwrap(),
    };
    let refused = store.import_stream(io::Cursor::new(archive), import).await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains(Digest::of(&foreign.manifest).hex()),
        "{refused}"
    );
}
