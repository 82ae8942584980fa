//! Sizes of writable layers and rates of CPU use, by real containers.

use std::process::Command;

use proto::cri::*;

use crate::rig::{IMAGE, Rig};

async fn stats(rig: &Rig, container: &str) -> ContainerStats {
    let request = ContainerStatsRequest {
        container_id: container.to_owned(),
    };
    let answer = rig.runtime().container_stats(request).await.unwrap();
    answer.into_inner().stats.unwrap()
}

/// Asks for stats until they are as wanted: they are measured in the background.
async fn until(
    rig: &Rig,
    container: &str,
    wanted: impl Fn(&ContainerStats) -> bool,
) -> ContainerStats {
    let asked = async || Some(stats(rig, container).await).filter(|stats| wanted(stats));
    crate::rig::wait_for("the stats as wanted", asked).await
}

fn value(value: &Option<UInt64Value>) -> u64 {
    value.as_ref().unwrap().value
}

#[tokio::test]
async fn a_writable_layer_is_measured_in_the_background_and_told_with_its_pod() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let write = "busybox dd if=/dev/zero of=/tmp/big bs=1M count=8; touch /tmp/a /tmp/b; echo on; sleep 3600";
    let container = rig.run((&id, &pod), rig.container("main", write)).await;
    crate::rig::wait_until("what the container writes", || {
        rig.log("a", "main").iter().any(|line| line == "on")
    })
    .await;
    let found = until(&rig, &container, |stats| stats.writable_layer.is_some()).await;
    let layer = found.writable_layer.unwrap();
    let bytes = value(&layer.used_bytes);
    assert!((8 << 20..9 << 20).contains(&bytes), "{bytes}");
    let upper = rig.root().join("containers").join(&container).join("upper");
    let all = Command::new("find").arg(&upper).output().unwrap().stdout;
    // What it wrote itself, the places of its mounts, and the pod's three files in /etc.
    let lines = String::from_utf8(all).unwrap().lines().count();
    assert_eq!(value(&layer.inodes_used), lines as u64 + 3);
    assert!(layer.timestamp > 0);
    let info = rig
        .images()
        .image_fs_info(ImageFsInfoRequest {})
        .await
        .unwrap();
    let images = info.into_inner().image_filesystems.remove(0);
    assert_eq!(layer.fs_id, images.fs_id);
    let request = PodSandboxStatsRequest {
        pod_sandbox_id: id.clone(),
    };
    let told = rig.runtime().pod_sandbox_stats(request).await.unwrap();
    let told = told.into_inner().stats.unwrap().linux.unwrap();
    let of_pod = told.containers[0].writable_layer.clone().unwrap();
    assert_eq!(of_pod.used_bytes, layer.used_bytes);
    // The next walk sees what was written since, though nobody asked in between.
    rig.exec(
        &container,
        "busybox dd if=/dev/zero of=/tmp/more bs=1M count=8",
    )
    .await;
    until(&rig, &container, |stats| {
        stats
            .writable_layer
            .as_ref()
            .is_some_and(|layer| value(&layer.used_bytes) >= 16 << 20)
    })
    .await;
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

/// Bytes that containers have written, by their stats, once these are measured.
async fn written(rig: &Rig, container: &str, at_least: u64) -> u64 {
    let bytes = |stats: &ContainerStats| {
        stats
            .writable_layer
            .as_ref()
            .map(|layer| value(&layer.used_bytes))
    };
    let is_enough = |stats: &ContainerStats| bytes(stats).is_some_and(|bytes| bytes >= at_least);
    bytes(&until(rig, container, is_enough).await).unwrap()
}

#[tokio::test]
async fn whatever_a_pod_can_write_to_counts_once() {
    let mut rig = Rig::start().await;
    let archive = crate::volumes::archive(&rig, &["/data"]);
    rig.reconfigure(serde_json::json!({ "import": [archive] }))
        .await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let dd = |file: &str, megabytes: u32| {
        format!("busybox dd if=/dev/zero of={file} bs=1M count={megabytes}")
    };
    let mut script = [
        "/etc/resolv.conf",
        "/etc/hostname",
        "/etc/hosts",
        "/data/x",
        "/tmp/x",
    ]
    .map(|file| dd(file, 8))
    .join(" && ");
    script.push_str(" && sleep 3600");
    let mut config = rig.container("one", &script);
    config.image = crate::images::spec(crate::volumes::WITH_VOLUMES);
    let one = rig.run((&id, &pod), config).await;
    let bytes = written(&rig, &one, 40 << 20).await;
    assert!(bytes < 42 << 20, "{bytes}");
    // What the pod shares counts to its first container alone.
    let mut config = rig.container("two", &format!("{} && sleep 3600", dd("/tmp/x", 8)));
    config.image = crate::images::spec(crate::volumes::WITH_VOLUMES);
    let two = rig.run((&id, &pod), config).await;
    let bytes = written(&rig, &two, 8 << 20).await;
    assert!(bytes < 10 << 20, "{bytes}");
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn cpu_use_has_a_rate_once_it_was_looked_at_twice() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let mut config = rig.container("main", "while true; do true; done");
    config.image = crate::images::spec(IMAGE);
    let container = rig.run((&id, &pod), config).await;
    assert_eq!(
        stats(&rig, &container).await.cpu.unwrap().usage_nano_cores,
        None
    );
    let found = until(&rig, &container, |stats| {
        stats
            .cpu
            .as_ref()
            .is_some_and(|cpu| cpu.usage_nano_cores.is_some())
    })
    .await;
    let rate = value(&found.cpu.unwrap().usage_nano_cores);
    // It spins on one processor, which it may have to share.
    assert!((10_000_000..1_500_000_000).contains(&rate), "{rate}");
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}
