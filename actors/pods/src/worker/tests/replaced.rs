//! Containers that are ended to be started again: their exit codes end nothing.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kernel::InjectedFault;
use kernel::testing::{pass, run_paused};
use logic_api::testing::yaml::pod;

use super::{container, phase};
use crate::testing::TestNode;

/// A container that ends with 0 two seconds after it is asked to.
fn polite(policy: &str, probe: &str) -> Arc<Pod> {
    pod(&format!(
        "
metadata: {{name: web}}
spec:
  restartPolicy: {policy}
  terminationGracePeriodSeconds: 20
  containers:
  - name: app
    image: localhost/busybox
    command: [sh, -c, \"trap 'sleep 2; exit 0' TERM; sleep infinity\"]
{probe}"
    ))
}

fn updated(pod: &Pod) -> Arc<Pod> {
    let mut pod = pod.clone();
    pod.spec.as_mut().unwrap().containers[0].image = Some("localhost/other".to_owned());
    pod.into()
}

fn runs_again(status: &PodStatus) -> bool {
    let app = container(status, "app");
    app.restart_count == 1
        && app
            .state
            .as_ref()
            .is_some_and(|state| state.running.is_some())
}

#[test]
fn a_changed_image_starts_the_container_again_whatever_the_policy_and_the_exit_code() {
    for policy in ["Never", "OnFailure", "Always"] {
        run_paused(|| async move {
            let node = TestNode::start().await;
            let web = polite(policy, "");
            node.desire(std::slice::from_ref(&web));
            node.until("web", phase("Running")).await;
            node.desire(&[updated(&web)]);
            let status = node.until("web", runs_again).await;
            assert_eq!(status.phase.as_deref(), Some("Running"), "{policy}");
        });
    }
}

#[test]
fn the_intent_outlives_the_worker_that_had_it() {
    for policy in ["Never", "OnFailure"] {
        run_paused(|| async move {
            let node = TestNode::start().await;
            let web = polite(policy, "");
            node.desire(std::slice::from_ref(&web));
            node.until("web", phase("Running")).await;
            node.desire(&[updated(&web)]);
            // The container has been asked to end, and has not ended.
            pass(Duration::from_secs(1)).await;
            let worker = "oxlet/pods/workers/web";
            node.node.root.inject(worker, InjectedFault::Panic).unwrap();
            pass(Duration::from_secs(5)).await;
            let status = node.until("web", runs_again).await;
            assert_eq!(status.phase.as_deref(), Some("Running"), "{policy}");
        });
    }
}

#[test]
fn a_failed_liveness_probe_starts_the_container_again_though_it_ends_well() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let probe = "    livenessProbe: {exec: {command: ['false']}, periodSeconds: 1, failureThreshold: 1}\n";
        node.desire(&[polite("OnFailure", probe)]);
        let status = node.until("web", runs_again).await;
        assert_eq!(status.phase.as_deref(), Some("Running"));
    });
}
