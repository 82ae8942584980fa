//! Capacity, usage and condition of volumes, and their expansion.

use integration::doubles::csi_driver::{DriverFault, DriverFaultAction, FaultPoint};

use super::*;

on_each_runtime! {
    a_volume_grows_under_its_pod,
    a_volume_that_grew_while_nobody_had_it_is_grown_before_its_pod_starts,
    a_driver_that_grows_nothing_in_use_keeps_no_pod_from_starting,
    figures_and_health_are_shown,
}

async fn a_volume_grows_under_its_pod(on: TestRuntime) {
    let Some(rig) = CsiRig::start(on, &[], json!({})).await else {
        return;
    };
    rig.claim("web", json!({}));
    let pod = rig.run("web", "web").await;
    // What the controller does when a claim asks for more.
    rig.drop_claim("web", DRIVER, json!({ "capacity": { "storage": "128Mi" } }));
    let expanded = rig.until_done("NodeExpandVolume", 1).await;
    let target = rig.target(&pod, "pv-web").display().to_string();
    let expected = json!({
        "volume_id": "h-web", "volume_path": target, "required_bytes": 128 << 20,
        "staging_target_path": expanded[0]["staging_target_path"],
        "volume_capability": expanded[0]["volume_capability"],
    });
    assert_eq!(expanded[0], expected);
    assert!(expanded[0]["staging_target_path"].is_string());
    let words = ["MountVolume.NodeExpandVolume succeeded for volume \"pv-web\" node"];
    rig.node_rig
        .until_event("FileSystemResizeSuccessful", &words)
        .await;
    rig.until_shown("the new size is shown", |shown| {
        row(shown, "default/web-node")["figures"]["capacity"] == 128 << 20
    })
    .await;
    assert_eq!(rig.driver.done("NodeExpandVolume").unwrap().len(), 1);
    rig.remove_pod("web").await;
    rig.until_unused().await;
}

async fn a_volume_that_grew_while_nobody_had_it_is_grown_before_its_pod_starts(on: TestRuntime) {
    let Some(rig) = CsiRig::start(on, &[], json!({})).await else {
        return;
    };
    rig.claim("web", json!({ "capacity": { "storage": "128Mi" } }));
    let fails = DriverFaultAction::Error {
        code: tonic::Code::Internal.into(),
        message: "not yet".to_owned(),
    };
    let fault = DriverFault::at("NodeExpandVolume", FaultPoint::Before, fails).times(2);
    rig.driver.set_faults(&[fault]).unwrap();
    rig.drop_pod(&pod("web", claimed("web")));
    let words = ["MountVolume.Setup failed while expanding volume", "not yet"];
    rig.node_rig.until_event("FailedMount", &words).await;
    assert!(!is_ready(
        &rig.node_rig.node.pod("web").await.unwrap().unwrap()
    ));
    rig.node_rig.until_running("web").await;
    let expanded = rig.until_done("NodeExpandVolume", 1).await;
    assert_eq!(expanded[0]["required_bytes"], 128 << 20);
    assert_eq!(expanded.len(), 1);
    rig.remove_pod("web").await;
    rig.until_unused().await;
}

/// Upstream's `IsFailedPreconditionError`: the pod goes without.
async fn a_driver_that_grows_nothing_in_use_keeps_no_pod_from_starting(on: TestRuntime) {
    let Some(rig) = CsiRig::start(on, &[], json!({})).await else {
        return;
    };
    rig.claim("web", json!({ "capacity": { "storage": "128Mi" } }));
    let refuses = DriverFaultAction::Error {
        code: tonic::Code::FailedPrecondition.into(),
        message: "it is in use".to_owned(),
    };
    let fault = DriverFault::at("NodeExpandVolume", FaultPoint::Before, refuses);
    rig.driver.set_faults(&[fault]).unwrap();
    let pod = rig.run("web", "web").await;
    let calls = rig.driver.journal().unwrap().into_iter();
    let refused = calls.filter(|call| call.name == "NodeExpandVolume");
    assert_eq!(refused.count(), 1);
    assert!(rig.node_rig.node.log().contains("it is in use"));
    assert_eq!(rig.sh(&pod, "echo there").await.trim(), "there");
    rig.remove_pod("web").await;
    rig.until_unused().await;
}

/// A pod's volume, as the agent shows it.
fn row<'a>(shown: &'a Value, pod: &str) -> &'a Value {
    let mut rows = shown["volumes"].as_array().into_iter().flatten();
    rows.find(|row| row["pod"] == pod && row["volume"] == "data")
        .unwrap_or(&Value::Null)
}

async fn figures_and_health_are_shown(on: TestRuntime) {
    let Some(rig) = CsiRig::start(on, &[], json!({})).await else {
        return;
    };
    let data = rig.claim("web", json!({}));
    fs::write(data.join("file"), vec![0; 1 << 20]).unwrap();
    rig.run("web", "web").await;
    rig.until_shown("the figures are shown", |shown| {
        let figures = &row(shown, "default/web-node")["figures"];
        let expected = (64 << 20, 1 << 20, 2);
        let has = |field: &str| figures[field].as_i64().unwrap_or_default();
        (has("capacity"), has("used"), has("inodes_used")) == expected
    })
    .await;
    let table = rig.node_rig.node.oxctl(&["volumes"]).await.unwrap();
    let shown = |line: &&str| {
        ["web-node", "Mounted", "1Mi", "64Mi"]
            .iter()
            .all(|word| line.contains(word))
    };
    assert!(table.lines().any(|line| shown(&line)), "{table}");

    rig.driver
        .set_abnormal("h-web", Some("the disk smokes"))
        .unwrap();
    let words = ["Volume data: the disk smokes"];
    rig.node_rig
        .until_event("VolumeConditionAbnormal", &words)
        .await;
    rig.remove_pod("web").await;
    rig.until_unused().await;
}
