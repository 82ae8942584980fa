//! Drivers that fail, hang, crash: only their own pods wait, and the reason is to be read.

use std::time::Duration;

use integration::doubles::csi_driver::{DriverFault, DriverFaultAction, FaultPoint};
use tokio::time::Instant;

use super::*;

on_each_runtime! {
    what_a_driver_refuses_with_is_told,
    a_driver_that_answers_garbage_is_told_and_tried_again,
    a_driver_that_finds_no_volume_where_nothing_is_mounted_has_taken_it_away,
    a_hung_driver_delays_only_its_own_pod,
}

fn refusal(code: tonic::Code, message: &str) -> DriverFaultAction {
    DriverFaultAction::Error {
        code: code.into(),
        message: message.to_owned(),
    }
}

async fn what_a_driver_refuses_with_is_told(on: TestRuntime) {
    let Some(rig) = CsiRig::start(on, &[], json!({})).await else {
        return;
    };
    rig.claim("web", json!({}));
    let full = refusal(tonic::Code::ResourceExhausted, "no room");
    let lost = refusal(tonic::Code::Internal, "lost the key");
    let faults = [
        DriverFault::at("NodeStageVolume", FaultPoint::Before, full).times(2),
        // It did what it was asked for, but does not say so.
        DriverFault::at("NodePublishVolume", FaultPoint::After, lost.clone()).times(1),
        DriverFault::at("NodeUnpublishVolume", FaultPoint::After, lost).times(2),
    ];
    rig.driver.set_faults(&faults).unwrap();
    rig.drop_pod(&pod("web", claimed("web")));
    let words = [
        "MountVolume.MountDevice failed for volume \"pv-web\" : ",
        "rpc error: code = ResourceExhausted desc = no room",
    ];
    rig.node_rig.until_event("FailedMount", &words).await;
    let words = [
        "MountVolume.SetUp failed for volume \"pv-web\" : ",
        "rpc error: code = Internal desc = lost the key",
    ];
    rig.node_rig.until_event("FailedMount", &words).await;
    let pod = rig.node_rig.until_running("web").await;
    assert_mounted_once(&rig.target(&pod, "pv-web"));
    rig.remove_pod("web").await;
    rig.until_unused().await;
}

/// A repeat of a call whose answer was lost may find the volume gone.
async fn a_driver_that_finds_no_volume_where_nothing_is_mounted_has_taken_it_away(on: TestRuntime) {
    let Some(rig) = CsiRig::start(on, &[], json!({})).await else {
        return;
    };
    rig.claim("web", json!({}));
    rig.drop_pod(&pod("web", claimed("web")));
    rig.node_rig.until_running("web").await;
    let gone = || refusal(tonic::Code::NotFound, "no such volume");
    let faults = [
        DriverFault::at("NodeUnpublishVolume", FaultPoint::After, gone()),
        DriverFault::at("NodeUnstageVolume", FaultPoint::After, gone()),
    ];
    rig.driver.set_faults(&faults).unwrap();
    rig.remove_pod("web").await;
    rig.until_unused().await;
}

async fn a_driver_that_answers_garbage_is_told_and_tried_again(on: TestRuntime) {
    let Some(rig) = CsiRig::start(on, &[], json!({})).await else {
        return;
    };
    rig.claim("web", json!({}));
    let faults = [
        DriverFault::at(
            "NodeStageVolume",
            FaultPoint::After,
            DriverFaultAction::Garbage,
        )
        .times(1),
        DriverFault::at(
            "NodePublishVolume",
            FaultPoint::After,
            DriverFaultAction::Noise,
        )
        .times(1),
        DriverFault::at(
            "NodeUnpublishVolume",
            FaultPoint::After,
            DriverFaultAction::Garbage,
        )
        .times(1),
        DriverFault::at(
            "NodeUnstageVolume",
            FaultPoint::After,
            DriverFaultAction::Noise,
        )
        .times(1),
    ];
    rig.driver.set_faults(&faults).unwrap();
    rig.drop_pod(&pod("web", claimed("web")));
    let words = ["MountVolume.MountDevice failed for volume \"pv-web\" : "];
    let message = rig.node_rig.until_event("FailedMount", &words).await;
    println!("{message}");
    rig.node_rig.until_running("web").await;
    rig.remove_pod("web").await;
    rig.until_unused().await;
}

async fn a_hung_driver_delays_only_its_own_pod(on: TestRuntime) {
    let Some(rig) = CsiRig::start(on, &[], json!({})).await else {
        return;
    };
    let sound = rig.another("sound.example.com", &[], json!({})).await;
    let mut usual = Duration::ZERO;
    for turn in 0..3 {
        usual = usual.max(life(&rig, &sound, &format!("before-{turn}")).await);
    }
    rig.claim("web", json!({}));
    rig.driver.freeze().unwrap();
    rig.drop_pod(&pod("stuck", claimed("web")));
    rig.until_shown("the frozen driver is waited for", |shown| {
        let mut rows = shown["volumes"].as_array().unwrap().iter();
        rows.any(|row| row["pod"] == "default/stuck-node")
    })
    .await;
    let words = [
        "\"pv-web\"",
        "driver ",
        "has not answered NodeStageVolume since 20",
    ];
    rig.node_rig.until_event("FailedMount", &words).await;
    rig.until_shown("the frozen driver is named", |shown| {
        let stuck = shown["stuck"].as_array().into_iter().flatten();
        let mut stuck = stuck.filter_map(Value::as_str);
        stuck.any(|text| text.contains("has not answered NodeStageVolume"))
    })
    .await;
    let mut slowest = Duration::ZERO;
    for turn in 0..3 {
        slowest = slowest.max(life(&rig, &sound, &format!("during-{turn}")).await);
    }
    println!(
        "a pod of another driver starts within {usual:?}, and {slowest:?} beside the hung one"
    );
    // Far from any deadline of a call.
    assert!(slowest < usual * 3 + Duration::from_secs(2), "{slowest:?}");
    let pod = rig.node_rig.node.pod("stuck").await.unwrap().unwrap();
    assert!(!is_ready(&pod));
    rig.driver.thaw().unwrap();
    rig.node_rig.until_running("stuck").await;
    let is_named_no_more = |shown: &Value| shown["stuck"].as_array().is_some_and(Vec::is_empty);
    rig.until_shown("the driver answers again", is_named_no_more)
        .await;
    rig.remove_pod("stuck").await;
    rig.until_unused().await;
    until_unused(&sound).await;
}

/// Starts a pod with a volume of this driver and one of the node's, and ends it; answers how long it took to be ready.
async fn life(rig: &CsiRig, driver: &CsiDriver, name: &str) -> Duration {
    driver.create_volume(&handle(name)).unwrap();
    rig.drop_claim(name, driver.name(), json!({}));
    let mut pod = pod(name, claimed(name));
    let volumes = pod["spec"]["volumes"].as_array_mut().unwrap();
    volumes.push(json!({ "name": "scratch", "emptyDir": {} }));
    let began = Instant::now();
    rig.drop_pod(&pod);
    rig.node_rig.until_running(name).await;
    let took = began.elapsed();
    rig.remove_pod(name).await;
    took
}
