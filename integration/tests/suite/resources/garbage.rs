//! What is collected on a real containerd, and what is told of memory that ran out.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use integration::agent::{Builder, Node};
use integration::containerd::Containerd;
use integration::images::{BUSYBOX_IMAGE, Image, PAUSE};
use integration::wait_until;
use k8s_openapi::api::core::v1::Pod;
use proto::cri::ListImagesRequest;
use serde_json::{Value, json};

use crate::suite::node_rig::*;

const UNUSED: &str = "localhost/oxlet/unused:1";

async fn images(rig: &Containerd) -> Vec<String> {
    let listed = rig.images().list_images(ListImagesRequest::default()).await;
    let listed = listed.unwrap().into_inner().images.into_iter();
    listed.flat_map(|image| image.repo_tags).collect()
}

#[tokio::test]
async fn images_that_nothing_uses_go_from_a_real_containerd_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rig) = Containerd::for_test(dir.path()).await else {
        return;
    };
    rig.import(&Image::busybox(UNUSED)).await.unwrap();
    let config = json!({
        "cgroupRoot": rig.cgroup(),
        "imageGCHighThresholdPercent": 1,
        "imageGCLowThresholdPercent": 0,
        "imageMinimumGCAge": "1s",
    });
    let builder = Node::builder().runtime(&rig).config(&config);
    let builder = builder.manifest("web.yaml", &server("web"));
    let node = builder.start().await.unwrap();
    until_all_ready(&node, 1, CONVERGENCE_TIMEOUT).await;
    let is_gone = async || !images(&rig).await.iter().any(|name| name == UNUSED);
    wait_until(CONVERGENCE_TIMEOUT, "the unused image goes", is_gone)
        .await
        .unwrap();
    let left = images(&rig).await;
    for used in [BUSYBOX_IMAGE, PAUSE] {
        assert!(left.iter().any(|name| name == used), "{used}: {left:?}");
    }
    // A sandbox can still be made.
    node.drop_manifest("other.yaml", &server("other")).unwrap();
    until_all_ready(&node, 2, CONVERGENCE_TIMEOUT).await;
}

/// Fills 200 MiB at once.
/// Eats once a file is there: containerd 1.6 listens for kills only when a container has been started, so that one which is
/// killed at once may count as any that ends with 137.
fn eater(go: &Path) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "eater" },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "app", "image": BUSYBOX_IMAGE,
                "command": ["sh", "-c", "until [ -e /go/now ]; do sleep 0.02; done; exec dd if=/dev/zero of=/dev/null bs=200M count=1"],
                "resources": { "limits": { "memory": "32Mi" } },
                "volumeMounts": [{ "name": "go", "mountPath": "/go" }],
            }],
            "volumes": [{ "name": "go", "hostPath": { "path": go } }],
        },
    })
    .to_string()
}

fn runs(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    phase == Some("Running")
}

fn ended_for(pod: &Pod, reason: &str) -> bool {
    let statuses = pod.status.iter();
    let mut statuses = statuses.flat_map(|status| status.container_statuses.iter().flatten());
    statuses.any(|status| {
        let state = status.state.as_ref();
        let ended = state.and_then(|state| state.terminated.as_ref());
        ended.is_some_and(|ended| ended.reason.as_deref() == Some(reason) && ended.exit_code == 137)
    })
}

fn snapshot<'a>(tree: &'a Value, name: &str) -> Option<&'a Value> {
    let is_named = tree["path"]
        .as_str()
        .is_some_and(|path| path.ends_with(name));
    match is_named {
        true => tree.get("snapshot"),
        false => {
            let mut children = tree["children"].as_array().into_iter().flatten();
            children.find_map(|child| snapshot(child, name))
        }
    }
}

/// Whether this machine lets its messages be read.
fn kernel_tells() -> bool {
    let mut record = [0; 8192];
    File::open("/dev/kmsg").is_ok_and(|mut file| file.read(&mut record).is_ok())
}

#[tokio::test]
async fn a_container_that_eats_more_than_its_memory_is_told_as_killed_for_it() {
    let go = tempfile::tempdir().unwrap();
    let manifest = eater(go.path());
    let with_eater = |builder: Builder| builder.manifest("eater.yaml", &manifest);
    let Some(node_rig) = TestRuntime::Containerd.start_with(with_eater).await else {
        return;
    };
    node_rig.until("eater", "runs", runs).await;
    fs::write(go.path().join("now"), "").unwrap();
    let is_killed = |pod: &Pod| ended_for(pod, "OOMKilled");
    node_rig
        .until("eater", "is killed for its memory", is_killed)
        .await;
    let is_told = async || {
        let tree = node_rig.node.admin("/tree").await.unwrap();
        let own = snapshot(&tree, "oom-watcher").unwrap();
        match kernel_tells() {
            true => own["groups"].as_u64().unwrap() > 0,
            false => own["error"].is_string(),
        }
    };
    wait_until(CONVERGENCE_TIMEOUT, "the kernel's message is read", is_told)
        .await
        .unwrap();
}
