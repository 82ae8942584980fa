//! Changes of a running pod's CPU and memory.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kernel::testing::run_paused;
use logic_api::testing::yaml::pod;

use super::{container, phase};
use crate::testing::TestNode;

fn web(cpu: &str, generation: i64) -> Arc<Pod> {
    let mut web = (*pod(&format!(
        "
metadata: {{name: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: localhost/busybox
    command: [sleep, infinity]
    resources: {{requests: {{cpu: '{cpu}'}}, limits: {{cpu: '{cpu}'}}}}
"
    )))
    .clone();
    web.metadata.generation = Some(generation);
    web.into()
}

fn allocated(status: &PodStatus) -> Option<String> {
    let app = container(status, "app");
    Some(app.allocated_resources.as_ref()?.get("cpu")?.0.clone())
}

fn condition(status: &PodStatus, kind: &str) -> Option<String> {
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|c| c.type_ == kind)?.reason.clone()
}

/// The first container runs, and is seen to, while the second one's image is pulled.
#[test]
fn a_plain_start_is_no_resize() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let mut pod = (*web("500m", 1)).clone();
        let spec = pod.spec.as_mut().unwrap();
        let mut slow = spec.containers[0].clone();
        slow.name = "slow".to_owned();
        slow.lifecycle =
            serde_json::from_value(serde_json::json!({"postStart": {"sleep": {"seconds": 5}}}))
                .unwrap();
        spec.containers.push(slow);
        node.desire(&[pod.into()]);
        let status = node.until("web", phase("Running")).await;
        assert_eq!(condition(&status, "PodResizeInProgress"), None);
        let reasons = node.reasons().await;
        assert!(
            !reasons.iter().any(|reason| reason.starts_with("Resize")),
            "{reasons:?}"
        );
    });
}

#[test]
fn a_resize_is_carried_out_without_a_restart() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[web("500m", 1)]);
        node.until("web", phase("Running")).await;
        node.desire(&[web("1", 2)]);
        let status = node
            .until("web", |status| allocated(status).as_deref() == Some("1"))
            .await;
        assert_eq!(container(&status, "app").restart_count, 0);
        let enforced = |status: &PodStatus| {
            let resources = container(status, "app")
                .resources
                .clone()
                .unwrap_or_default();
            let limits = resources.limits.unwrap_or_default();
            limits.get("cpu").is_some_and(|cpu| cpu.0 == "1")
        };
        node.until("web", enforced).await;
        let reasons = node.reasons().await;
        for reason in ["ResizeStarted", "ResizeCompleted"] {
            assert!(reasons.iter().any(|told| told == reason), "{reasons:?}");
        }
    });
}

#[test]
fn a_resize_waits_for_room_or_is_refused_for_good() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let mut other = (*web("2", 1)).clone();
        other.metadata.name = Some("other".into());
        other.metadata.uid = Some("other".into());
        let other = Arc::new(other);
        node.desire(&[web("1", 1), other.clone()]);
        for name in ["web", "other"] {
            node.until(name, phase("Running")).await;
        }
        let pending = |reason: &'static str| {
            move |status: &PodStatus| {
                condition(status, "PodResizePending").as_deref() == Some(reason)
            }
        };
        node.desire(&[web("9", 2), other.clone()]);
        node.until("web", pending("Infeasible")).await;
        node.desire(&[web("3", 3), other]);
        let status = node.until("web", pending("Deferred")).await;
        assert_eq!(allocated(&status).as_deref(), Some("1"));
        node.desire(&[web("3", 3)]);
        let status = node
            .until("web", |status| allocated(status).as_deref() == Some("3"))
            .await;
        assert_eq!(container(&status, "app").restart_count, 0);
        counted_by_upstreams_words(&node).await;
    });
}

/// Upstream's TestRecordPodDeferredAcceptedResizes and TestRetryPendingResizes, as far as they measure.
async fn counted_by_upstreams_words(node: &TestNode) {
    kernel::testing::pass(std::time::Duration::from_secs(1)).await;
    crate::collectors::count(&node.node.root.tree().await);
    let text = metrics::text();
    for line in [
        "kubelet_container_requested_resizes_total{operation=\"increase\",requirement=\"limits\",resource=\"cpu\"} 1",
        "kubelet_container_requested_resizes_total{operation=\"decrease\",requirement=\"requests\",resource=\"cpu\"} 1",
        "kubelet_pod_deferred_accepted_resizes_total{retry_trigger=\"pods_removed\"} 1",
        "kubelet_pod_infeasible_resizes_total{reason_detail=\"insufficient_node_allocatable\"} 1",
        "kubelet_pod_pending_resizes{reason=\"deferred\"} 0",
        "kubelet_pod_in_progress_resizes 0",
        "kubelet_pod_resize_duration_milliseconds_count{success=\"true\"} 1",
    ] {
        assert!(text.lines().any(|there| there == line), "{line} in {text}");
    }
}

#[test]
fn what_is_allocated_survives_the_agent() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[web("1", 1)]);
        node.until("web", phase("Running")).await;
        kernel::testing::pass(std::time::Duration::from_secs(1)).await;
        let node = node.restart().await;
        node.desire(&[web("9", 2)]);
        let refused = |status: &PodStatus| {
            condition(status, "PodResizePending").as_deref() == Some("Infeasible")
        };
        let status = node.until("web", refused).await;
        assert_eq!(allocated(&status).as_deref(), Some("1"));
        assert_eq!(container(&status, "app").restart_count, 0);
    });
}
