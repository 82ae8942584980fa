//! Drivers that come, go and come back while their volumes are mounted.

use super::*;

on_each_runtime! {
    a_driver_restarted_under_its_volumes_goes_on_with_them,
    a_driver_that_takes_itself_off_is_missed_by_new_pods_only,
    a_driver_is_shown_as_it_introduced_itself,
}

async fn a_driver_restarted_under_its_volumes_goes_on_with_them(on: On) {
    let Some(mut bed) = Bed::start(on, &[], json!({})).await else {
        return;
    };
    let data = bed.claim("web", json!({}));
    bed.claim("other", json!({}));
    let pod = bed.run("web", "web").await;
    let target = bed.target(&pod, "pv-web");
    fs::write(target.join("file"), "before").unwrap();
    bed.driver.kill9().unwrap();
    assert_eq!(read(&target.join("file")), "before");
    bed.driver.set_flags(&["--vendor-version=2.0.0"]);
    bed.driver.begin().await.unwrap();
    bed.run("other", "other").await;
    fs::write(target.join("more"), "after").unwrap();
    assert_mounted_once(&target);
    bed.remove_pod("web").await;
    bed.remove_pod("other").await;
    bed.until_unused().await;
    assert_eq!(read(&data.join("file")), "before");
    assert_eq!(read(&data.join("more")), "after");
}

async fn a_driver_that_takes_itself_off_is_missed_by_new_pods_only(on: On) {
    let Some(mut bed) = Bed::start(on, &[], json!({})).await else {
        return;
    };
    bed.claim("web", json!({}));
    bed.claim("late", json!({}));
    let pod = bed.run("web", "web").await;
    let target = bed.target(&pod, "pv-web");
    bed.driver.terminate().await.unwrap();
    bed.until_shown("the driver is gone", |shown| registered(shown).count() == 0)
        .await;
    bed.drop_pod(&super::pod("late", claimed("late")));
    let words = [
        "MountVolume.MountDevice failed for volume \"pv-late\" : ",
        "driver name csi.example.com not found in the list of registered CSI drivers",
    ];
    bed.world.until_event("FailedMount", &words).await;
    assert_mounted_once(&target);
    assert!(is_ready(&bed.world.node.pod("web").await.unwrap().unwrap()));
    bed.driver.begin().await.unwrap();
    bed.world.until_running("late").await;
    bed.remove_pod("web").await;
    bed.remove_pod("late").await;
    bed.until_unused().await;
}

async fn a_driver_is_shown_as_it_introduced_itself(on: On) {
    let flags = [
        "--node-id=the-node",
        "--max-volumes=7",
        "--topology=zone.example.com=east",
        "--topology=rack.example.com=r2",
    ];
    let Some(bed) = Bed::start(on, &flags, json!({})).await else {
        return;
    };
    let shown = bed.shown().await;
    let node = &shown["csi_node"];
    assert_eq!(node["metadata"]["name"], "node");
    let expected = json!([{
        "name": DRIVER, "nodeID": "the-node", "topologyKeys": ["rack.example.com", "zone.example.com"],
        "allocatable": { "count": 7 },
    }]);
    assert_eq!(node["spec"]["drivers"], expected);
    let notified = bed.until_done("NotifyRegistrationStatus", 1).await;
    assert_eq!(notified[0]["plugin_registered"], true);
}
