//! A pod that leaves its runtime for another one is the same pod there, and nothing of it runs twice.

use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use kernel::testing::{pass, run_paused};
use logic_api::testing::yaml::pod;
use logic_api::types::PodUid;
use runtime_fake::Rpc;

use super::{container, phase};
use crate::runtime::handover::HandoverStep;
use crate::testing::TestNode;

fn sleeping(name: &str, policy: &str) -> String {
    format!(
        "
metadata: {{name: {name}}}
spec:
  restartPolicy: {policy}
  terminationGracePeriodSeconds: 2
  containers: [{{name: app, image: localhost/busybox, command: [sleep, infinity]}}]
"
    )
}

const FINISHED: &str = "
metadata: {name: finished}
spec:
  restartPolicy: Never
  containers: [{name: app, image: localhost/busybox, command: ['true']}]
";

/// Has every pod leave the runtime of this node; returns when it is empty.
async fn leave(node: &TestNode) {
    node.hand_over(HandoverStep::End);
    until_empty(node, false).await;
    node.hand_over(HandoverStep::Clear);
    until_empty(node, true).await;
}

async fn until_empty(node: &TestNode, wholly: bool) {
    for _ in 0..200 {
        let pods = node.runtime.pods().await.unwrap();
        let stopped = pods.values().all(|pod| pod.is_stopped());
        if stopped && (pods.is_empty() || !wholly) {
            return;
        }
        pass(Duration::from_millis(100)).await;
    }
    panic!(
        "the runtime does not get empty: {:?}",
        node.runtime.pods().await
    );
}

fn restarted(status: &PodStatus) -> bool {
    phase("Running")(status) && container(status, "app").restart_count == 1
}

#[test]
fn pods_that_leave_a_runtime_go_on_in_the_next_one_and_what_runs_once_does_not() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let pods = [
            pod(&sleeping("always", "Always")),
            pod(&sleeping("on-failure", "OnFailure")),
            pod(&sleeping("never", "Never")),
            pod(FINISHED),
        ];
        node.desire(&pods);
        for name in ["always", "on-failure", "never"] {
            node.until(name, phase("Running")).await;
        }
        node.until("finished", phase("Succeeded")).await;
        leave(&node).await;

        let node = node.restart_elsewhere().await;
        node.desire(&pods);
        for name in ["always", "on-failure"] {
            let status = node.until(name, restarted).await;
            let last = container(&status, "app").last_state.clone();
            let ended = last.and_then(|last| last.terminated);
            assert!(ended.is_some(), "{name} shows how it ended before");
        }
        let never = node.until("never", phase("Failed")).await;
        assert_eq!(container(&never, "app").restart_count, 0);
        node.until("finished", phase("Succeeded")).await;
        pass(Duration::from_secs(60)).await;
        assert_eq!(node.fake.calls(Rpc::StartContainer), 2);
    });
}

#[test]
fn nothing_starts_in_a_runtime_that_is_handed_over() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.hand_over(HandoverStep::End);
        node.desire(&[pod(&sleeping("web", "Always"))]);
        pass(Duration::from_secs(60)).await;
        assert_eq!(node.fake.calls(Rpc::RunPodSandbox), 0);
        let status = node.until("web", phase("Pending")).await;
        let waiting = container(&status, "app").state.clone();
        let waiting = waiting.and_then(|state| state.waiting);
        assert_eq!(
            waiting.unwrap().reason.as_deref(),
            Some("ContainerCreating")
        );
    });
}

#[test]
fn a_pod_that_is_deleted_while_it_leaves_its_runtime_is_gone_for_good() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(&sleeping("web", "Always"))]);
        node.until("web", phase("Running")).await;
        node.hand_over(HandoverStep::End);
        pass(Duration::from_secs(1)).await;
        node.desire(&[]);
        until_empty(&node, true).await;
        let node = node.restart_elsewhere().await;
        node.desire(&[]);
        pass(Duration::from_secs(60)).await;
        assert!(
            node.runtime
                .pod(&PodUid::from("web"))
                .await
                .unwrap()
                .sandboxes
                .is_empty()
        );
        assert_eq!(node.fake.calls(Rpc::RunPodSandbox), 0);
    });
}

#[test]
fn a_restarted_agent_takes_up_a_hand_over_where_the_last_one_was_killed() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let pods = [pod(&sleeping("web", "Always"))];
        node.desire(&pods);
        node.until("web", phase("Running")).await;
        node.hand_over(HandoverStep::End);
        until_empty(&node, false).await;
        let node = node.restart().await;
        node.hand_over(HandoverStep::Clear);
        node.desire(&pods);
        until_empty(&node, true).await;
        let node = node.restart_elsewhere().await;
        node.desire(&pods);
        node.until("web", restarted).await;
    });
}

#[test]
fn a_pod_that_has_not_seen_its_end_when_all_are_to_be_removed_is_removed_as_well() {
    for told_after in (0..40).map(|count| Duration::from_millis(count * 100)) {
        run_paused(move || async move {
            let node = TestNode::start().await;
            let pods =
                ["Always", "Never"].map(|policy| pod(&sleeping(&policy.to_lowercase(), policy)));
            node.desire(&pods);
            for name in ["always", "never"] {
                node.until(name, phase("Running")).await;
            }
            node.hand_over(HandoverStep::End);
            pass(told_after).await;
            node.hand_over(HandoverStep::Clear);
            until_empty(&node, true).await;
        });
    }
}

#[test]
fn what_an_agent_that_was_killed_has_on_record_and_not_removed_is_removed_by_the_next_one() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let pods = [pod(&sleeping("web", "Always"))];
        node.desire(&pods);
        node.until("web", phase("Running")).await;
        node.hand_over(HandoverStep::End);
        until_empty(&node, false).await;
        node.script(
            r#"{"faults": [{"call": "RemovePodSandbox", "subject": "web", "times": 1, "hang": true}]}"#,
        );
        node.hand_over(HandoverStep::Clear);
        pass(Duration::from_secs(1)).await;
        let node = node.restart().await;
        node.hand_over(HandoverStep::Clear);
        node.desire(&pods);
        until_empty(&node, true).await;
        let node = node.restart_elsewhere().await;
        node.desire(&pods);
        node.until("web", restarted).await;
    });
}
