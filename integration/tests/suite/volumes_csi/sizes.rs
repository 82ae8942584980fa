//! How large volumes are, how full, how well; and how they grow.

use super::*;

on_each_runtime! {
    a_volume_grows_under_its_pod,
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
