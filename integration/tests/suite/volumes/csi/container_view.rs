//! A driver's volume as seen in a container.

use std::os::unix::fs::{FileTypeExt, MetadataExt};

use super::*;

on_real_runtimes! {
    a_claimed_volume_keeps_its_data_from_pod_to_pod,
    a_raw_device_is_the_volume_itself,
    a_path_within_a_volume_is_mounted_alone,
    a_volume_that_is_only_to_be_read_cannot_be_written,
}

async fn a_claimed_volume_keeps_its_data_from_pod_to_pod(on: TestRuntime) {
    let Some(mut rig) = CsiRig::start(on, &[], json!({})).await else {
        return;
    };
    let data = rig.claim("web", json!({}));
    let pod = rig.run("first", "web").await;
    rig.sh(&pod, "echo first > /data/file").await;
    assert_eq!(read(&data.join("file")), "first\n");

    rig.node_rig
        .kill_container(&id_of(container(&pod, "app").unwrap()))
        .await;
    let pod = rig
        .node_rig
        .until("first", "is restarted", |pod| {
            let app = container(pod, "app").unwrap();
            app.restart_count == 1 && is_running(app)
        })
        .await;
    assert_eq!(rig.sh(&pod, "cat /data/file").await, "first\n");

    // The agent comes back to a pod whose volumes are mounted.
    rig.node_rig.node.kill9().unwrap();
    rig.node_rig.node.begin().await.unwrap();
    let pod = rig.node_rig.until_running("first").await;
    rig.sh(&pod, "echo again >> /data/file").await;
    assert_mounted_once(&rig.target(&pod, "pv-web"));
    rig.remove_pod("first").await;
    rig.until_unused().await;

    let pod = rig.run("second", "web").await;
    assert_eq!(rig.sh(&pod, "cat /data/file").await, "first\nagain\n");
    rig.remove_pod("second").await;
    rig.until_unused().await;
    assert_eq!(read(&data.join("file")), "first\nagain\n");
}

async fn a_raw_device_is_the_volume_itself(on: TestRuntime) {
    let Some(rig) = CsiRig::start(on, &[], json!({})).await else {
        return;
    };
    let file = rig.driver.create_block(&handle("disk"), 1 << 20).unwrap();
    rig.drop_claim("disk", DRIVER, json!({ "volumeMode": "Block" }));
    let mut raw = pod("raw", claimed("disk"));
    let container = &mut raw["spec"]["containers"][0];
    container.as_object_mut().unwrap().remove("volumeMounts");
    container["volumeDevices"] = json!([{ "name": "data", "devicePath": "/dev/disk" }]);
    rig.drop_pod(&raw);
    let pod = rig.node_rig.until_running("raw").await;
    rig.sh(&pod, "printf sesame | dd of=/dev/disk conv=fsync")
        .await;
    let begins = rig.sh(&pod, "head -c 6 /dev/disk").await;
    assert_eq!(begins, "sesame");
    assert!(fs::read(&file).unwrap().starts_with(b"sesame"));

    let pod_folder = rig.node_rig.node.root().join("pods").join(uid(&pod));
    let link = pod_folder.join("volumeDevices/kubernetes.io~csi/pv-disk");
    let device = fs::metadata(&link).unwrap();
    assert!(device.file_type().is_block_device(), "{}", device.mode());
    let published = rig.until_done("NodePublishVolume", 1).await;
    assert_eq!(published[0]["volume_capability"]["block"], true);
    rig.remove_pod("raw").await;
    rig.until_unused().await;
    let devices = mount_table::loop_devices(&file).unwrap();
    assert!(devices.is_empty(), "{devices:?}");
    assert!(fs::read(&file).unwrap().starts_with(b"sesame"));
}

async fn a_path_within_a_volume_is_mounted_alone(on: TestRuntime) {
    let Some(rig) = CsiRig::start(on, &[], json!({})).await else {
        return;
    };
    let data = rig.claim("web", json!({}));
    fs::write(data.join("secret"), "of others").unwrap();
    std::os::unix::fs::symlink("/etc", data.join("out")).unwrap();
    let at = |path: &str| {
        let mut pod = pod("part", claimed("web"));
        pod["spec"]["containers"][0]["volumeMounts"][0]["subPath"] = json!(path);
        pod
    };
    rig.drop_pod(&at("parts/mine"));
    let pod = rig.node_rig.until_running("part").await;
    assert_eq!(rig.sh(&pod, "ls /data; echo mine > /data/file").await, "");
    assert_eq!(read(&data.join("parts/mine/file")), "mine\n");
    rig.remove_pod("part").await;
    rig.until_unused().await;

    rig.drop_pod(&at("out"));
    let pod = rig
        .node_rig
        .until("part", "waits", |pod| {
            waiting(pod, "app").0 == "CreateContainerConfigError"
        })
        .await;
    let (_, message) = waiting(&pod, "app");
    assert!(message.contains("subPath"), "{message}");
    rig.remove_pod("part").await;
    rig.until_unused().await;
    assert_eq!(read(&data.join("parts/mine/file")), "mine\n");
}

async fn a_volume_that_is_only_to_be_read_cannot_be_written(on: TestRuntime) {
    let Some(rig) = CsiRig::start(on, &[], json!({})).await else {
        return;
    };
    let data = rig.claim("web", json!({}));
    fs::write(data.join("file"), "there\n").unwrap();
    let source = json!({ "persistentVolumeClaim": { "claimName": "web", "readOnly": true } });
    rig.drop_pod(&pod("reader", source));
    let pod = rig.node_rig.until_running("reader").await;
    let said = rig
        .sh(
            &pod,
            "cat /data/file; touch /data/more 2>&1 || echo refused",
        )
        .await;
    assert!(
        said.starts_with("there\n") && said.ends_with("refused\n"),
        "{said}"
    );
    let published = rig.until_done("NodePublishVolume", 1).await;
    assert_eq!(published[0]["readonly"], true, "{published:#?}");
    rig.remove_pod("reader").await;
    rig.until_unused().await;
}
