//! What a container sees of a driver's volume.

use std::os::unix::fs::{FileTypeExt, MetadataExt};

use super::*;

on_containerd! {
    a_claimed_volume_keeps_its_data_from_pod_to_pod,
    a_raw_device_is_the_volume_itself,
    a_path_within_a_volume_is_mounted_alone,
    a_volume_that_is_only_to_be_read_cannot_be_written,
}

async fn a_claimed_volume_keeps_its_data_from_pod_to_pod(on: On) {
    let Some(mut bed) = Bed::start(on, &[], json!({})).await else {
        return;
    };
    let data = bed.claim("web", json!({}));
    let pod = bed.run("first", "web").await;
    bed.sh(&pod, "echo first > /data/file").await;
    assert_eq!(read(&data.join("file")), "first\n");

    bed.world
        .kill_container(&id_of(container(&pod, "app").unwrap()))
        .await;
    let pod = bed
        .world
        .until("first", "is restarted", |pod| {
            let app = container(pod, "app").unwrap();
            app.restart_count == 1 && is_running(app)
        })
        .await;
    assert_eq!(bed.sh(&pod, "cat /data/file").await, "first\n");

    // The agent comes back to a pod whose volumes are mounted.
    bed.world.node.kill9().unwrap();
    bed.world.node.begin().await.unwrap();
    let pod = bed.world.until_running("first").await;
    bed.sh(&pod, "echo again >> /data/file").await;
    assert_mounted_once(&bed.target(&pod, "pv-web"));
    bed.remove_pod("first").await;
    bed.until_unused().await;

    let pod = bed.run("second", "web").await;
    assert_eq!(bed.sh(&pod, "cat /data/file").await, "first\nagain\n");
    bed.remove_pod("second").await;
    bed.until_unused().await;
    assert_eq!(read(&data.join("file")), "first\nagain\n");
}

async fn a_raw_device_is_the_volume_itself(on: On) {
    let Some(bed) = Bed::start(on, &[], json!({})).await else {
        return;
    };
    let file = bed.driver.create_block(&handle("disk"), 1 << 20).unwrap();
    bed.drop_claim("disk", DRIVER, json!({ "volumeMode": "Block" }));
    let mut raw = pod("raw", claimed("disk"));
    let container = &mut raw["spec"]["containers"][0];
    container.as_object_mut().unwrap().remove("volumeMounts");
    container["volumeDevices"] = json!([{ "name": "data", "devicePath": "/dev/disk" }]);
    bed.drop_pod(&raw);
    let pod = bed.world.until_running("raw").await;
    bed.sh(&pod, "printf sesame | dd of=/dev/disk conv=fsync")
        .await;
    let begins = bed.sh(&pod, "head -c 6 /dev/disk").await;
    assert_eq!(begins, "sesame");
    assert!(fs::read(&file).unwrap().starts_with(b"sesame"));

    let pod_folder = bed.world.node.root().join("pods").join(uid(&pod));
    let link = pod_folder.join("volumeDevices/kubernetes.io~csi/pv-disk");
    let device = fs::metadata(&link).unwrap();
    assert!(device.file_type().is_block_device(), "{}", device.mode());
    let published = bed.until_done("NodePublishVolume", 1).await;
    assert_eq!(published[0]["volume_capability"]["block"], true);
    bed.remove_pod("raw").await;
    bed.until_unused().await;
    let devices = places::loop_devices(&file).unwrap();
    assert!(devices.is_empty(), "{devices:?}");
    assert!(fs::read(&file).unwrap().starts_with(b"sesame"));
}

async fn a_path_within_a_volume_is_mounted_alone(on: On) {
    let Some(bed) = Bed::start(on, &[], json!({})).await else {
        return;
    };
    let data = bed.claim("web", json!({}));
    fs::write(data.join("secret"), "of others").unwrap();
    std::os::unix::fs::symlink("/etc", data.join("out")).unwrap();
    let at = |path: &str| {
        let mut pod = pod("part", claimed("web"));
        pod["spec"]["containers"][0]["volumeMounts"][0]["subPath"] = json!(path);
        pod
    };
    bed.drop_pod(&at("parts/mine"));
    let pod = bed.world.until_running("part").await;
    assert_eq!(bed.sh(&pod, "ls /data; echo mine > /data/file").await, "");
    assert_eq!(read(&data.join("parts/mine/file")), "mine\n");
    bed.remove_pod("part").await;
    bed.until_unused().await;

    bed.drop_pod(&at("out"));
    let pod = bed
        .world
        .until("part", "waits", |pod| {
            waiting(pod, "app").0 == "CreateContainerConfigError"
        })
        .await;
    let (_, message) = waiting(&pod, "app");
    assert!(message.contains("subPath"), "{message}");
    bed.remove_pod("part").await;
    bed.until_unused().await;
    assert_eq!(read(&data.join("parts/mine/file")), "mine\n");
}

async fn a_volume_that_is_only_to_be_read_cannot_be_written(on: On) {
    let Some(bed) = Bed::start(on, &[], json!({})).await else {
        return;
    };
    let data = bed.claim("web", json!({}));
    fs::write(data.join("file"), "there\n").unwrap();
    let source = json!({ "persistentVolumeClaim": { "claimName": "web", "readOnly": true } });
    bed.drop_pod(&pod("reader", source));
    let pod = bed.world.until_running("reader").await;
    let said = bed
        .sh(
            &pod,
            "cat /data/file; touch /data/more 2>&1 || echo refused",
        )
        .await;
    assert!(
        said.starts_with("there\n") && said.ends_with("refused\n"),
        "{said}"
    );
    let published = bed.until_done("NodePublishVolume", 1).await;
    assert_eq!(published[0]["readonly"], true, "{published:#?}");
    bed.remove_pod("reader").await;
    bed.until_unused().await;
}
