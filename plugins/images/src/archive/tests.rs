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
