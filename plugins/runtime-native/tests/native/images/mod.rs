//! Images: imported at the start, kept for who needs them, mounted by containers.

mod archives;
mod pulls;

use std::fs::{self, File};
use std::path::Path;

use proto::cri::*;
use serde_json::json;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use crate::rig::{IMAGE, Rig};

const APPLETS: [&str; 10] = [
    "cat", "echo", "id", "ls", "mount", "readlink", "sh", "sleep", "stty", "touch",
];

/// A header that says nothing of its own.
pub(crate) fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

pub(crate) fn entry(
    tar: &mut Builder<Vec<u8>>,
    path: &str,
    kind: EntryType,
    (mode, bytes): (u32, &[u8]),
) {
    let mut header = header(kind, mode, bytes.len() as u64);
    tar.append_data(&mut header, path, bytes).unwrap();
}

/// The machine's static busybox, with the applets that tests call.
fn layer() -> Vec<u8> {
    layer_with(|_| {})
}

/// As [`layer`], and what `more` adds.
pub(crate) fn layer_with(more: impl FnOnce(&mut Builder<Vec<u8>>)) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for folder in ["bin", "etc", "dev", "proc", "sys"] {
        entry(&mut tar, folder, EntryType::Directory, (0o755, &[]));
    }
    entry(&mut tar, "tmp", EntryType::Directory, (0o1777, &[]));
    let busybox = fs::read("/bin/busybox").expect("apt's busybox-static is there");
    entry(
        &mut tar,
        "bin/busybox",
        EntryType::Regular,
        (0o755, &busybox),
    );
    for applet in ["grep", "true"].iter().chain(&APPLETS) {
        let mut header = header(EntryType::Symlink, 0o777, 0);
        tar.append_link(&mut header, format!("bin/{applet}"), "busybox")
            .unwrap();
    }
    more(&mut tar);
    tar.into_inner().unwrap()
}

/// Writes a docker archive of a busybox image.
pub(crate) fn save(path: &Path, name: &str) {
    save_with(path, name, (&layer(), json!({})));
}

/// Writes a docker archive of an image with this layer, and further fields of its config.
pub(crate) fn save_with(path: &Path, name: &str, (layer, more): (&[u8], serde_json::Value)) {
    let digest: String = Sha256::digest(layer)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut config = json!({
        "architecture": match std::env::consts::ARCH { "x86_64" => "amd64", "aarch64" => "arm64", other => other },
        "os": "linux",
        "config": { "Cmd": ["sh"], "Env": ["PATH=/bin"], "StopSignal": "SIGTERM" },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
    });
    let fields = config["config"].as_object_mut().unwrap();
    fields.extend(more.as_object().cloned().unwrap());
    let index = json!([{ "Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"] }]);
    let mut tar = Builder::new(Vec::new());
    let text = |value: &serde_json::Value| value.to_string().into_bytes();
    entry(
        &mut tar,
        "manifest.json",
        EntryType::Regular,
        (0o644, &text(&index)),
    );
    entry(
        &mut tar,
        "config.json",
        EntryType::Regular,
        (0o644, &text(&config)),
    );
    entry(&mut tar, "layer.tar", EntryType::Regular, (0o644, layer));
    let bytes = tar.into_inner().unwrap();
    std::io::copy(&mut bytes.as_slice(), &mut File::create(path).unwrap()).unwrap();
}

pub(crate) fn spec(name: &str) -> Option<ImageSpec> {
    Some(ImageSpec {
        image: name.to_owned(),
        ..Default::default()
    })
}

#[tokio::test]
async fn an_image_that_a_container_needs_stays_when_its_name_is_removed() {
    let mut rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let container = rig
        .run((&id, &pod), rig.container("main", "sleep 3600"))
        .await;
    let image = rig.status(&container).await.image_id;
    let request = RemoveImageRequest { image: spec(IMAGE) };
    rig.images().remove_image(request).await.unwrap();
    let (text, code) = rig.exec(&container, "busybox sha256sum /bin/busybox").await;
    assert_eq!((code, text.is_empty()), (0, false));
    rig.kill_and_restart().await;
    assert_eq!(rig.exec(&container, "echo on").await.0, "on\n");
    assert_eq!(rig.status(&container).await.image_id, image);
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn a_container_mounts_an_image_and_cannot_write_it() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let script = "ls /image/bin/busybox; ls /part; touch /image/x && echo wrote; echo end";
    let mut config = rig.container("main", script);
    for (path, below) in [("/image", ""), ("/part", "bin")] {
        config.mounts.push(Mount {
            container_path: path.to_owned(),
            image: spec(IMAGE),
            image_sub_path: below.to_owned(),
            readonly: true,
            ..Default::default()
        });
    }
    let mut writable = config.clone();
    writable.mounts[0].readonly = false;
    let refusal = rig.create((&id, &pod), writable).await.unwrap_err();
    assert!(refusal.message().contains("readonly"), "{refusal}");
    let container = rig.run((&id, &pod), config).await;
    let ended = rig.ended(&container).await;
    for mount in &ended.mounts {
        assert_eq!(mount.image.as_ref().unwrap().image_ref, ended.image_id);
    }
    let log = rig.log("a", "main");
    for line in ["/image/bin/busybox", "sleep", "end"] {
        assert!(log.iter().any(|logged| logged == line), "{log:?}");
    }
    assert!(!log.iter().any(|line| line == "wrote"), "{log:?}");
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn what_a_container_writes_is_its_own_and_gone_with_it() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let one = rig
        .run(
            (&id, &pod),
            rig.container("one", "echo own > /tmp/own; sleep 3600"),
        )
        .await;
    let two = rig
        .run((&id, &pod), rig.container("two", "sleep 3600"))
        .await;
    assert_eq!(rig.exec(&one, "cat /tmp/own").await.0, "own\n");
    assert_ne!(rig.exec(&two, "cat /tmp/own").await.1, 0);
    let info = rig
        .images()
        .image_fs_info(ImageFsInfoRequest {})
        .await
        .unwrap()
        .into_inner();
    assert!(info.image_filesystems[0].used_bytes.unwrap().value > 0);
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}
