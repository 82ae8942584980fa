//! How large volumes are, how full, how well; and how they grow.

use integration::csi_driver::{Act, Fault, When};

use super::*;

on_each_runtime! {
    a_volume_grows_under_its_pod,
    a_volume_that_grew_while_nobody_had_it_is_grown_before_its_pod_starts,
    a_driver_that_grows_nothing_in_use_keeps_no_pod_from_starting,
    figures_and_health_are_shown,
}

async fn a_volume_grows_under_its_pod(on: On) {
    let Some(bed) = Bed::start(on, &[], json!({})).await else {
        return;
    };
    bed.claim("web", json!({}));
    let pod = bed.run("web", "web").await;
    // What the controller does when a claim asks for more.
    bed.drop_claim("web", DRIVER, json!({ "capacity": { "storage": "128Mi" } }));
    let expanded = bed.until_done("NodeExpandVolume", 1).await;
    let target = bed.target(&pod, "pv-web").display().to_string();
    let expected = json!({
        "volume_id": "h-web", "volume_path": target, "required_bytes": 128 << 20,
        "staging_target_path": expanded[0]["staging_target_path"],
        "volume_capability": expanded[0]["volume_capability"],
    });
    assert_eq!(expanded[0], expected);
    assert!(expanded[0]["staging_target_path"].is_string());
    let words = ["MountVolume.NodeExpandVolume succeeded for volume \"pv-web\" node"];
    bed.world
        .until_event("FileSystemResizeSuccessful", &words)
        .await;
    bed.until_shown("the new size is shown", |shown| {
        row(shown, "default/web-node")["figures"]["capacity"] == 128 << 20
    })
    .await;
    assert_eq!(bed.driver.done("NodeExpandVolume").unwrap().len(), 1);
    bed.remove_pod("web").await;
    bed.until_unused().await;
}

async fn a_volume_that_grew_while_nobody_had_it_is_grown_before_its_pod_starts(on: On) {
    let Some(bed) = Bed::start(on, &[], json!({})).await else {
        return;
    };
    bed.claim("web", json!({ "capacity": { "storage": "128Mi" } }));
    let fails = Act::Error {
        code: tonic::Code::Internal.into(),
        message: "not yet".to_owned(),
    };
    let fault = Fault::at("NodeExpandVolume", When::Before, fails).times(2);
    bed.driver.set_faults(&[fault]).unwrap();
    bed.drop_pod(&pod("web", claimed("web")));
    let words = ["MountVolume.Setup failed while expanding volume", "not yet"];
    bed.world.until_event("FailedMount", &words).await;
    assert!(!is_ready(
        &bed.world.node.pod("web").await.unwrap().unwrap()
    ));
    bed.world.until_running("web").await;
    let expanded = bed.until_done("NodeExpandVolume", 1).await;
    assert_eq!(expanded[0]["required_bytes"], 128 << 20);
    assert_eq!(expanded.len(), 1);
    bed.remove_pod("web").await;
    bed.until_unused().await;
}

/// Upstream's `IsFailedPreconditionError`: the pod goes without.
async fn a_driver_that_grows_nothing_in_use_keeps_no_pod_from_starting(on: On) {
    let Some(bed) = Bed::start(on, &[], json!({})).await else {
        return;
    };
    bed.claim("web", json!({ "capacity": { "storage": "128Mi" } }));
    let refuses = Act::Error {
        code: tonic::Code::FailedPrecondition.into(),
        message: "it is in use".to_owned(),
    };
    let fault = Fault::at("NodeExpandVolume", When::Before, refuses);
    bed.driver.set_faults(&[fault]).unwrap();
    bed.run("web", "web").await;
    let words = ["it is in use"];
    bed.world.until_event("VolumeResizeFailed", &words).await;
    assert!(bed.driver.done("NodeExpandVolume").unwrap().is_empty());
    bed.remove_pod("web").await;
    bed.until_unused().await;
}

/// A pod's volume, as the agent shows it.
fn row<'a>(shown: &'a Value, pod: &str) -> &'a Value {
    let mut rows = shown["volumes"].as_array().into_iter().flatten();
    rows.find(|row| row["pod"] == pod && row["volume"] == "data")
        .unwrap_or(&Value::Null)
}

async fn figures_and_health_are_shown(on: On) {
    let Some(bed) = Bed::start(on, &[], json!({})).await else {
        return;
    };
    let data = bed.claim("web", json!({}));
    fs::write(data.join("file"), vec![0; 1 << 20]).unwrap();
    bed.run("web", "web").await;
    bed.until_shown("the figures are shown", |shown| {
        let figures = &row(shown, "default/web-node")["figures"];
        let expected = (64 << 20, 1 << 20, 2);
        let has = |field: &str| figures[field].as_i64().unwrap_or_default();
        (has("capacity"), has("used"), has("inodes_used")) == expected
    })
    .await;
    let table = bed.world.node.oxctl(&["volumes"]).await.unwrap();
    let shown = |line: &&str| {
        ["web-node", "Mounted", "1Mi", "64Mi"]
            .iter()
            .all(|word| line.contains(word))
    };
    assert!(table.lines().any(|line| shown(&line)), "{table}");

    bed.driver
        .set_abnormal("h-web", Some("the disk smokes"))
        .unwrap();
    let words = ["Volume data: the disk smokes"];
    bed.world
        .until_event("VolumeConditionAbnormal", &words)
        .await;
    bed.remove_pod("web").await;
    bed.until_unused().await;
}
