//! An operation that fails or has no effect is not repeated at once.

use std::time::Duration;

use kernel::testing::{pass, run_paused};
use logic_api::testing::yaml::pod;
use logic_api::types::PodUid;
use runtime_fake::Rpc;

use super::{container, phase};
use crate::testing::TestNode;

const POD: &str = "
metadata: {name: web}
spec:
  restartPolicy: Always
  terminationGracePeriodSeconds: 2
  containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]
";

/// Enough for dozens of plans, all of which take no time.
const ROUND_TRIPS: usize = 300;

/// Lets all tasks run until each of them waits, without advancing the clock.
async fn settle(node: &TestNode) {
    for _ in 0..ROUND_TRIPS {
        node.runtime.version().await.unwrap();
    }
}

#[test]
fn a_sandbox_that_cannot_be_replaced_yet_is_left_alone_meanwhile() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(POD)]);
        node.until("web", phase("Running")).await;
        node.script(
            r#"{"faults": [{"call": "RunPodSandbox", "times": 1, "code": "Internal", "message": "no network"}]}"#,
        );
        let now = node.runtime.pod(&PodUid::from("web")).await.unwrap();
        let sandbox = &now.newest_sandbox().unwrap().id;
        let stops = || node.fake.calls(Rpc::StopPodSandbox);
        node.runtime.stop_sandbox(sandbox).await.unwrap();
        settle(&node).await;
        assert_eq!(stops(), 2, "once by us, once on the way to its successor");

        node.until("web", |status| {
            container(status, "app").restart_count == 1 && phase("Running")(status)
        })
        .await;
        assert_eq!(stops(), 3, "once more on the way to the next one");
        assert_eq!(node.fake.calls(Rpc::RunPodSandbox), 3);
    });
}

#[test]
fn a_sandbox_that_comes_without_an_address_is_replaced_once_a_second_at_most() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let lacks =
            "metadata: {name: web, annotations: {fake.oxlet.dev/sandbox-addressless: 'true'}}";
        node.desire(&[pod(&POD.replace("metadata: {name: web}", lacks))]);
        let begun = kernel::now();
        for _ in 0..2 {
            settle(&node).await;
            let made = node.fake.calls(Rpc::RunPodSandbox);
            let took = (kernel::now() - begun).as_secs();
            assert!(made <= took + 2, "{made} times in {took} s");
            pass(Duration::from_secs(10)).await;
        }
        let made = node.fake.calls(Rpc::RunPodSandbox);
        assert!(made >= 5, "it is tried again: {made}");
    });
}

#[test]
fn a_sandbox_that_dies_at_once_is_made_again_after_ever_longer_pauses() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(POD)]);
        node.until("web", phase("Running")).await;
        let made = || node.fake.calls(Rpc::RunPodSandbox);
        for (before, pause) in [(1, 0), (2, 1), (3, 2), (4, 4), (5, 8)] {
            let now = node.runtime.pod(&PodUid::from("web")).await.unwrap();
            let sandbox = &now.newest_sandbox().unwrap().id;
            node.runtime.stop_sandbox(sandbox).await.unwrap();
            settle(&node).await;
            let pause = Duration::from_secs(pause);
            if !pause.is_zero() {
                pass(pause * 8 / 10).await;
                assert_eq!(made(), before, "not before {pause:?} are over");
                pass(pause * 4 / 10).await;
            }
            settle(&node).await;
            assert_eq!(made(), before + 1, "after {pause:?}");
        }
        node.until("web", phase("Running")).await;
    });
}

#[test]
fn what_a_runtime_says_to_have_done_and_has_not_is_asked_again_after_a_pause() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let stays = "metadata: {name: web, annotations: {fake.oxlet.dev/sandbox-stays: 'true'}}";
        node.desire(&[pod(&POD.replace("metadata: {name: web}", stays))]);
        node.until("web", phase("Running")).await;
        let begun = kernel::now();
        node.desire(&[]);
        for _ in 0..2 {
            settle(&node).await;
            let stops = node.fake.calls(Rpc::StopPodSandbox);
            let took = (kernel::now() - begun).as_secs();
            assert!(stops <= took + 2, "{stops} times in {took} s");
            pass(Duration::from_secs(10)).await;
        }
        let stops = node.fake.calls(Rpc::StopPodSandbox);
        assert!(stops >= 10, "it is tried again: {stops}");
    });
}
