//! Pods that use up what their monitor would need as well: they end all the same, each on its own account.

use std::fs;
use std::path::Path;
use std::time::Duration;

use integration::images::BUSYBOX_IMAGE;
use integration::wait_until;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::suite::node_rig::*;

on_real_runtimes! {
    a_pod_that_uses_up_its_process_ids_is_stopped_and_its_sibling_hears_the_signal,
    a_pod_that_fills_its_memory_by_files_ends_for_that_reason,
}

const MAX_PIDS: u64 = 60;
/// Well beyond the pod's grace of two seconds, on a busy machine.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Forks without end once its sibling is ready, and ignores SIGTERM.
const FORKS: &str = "until [ -e /out/ready ]; do sleep 0.1; done; \
                     trap '' TERM; while :; do (while :; do sleep 5000 & done) 2> /dev/null; done";
/// Records SIGTERM in a file. It is ready once it has started the process that it waits for: later, no process ids are left.
const LISTENS: &str =
    "trap 'echo asked > /out/asked; exit 0' TERM; sleep 100000 & echo > /out/ready; wait";
/// Writes more than the container's memory limit to a file in memory. It waits for the test, because containerd 1.6 misses OOM
/// kills that happen before it has reported the container as started.
const FILLS: &str = "until [ -e /out/go ]; do sleep 0.1; done; \
                     exec dd if=/dev/zero of=/dev/shm/file bs=4k count=10000";

fn pod(name: &str, containers: Value, volumes: Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            "containers": containers,
            "volumes": volumes,
        },
    })
    .to_string()
}

/// Whether a pod of the node has used up its process ids.
fn are_pids_used_up(rig: &NodeRig) -> bool {
    let found = std::process::Command::new("find")
        .args(["/sys/fs/cgroup", "-name", "pids.max", "-path"])
        .arg(format!("*{}*/pod*/pids.max", rig.cgroup()))
        .output()
        .unwrap();
    let number =
        |path: &Path| -> Option<u64> { fs::read_to_string(path).ok()?.trim().parse().ok() };
    String::from_utf8_lossy(&found.stdout).lines().any(|max| {
        let current = Path::new(max).with_file_name("pids.current");
        let (max, current) = (number(Path::new(max)), number(&current));
        // One ends now and then, and the next one takes its place.
        max.is_some_and(|max| current.is_some_and(|current| current + 2 >= max))
    })
}

async fn a_pod_that_uses_up_its_process_ids_is_stopped_and_its_sibling_hears_the_signal(
    on: TestRuntime,
) {
    let limit = json!({ "podPidsLimit": MAX_PIDS });
    let Some(rig) = on.start_with(|builder| builder.config(&limit)).await else {
        return;
    };
    let out = tempfile::tempdir().unwrap();
    let containers = [("listens", LISTENS), ("forks", FORKS)].map(|(name, script)| {
        json!({
            "name": name, "image": BUSYBOX_IMAGE, "command": ["sh", "-c", script],
            "volumeMounts": [{ "name": "out", "mountPath": "/out" }],
        })
    });
    let volumes = json!([{ "name": "out", "hostPath": { "path": out.path() } }]);
    let manifest = pod("full", json!(containers), volumes);
    rig.node.drop_manifest("full.json", &manifest).unwrap();
    rig.until_running("full").await;
    let full = async || are_pids_used_up(&rig);
    let waited = wait_until(CONVERGENCE_TIMEOUT, "the process ids are used up", full).await;
    waited.unwrap();

    rig.node.remove_manifest("full.json").unwrap();
    rig.node.until_gone("full", STOP_TIMEOUT).await.unwrap();
    assert!(out.path().join("asked").exists(), "the sibling was asked");
}

async fn a_pod_that_fills_its_memory_by_files_ends_for_that_reason(on: TestRuntime) {
    let Some(rig) = on.start().await else {
        return;
    };
    let out = tempfile::tempdir().unwrap();
    let limits = json!({ "cpu": "500m", "memory": "16Mi" });
    let fills = json!([{
        "name": "fills", "image": BUSYBOX_IMAGE, "command": ["sh", "-c", FILLS],
        "volumeMounts": [{ "name": "out", "mountPath": "/out" }],
        "resources": { "limits": limits },
    }]);
    let volumes = json!([{ "name": "out", "hostPath": { "path": out.path() } }]);
    let manifest = pod("fills", fills, volumes);
    rig.node.drop_manifest("fills.json", &manifest).unwrap();
    rig.until_running("fills").await;
    fs::write(out.path().join("go"), "").unwrap();
    let has_failed = |pod: &Pod| phase(pod) == "Failed";
    let failed = rig.until("fills", "has failed", has_failed).await;
    let state = container(&failed, "fills").and_then(|fills| fills.state.clone());
    let ended = state.and_then(|state| state.terminated).unwrap();
    assert_eq!(
        (ended.reason.as_deref(), ended.exit_code),
        (Some("OOMKilled"), 137)
    );
    rig.node.remove_manifest("fills.json").unwrap();
    rig.node.until_gone("fills", STOP_TIMEOUT).await.unwrap();
}
