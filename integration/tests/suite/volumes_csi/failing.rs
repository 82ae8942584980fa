//! Drivers that fail, hang, crash: only their own pods wait, and the reason is to be read.

use std::time::Duration;

use integration::csi_driver::{Act, Fault, When};
use tokio::time::Instant;

use super::*;

on_each_runtime! {
    what_a_driver_refuses_with_is_told,
    a_driver_that_answers_garbage_is_told_and_tried_again,
    a_hung_driver_delays_only_its_own_pod,
}

/// As upstream's, a call's time is two minutes: it is waited for once only.
const LONG: Duration = Duration::from_secs(200);

fn refusal(code: tonic::Code, message: &str) -> Act {
    Act::Error {
        code: code.into(),
        message: message.to_owned(),
    }
}

async fn what_a_driver_refuses_with_is_told(on: On) {
    let Some(bed) = Bed::start(on, &[], json!({})).await else {
        return;
    };
    bed.claim("web", json!({}));
    let full = refusal(tonic::Code::ResourceExhausted, "no room");
    let lost = refusal(tonic::Code::Internal, "lost the key");
    let faults = [
        Fault::at("NodeStageVolume", When::Before, full).times(2),
        // It did what it was asked for, but does not say so.
        Fault::at("NodePublishVolume", When::After, lost.clone()).times(1),
        Fault::at("NodeUnpublishVolume", When::After, lost).times(2),
    ];
    bed.driver.set_faults(&faults).unwrap();
    bed.drop_pod(&pod("web", claimed("web")));
    let words = [
        "MountVolume.MountDevice failed for volume \"pv-web\" : ",
        "rpc error: code = ResourceExhausted desc = no room",
    ];
    bed.world.until_event("FailedMount", &words).await;
    let words = [
        "MountVolume.SetUp failed for volume \"pv-web\" : ",
        "rpc error: code = Internal desc = lost the key",
    ];
    bed.world.until_event("FailedMount", &words).await;
    let pod = bed.world.until_running("web").await;
    assert_mounted_once(&bed.target(&pod, "pv-web"));
    bed.remove_pod("web").await;
    bed.until_unused().await;
}

async fn a_driver_that_answers_garbage_is_told_and_tried_again(on: On) {
    let Some(bed) = Bed::start(on, &[], json!({})).await else {
        return;
    };
    bed.claim("web", json!({}));
    let faults = [
        Fault::at("NodeStageVolume", When::After, Act::Garbage).times(1),
        Fault::at("NodePublishVolume", When::After, Act::Noise).times(1),
        Fault::at("NodeUnpublishVolume", When::After, Act::Garbage).times(1),
        Fault::at("NodeUnstageVolume", When::After, Act::Noise).times(1),
    ];
    bed.driver.set_faults(&faults).unwrap();
    bed.drop_pod(&pod("web", claimed("web")));
    let words = ["MountVolume.MountDevice failed for volume \"pv-web\" : "];
    let message = bed.world.until_event("FailedMount", &words).await;
    println!("{message}");
    bed.world.until_running("web").await;
    bed.remove_pod("web").await;
    bed.until_unused().await;
}

async fn a_hung_driver_delays_only_its_own_pod(on: On) {
    let Some(bed) = Bed::start(on, &[], json!({})).await else {
        return;
    };
    let sound = bed.another("sound.example.com", &[], json!({})).await;
    let mut usual = Duration::ZERO;
    for turn in 0..3 {
        usual = usual.max(life(&bed, &sound, &format!("before-{turn}")).await);
    }
    bed.claim("web", json!({}));
    bed.driver.freeze().unwrap();
    bed.drop_pod(&pod("stuck", claimed("web")));
    bed.until_shown("the frozen driver is waited for", |shown| {
        let mut rows = shown["volumes"].as_array().unwrap().iter();
        rows.any(|row| row["pod"] == "default/stuck-node")
    })
    .await;
    let mut slowest = Duration::ZERO;
    for turn in 0..3 {
        slowest = slowest.max(life(&bed, &sound, &format!("during-{turn}")).await);
    }
    println!(
        "a pod of another driver starts within {usual:?}, and {slowest:?} beside the hung one"
    );
    // Far from any deadline of a call.
    assert!(slowest < usual * 3 + Duration::from_secs(2), "{slowest:?}");
    let pod = bed.world.node.pod("stuck").await.unwrap().unwrap();
    assert!(!is_ready(&pod));
    bed.driver.thaw().unwrap();
    bed.world.until_running("stuck").await;
    bed.remove_pod("stuck").await;
    bed.until_unused().await;
    until_unused(&sound).await;
}

/// Starts a pod with a volume of this driver and one of the node's, and ends it; answers how long it took to be ready.
async fn life(bed: &Bed, driver: &CsiDriver, name: &str) -> Duration {
    driver.create_volume(&handle(name)).unwrap();
    bed.drop_claim(name, driver.name(), json!({}));
    let mut pod = pod(name, claimed(name));
    let volumes = pod["spec"]["volumes"].as_array_mut().unwrap();
    volumes.push(json!({ "name": "scratch", "emptyDir": {} }));
    let began = Instant::now();
    bed.drop_pod(&pod);
    bed.world.until_running(name).await;
    let took = began.elapsed();
    bed.remove_pod(name).await;
    took
}

#[tokio::test]
async fn a_call_that_hangs_for_ever_is_given_up() {
    let Some(bed) = Bed::start(On::Fake, &[], json!({})).await else {
        return;
    };
    bed.claim("web", json!({}));
    let hangs = Fault::at("NodeStageVolume", When::Before, Act::Hang).times(1);
    bed.driver.set_faults(&[hangs]).unwrap();
    bed.drop_pod(&pod("web", claimed("web")));
    wait_until(WITHIN, "the call hangs", async || {
        let calls = bed.driver.journal().unwrap();
        calls.iter().any(|call| call.name == "NodeStageVolume")
    })
    .await
    .unwrap();
    // The pod goes before its volume came.
    bed.world.node.remove_manifest("web.json").unwrap();
    bed.world.node.until_gone("web", LONG).await.unwrap();
    let pod = bed.run("again", "web").await;
    assert_mounted_once(&bed.target(&pod, "pv-web"));
    bed.remove_pod("again").await;
    bed.until_unused().await;
}
