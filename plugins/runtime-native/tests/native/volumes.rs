//! The volumes of images.

use std::fs;
use std::path::PathBuf;

use proto::cri::*;
use serde_json::json;
use tar::EntryType;

use crate::images::{entry, header, layer_with, save_with, spec};
use crate::rig::Rig;

pub(crate) const WITH_VOLUMES: &str = "localhost/volumes:1";

/// An image with a folder that has content, a link to it, and these volumes.
pub(crate) fn archive(rig: &Rig, volumes: &[&str]) -> PathBuf {
    let layer = layer_with(|tar| {
        let mut folder = header(EntryType::Directory, 0o1770, 0);
        folder.set_uid(33);
        folder.set_gid(44);
        tar.append_data(&mut folder, "data", [].as_slice()).unwrap();
        entry(
            tar,
            "data/of-image",
            EntryType::Regular,
            (0o600, b"content\n"),
        );
        let mut link = header(EntryType::Symlink, 0o777, 0);
        tar.append_link(&mut link, "alias", "/data").unwrap();
    });
    let path = rig.home.path().join("volumes.tar");
    let volumes = volumes.iter().map(|&path| (path.to_owned(), json!({})));
    let volumes: serde_json::Map<_, _> = volumes.collect();
    save_with(&path, WITH_VOLUMES, (&layer, json!({ "Volumes": volumes })));
    path
}

async fn rig(ignored: bool, volumes: &[&str]) -> Rig {
    let mut rig = Rig::start().await;
    let archive = archive(&rig, volumes);
    rig.reconfigure(json!({ "import": [archive], "ignoreImageDefinedVolumes": ignored }))
        .await;
    rig
}

fn container(rig: &Rig, name: &str) -> ContainerConfig {
    let mut config = rig.container(name, "sleep 3600");
    config.image = spec(WITH_VOLUMES);
    config
}

#[tokio::test]
async fn each_container_has_the_images_volumes_for_itself_filled_and_gone_with_it() {
    let rig = rig(false, &["/data", "/alias", "/new/deep"]).await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let mut read_only = container(&rig, "one");
    let linux = read_only.linux.get_or_insert_default();
    let security = linux.security_context.get_or_insert_default();
    security.readonly_rootfs = true;
    let one = rig.run((&id, &pod), read_only).await;
    let two = rig.run((&id, &pod), container(&rig, "two")).await;
    let look = "cat /data/of-image /alias/of-image; ls -ldn /data /new/deep | busybox awk '{print $1, $3, $4}'";
    let expected = "content\ncontent\ndrwxrwx--T 33 44\ndrwxr-xr-x 0 0\n";
    assert_eq!(rig.exec(&one, look).await, (expected.to_owned(), 0));
    // Also where the root takes no writes, as containerd has it.
    let write = "echo own > /data/own && echo own > /new/deep/own && cat /data/own; touch /x";
    let (text, code) = rig.exec(&one, write).await;
    assert_eq!((text.as_str(), code), ("own\n", 1));
    assert_ne!(rig.exec(&two, "cat /data/own").await.1, 0);
    let folder = rig.root().join("containers").join(&one);
    assert!(folder.join("volumes").is_dir());
    assert_eq!(
        fs::read_dir(folder.join("upper/data")).into_iter().count(),
        0
    );
    assert_eq!(
        rig.status(&one).await.mounts,
        [],
        "they are no mounts of CRI"
    );
    rig.remove_pod(&id).await;
    assert!(!folder.exists());
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn a_volume_yields_to_a_mount_of_the_container_and_to_the_operators_word() {
    let rig = rig(false, &["/data"]).await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let host = rig.home.path().join("host");
    fs::create_dir(&host).unwrap();
    let mut config = container(&rig, "main");
    config.mounts.push(Mount {
        container_path: "/data/".to_owned(),
        host_path: host.display().to_string(),
        ..Mount::default()
    });
    let mounted = rig.run((&id, &pod), config).await;
    let look = "touch /data/x; ls /data";
    assert_eq!(rig.exec(&mounted, look).await.0, "x\n");
    assert!(host.join("x").exists());
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;

    let rig = self::rig(true, &["/data"]).await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let plain = rig.run((&id, &pod), container(&rig, "main")).await;
    assert_eq!(
        rig.exec(&plain, "echo x > /data/x; cat /data/of-image")
            .await
            .0,
        "content\n"
    );
    let upper = rig
        .root()
        .join("containers")
        .join(&plain)
        .join("upper/data/x");
    assert!(upper.exists());
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn a_volume_in_proc_is_a_container_that_cannot_be_started() {
    let rig = rig(false, &["/data", "/proc/sys"]).await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let made = rig
        .create((&id, &pod), container(&rig, "main"))
        .await
        .unwrap();
    let request = StartContainerRequest {
        container_id: made.clone(),
    };
    let refusal = rig.runtime().start_container(request).await.unwrap_err();
    let why = "\"/proc/sys\" cannot be mounted because it is inside /proc";
    assert_eq!(refusal.message(), why);
    let status = rig.status(&made).await;
    assert_eq!(
        (status.exit_code, status.reason.as_str()),
        (128, "StartError")
    );
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}
