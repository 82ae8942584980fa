//! Drivers that come, go and come back while their volumes are mounted.

use super::*;

on_each_runtime! {
    a_driver_restarted_under_its_volumes_goes_on_with_them,
    a_driver_that_takes_itself_off_is_missed_by_new_pods_only,
    a_driver_is_shown_as_it_introduced_itself,
}

async fn a_driver_restarted_under_its_volumes_goes_on_with_them(on: TestRuntime) {
    let Some(mut rig) = CsiRig::start(on, &[], json!({})).await else {
        return;
    };
    let data = rig.claim("web", json!({}));
    rig.claim("other", json!({}));
    let pod = rig.run("web", "web").await;
    let target = rig.target(&pod, "pv-web");
    fs::write(target.join("file"), "before").unwrap();
    rig.driver.kill9().unwrap();
    assert_eq!(read(&target.join("file")), "before");
    rig.driver.set_flags(&["--vendor-version=2.0.0"]);
    rig.driver.begin().await.unwrap();
    rig.run("other", "other").await;
    fs::write(target.join("more"), "after").unwrap();
    assert_mounted_once(&target);
    rig.remove_pod("web").await;
    rig.remove_pod("other").await;
    rig.until_unused().await;
    assert_eq!(read(&data.join("file")), "before");
    assert_eq!(read(&data.join("more")), "after");
}

async fn a_driver_that_takes_itself_off_is_missed_by_new_pods_only(on: TestRuntime) {
    let Some(mut rig) = CsiRig::start(on, &[], json!({})).await else {
        return;
    };
    rig.claim("web", json!({}));
    rig.claim("late", json!({}));
    let pod = rig.run("web", "web").await;
    let target = rig.target(&pod, "pv-web");
    rig.driver.terminate().await.unwrap();
    rig.until_shown("the driver is gone", |shown| registered(shown).count() == 0)
        .await;
    rig.drop_pod(&super::pod("late", claimed("late")));
    let words = [
        "MountVolume.MountDevice failed for volume \"pv-late\" : ",
        "driver name csi.example.com not found in the list of registered CSI drivers",
    ];
    rig.node_rig.until_event("FailedMount", &words).await;
    assert_mounted_once(&target);
    assert!(is_ready(
        &rig.node_rig.node.pod("web").await.unwrap().unwrap()
    ));
    rig.driver.begin().await.unwrap();
    rig.node_rig.until_running("late").await;
    rig.remove_pod("web").await;
    rig.remove_pod("late").await;
    rig.until_unused().await;
}

async fn a_driver_is_shown_as_it_introduced_itself(on: TestRuntime) {
    let flags = [
        "--node-id=the-node",
        "--max-volumes=7",
        "--topology=zone.example.com=east",
        "--topology=rack.example.com=r2",
    ];
    let Some(rig) = CsiRig::start(on, &flags, json!({})).await else {
        return;
    };
    let shown = rig.shown().await;
    let node = &shown["csi_node"];
    assert_eq!(node["metadata"]["name"], "node");
    let expected = json!([{
        "name": DRIVER, "nodeID": "the-node", "topologyKeys": ["rack.example.com", "zone.example.com"],
        "allocatable": { "count": 7 },
    }]);
    assert_eq!(node["spec"]["drivers"], expected);
    let notified = rig.until_done("NotifyRegistrationStatus", 1).await;
    assert_eq!(notified[0]["plugin_registered"], true);
}
