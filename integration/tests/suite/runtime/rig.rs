//! The containerd rig itself: what it starts, what it survives, what it leaves behind.

use std::fs;
use std::path::Path;

use integration::containerd::Containerd;
use integration::doubles::registry::{ImageRegistry, RegistryFault};
use integration::images::Image;
use integration::{pods, wait_until};
use proto::cri;

const CONVERGENCE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

#[tokio::test]
async fn pods_outlive_containerd_and_nothing_outlives_the_rig() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut rig) = Containerd::for_test(dir.path()).await else {
        return;
    };
    let config = pods::sandbox(&rig, "survivor").unwrap();
    let client = rig.runtime();
    let sandbox = pods::run_sandbox(&client, &config).await.unwrap();
    let script = pods::container("main", "sleep 1000");
    let container = pods::run_container(&client, &sandbox, &config, script)
        .await
        .unwrap();
    let pid = pods::pid_of(&client, &container).await.unwrap();
    let started = process_started(pid);
    assert!(started.is_some());

    rig.restart().await.unwrap();
    assert_eq!(pods::pid_of(&rig.runtime(), &container).await.unwrap(), pid);
    rig.kill9().unwrap();
    assert_eq!(
        process_started(pid),
        started,
        "the container died with containerd"
    );

    // containerd is dead: the rig has to take its pod away by other means.
    let bridge = Path::new("/sys/class/net").join(rig.cgroup().trim_start_matches('/'));
    let cgroup = Path::new("/sys/fs/cgroup/memory").join(rig.cgroup().trim_start_matches('/'));
    assert!(bridge.exists() && cgroup.exists());
    drop(rig);
    wait_until(CONVERGENCE_TIMEOUT, "the container is gone", async || {
        process_started(pid) != started
    })
    .await
    .unwrap();
    assert!(!bridge.exists() && !cgroup.exists());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(dir.path().to_str().unwrap()), "{mounts}");
    for result in fs::read_dir("/var/lib/cni/results").unwrap() {
        let name = result.unwrap().file_name();
        assert!(
            !name.to_string_lossy().contains(&sandbox),
            "{name:?} is left"
        );
    }
    dir.close().unwrap();
}

#[tokio::test]
async fn an_image_is_pulled_from_the_registry_double() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rig) = Containerd::for_test(dir.path()).await else {
        return;
    };
    let registry = ImageRegistry::start().await.unwrap();
    let name = registry
        .push("team/tool", "v1", &Image::busybox("team/tool:v1"))
        .unwrap();
    let spec = cri::ImageSpec {
        image: name.clone(),
        ..Default::default()
    };
    let question = cri::PullImageRequest {
        image: Some(spec.clone()),
        ..Default::default()
    };

    registry.set_fault(RegistryFault::Status(503));
    rig.images().pull_image(question.clone()).await.unwrap_err();
    registry.set_fault(RegistryFault::None);
    rig.images().pull_image(question).await.unwrap();
    let status = cri::ImageStatusRequest {
        image: Some(spec),
        verbose: false,
    };
    let image = rig
        .images()
        .image_status(status)
        .await
        .unwrap()
        .into_inner()
        .image
        .unwrap();
    assert!(image.repo_tags.contains(&name), "{image:?}");
    let layers = registry
        .requests()
        .iter()
        .filter(|line| line.starts_with("GET") && line.contains("/blobs/"))
        .count();
    assert_eq!(layers, 2, "config and layer: {:?}", registry.requests());
}

/// When a process was started, in the kernel's ticks: a pid alone is no identity.
fn process_started(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    if fields.trim_start().starts_with('Z') {
        return None;
    }
    fields.split_whitespace().nth(19).map(str::to_owned)
}
