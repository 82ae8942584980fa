//! Local persistent volumes, as folders and as raw disks.

use std::process::Command;

use super::*;

on_real_runtimes! {
    a_claim_brings_a_folder_and_a_raw_disk_of_the_node,
}

/// A disk in a file of one test.
pub(super) struct LoopDisk(pub(super) PathBuf);

impl LoopDisk {
    pub(super) fn new(image: &Path) -> Self {
        fs::File::create(image).unwrap().set_len(8 << 20).unwrap();
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(image)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        Self(String::from_utf8(made.stdout).unwrap().trim().into())
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        drop(Command::new("losetup").arg("-d").arg(&self.0).status());
    }
}

/// A volume of this node and the claim that is bound to it.
fn claimed(builder: Builder, name: &str, path: &Path, mode: &str) -> Builder {
    let only_here = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [
        { "key": "kubernetes.io/hostname", "operator": "In", "values": ["node"] },
    ] }] } });
    let common = json!({
        "accessModes": ["ReadWriteOnce"], "volumeMode": mode, "storageClassName": "local",
    });
    let with = |more: Value| {
        let mut spec = common.clone();
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        spec
    };
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": format!("pv-{name}") },
        "spec": with(json!({
            "capacity": { "storage": "8Mi" }, "local": { "path": path }, "nodeAffinity": only_here,
            "claimRef": { "namespace": "default", "name": name, "uid": format!("uid-{name}") },
        })),
        "status": { "phase": "Bound" },
    });
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}") },
        "spec": with(json!({
            "volumeName": format!("pv-{name}"), "resources": { "requests": { "storage": "8Mi" } },
        })),
        "status": { "phase": "Bound" },
    });
    builder
        .object(&format!("pv-{name}.json"), &volume.to_string())
        .object(&format!("{name}.json"), &claim.to_string())
}

async fn a_claim_brings_a_folder_and_a_raw_disk_of_the_node(on: TestRuntime) {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("data"), "data").unwrap();
    let (raw, disk) = (
        LoopDisk::new(&home.path().join("raw")),
        LoopDisk::new(&home.path().join("disk")),
    );
    let claims = |builder: Builder| {
        let builder = claimed(builder, "folder", &folder, "Filesystem");
        let builder = claimed(builder, "disk", &disk.0, "Filesystem");
        claimed(builder, "raw", &raw.0, "Block")
    };
    let Some(node_rig) = node(on, claims).await else {
        return;
    };
    let claim =
        |name: &str| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } });
    let says = "look /folder/data; grep ' /disk ' /proc/mounts | cut -d' ' -f3; echo -n disk > /disk/file; \
                blockdev --getsize64 /dev/raw; at /folder /disk";
    let mut app = container_of("app", says, &[("folder", "/folder"), ("disk", "/disk")]);
    app["volumeDevices"] = json!([{ "name": "raw", "devicePath": "/dev/raw" }]);
    let spec = json!({
        "securityContext": { "fsGroup": 2000, "fsGroupChangePolicy": "OnRootMismatch" },
        "volumes": [claim("folder"), claim("disk"), claim("raw")], "containers": [app],
    });
    for turn in ["first", "second"] {
        node_rig.begin(&pod(turn, &spec));
        let pod = node_rig.until_running(turn).await;
        assert_eq!(
            node_rig.heard(&pod, "app").await,
            [
                "/folder/data 664 0:2000 data",
                "ext4",
                "8388608",
                "/folder 2775 0:2000",
                "/disk 2775 0:2000"
            ]
        );
        node_rig.end(&pod, turn).await;
        let plugins = node_rig.node.root().join("plugins");
        assert_eq!(mounted(&plugins), Vec::<String>::new());
    }
    assert_eq!(fs::read_to_string(folder.join("data")).unwrap(), "data");
}
