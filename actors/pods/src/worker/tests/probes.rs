//! The effects of probes on a pod.

use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use kernel::testing::{pass, run_paused};
use logic_api::testing::yaml::pod;

use super::{container, phase};
use crate::testing::TestNode;

const PROBED: &str = "
metadata: {name: web}
spec:
  containers:
  - name: app
    image: localhost/busybox
    command: [sh, -c, 'sleep 3; touch /ready; sleep 20; rm /ready; sleep infinity']
    readinessProbe: {exec: {command: [test, -f, /ready]}, periodSeconds: 1, failureThreshold: 1}
";

fn ready(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    let ready = conditions.find(|condition| condition.type_ == "Ready");
    ready.is_some_and(|ready| ready.status == "True")
}

#[test]
fn readiness_follows_its_probe_within_a_period() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(PROBED)]);
        let begun = node.until("web", phase("Running")).await;
        assert!(!ready(&begun));
        node.until("web", ready).await;
        let up = kernel::now();
        node.until("web", |status| !ready(status)).await;
        let stayed = kernel::now() - up;
        assert!((18..23).contains(&stayed.as_secs()), "{stayed:?}");
    });
}

#[test]
fn a_restarted_agent_does_not_flip_readiness() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let web = pod(PROBED);
        node.desire(std::slice::from_ref(&web));
        node.until("web", ready).await;
        // Time for the checkpoint to be written.
        pass(Duration::from_secs(1)).await;
        let node = node.restart().await;
        node.desire(&[web]);
        let first = node.until("web", |status| status.phase.is_some()).await;
        assert!(ready(&first), "{first:#?}");
    });
}

#[test]
fn a_container_that_fails_its_liveness_probe_is_ended_by_the_probes_grace_and_restarted() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod("
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 600
  containers:
  - name: app
    image: localhost/busybox
    command: [sh, -c, \"trap '' TERM; sleep infinity\"]
    livenessProbe: {exec: {command: ['false']}, periodSeconds: 2, failureThreshold: 2, terminationGracePeriodSeconds: 4}
")]);
        let begun = kernel::now();
        node.until("web", |status| container(status, "app").restart_count == 1)
            .await;
        let took = kernel::now() - begun;
        assert!(took < Duration::from_secs(60), "{took:?}");
        let events = node.events().await;
        let told = |reason: &str, text: &str| {
            events
                .iter()
                .any(|event| event.reason == reason && event.message.contains(text))
        };
        assert!(told("Unhealthy", "Liveness probe failed"), "{events:#?}");
        assert!(
            told(
                "Killing",
                "Container app failed liveness probe, will be restarted"
            ),
            "{events:#?}"
        );
    });
}
