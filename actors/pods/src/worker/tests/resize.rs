//! Changes of a running pod's CPU and memory.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kernel::InjectedFault;
use kernel::testing::{pass, run_paused};
use logic_api::testing::yaml::pod;
use logic_api::types::PodUid;
use logic_resources::thresholds::Signal;
use runtime_fake::Rpc;

use super::{container, phase};
use crate::pod_manager::{self, NodeChange};
use crate::testing::TestNode;

const SECOND: std::time::Duration = std::time::Duration::from_secs(1);

fn web(cpu: &str, generation: i64) -> Arc<Pod> {
    named("web", cpu, generation)
}

fn named(name: &str, cpu: &str, generation: i64) -> Arc<Pod> {
    let mut web = (*pod(&format!(
        "
metadata: {{name: {name}}}
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

/// Whatever of it was on the disk: the container says what it was made with.
#[test]
fn an_agent_that_is_killed_in_a_post_start_hook_finds_nothing_to_resize() {
    for is_recorded in [true, false] {
        run_paused(|| async {
            let node = TestNode::start().await;
            let mut pod = (*web("500m", 1)).clone();
            pod.spec.as_mut().unwrap().containers[0].lifecycle = serde_json::from_value(
                serde_json::json!({"postStart": {"sleep": {"seconds": 20}}}),
            )
            .unwrap();
            let pod: Arc<Pod> = pod.into();
            node.desire(std::slice::from_ref(&pod));
            pass(10 * SECOND).await;
            assert_eq!(node.fake.calls(Rpc::StartContainer), 1);
            let node = match is_recorded {
                true => node.restart().await,
                false => node.restart_unrecorded().await,
            };
            node.desire(&[pod]);
            let status = node.until("web", phase("Running")).await;
            pass(10 * SECOND).await;
            assert_eq!(condition(&status, "PodResizeInProgress"), None);
            assert_eq!(node.fake.calls(Rpc::UpdateContainerResources), 0);
            let reasons = node.reasons().await;
            let is_resize = |reason: &String| reason.starts_with("Resize");
            assert!(!reasons.iter().any(is_resize), "{reasons:?}");
            // What is asked for is done.
            node.desire(&[web("1", 2)]);
            node.until("web", |status| allocated(status).as_deref() == Some("1"))
                .await;
            pass(10 * SECOND).await;
            assert_eq!(node.fake.calls(Rpc::UpdateContainerResources), 1);
        });
    }
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
        let other = named("other", "2", 1);
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
        let events = node.events().await;
        let told: Vec<_> = events
            .iter()
            .filter(|event| event.reason == "ResizeDeferred")
            .collect();
        // What is wanted, not what it has meanwhile.
        let wanted = r#"{"limits":{"cpu":"3"},"requests":{"cpu":"3"}}"#;
        assert!(told[0].message.contains(wanted), "{}", told[0].message);
        assert_eq!(told.len(), 1);
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

fn deferred(status: &PodStatus) -> bool {
    condition(status, "PodResizePending").as_deref() == Some("Deferred")
}

fn has(cpu: &str) -> impl Fn(&PodStatus) -> bool {
    move |status| allocated(status).as_deref() == Some(cpu)
}

/// Upstream's TestRecordPodDeferredAcceptedResizes, for each of its triggers.
#[test]
fn a_deferred_resize_is_allocated_as_soon_as_anything_makes_room() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let accepted = |trigger: &str| {
            let sample = format!(
                "kubelet_pod_deferred_accepted_resizes_total{{retry_trigger=\"{trigger}\"}} 1"
            );
            let text = metrics::text();
            assert!(text.lines().any(|line| line == sample), "{trigger}: {text}");
        };
        let other = |cpu| named("other", cpu, 1);
        node.desire(&[web("500m", 1), other("2")]);
        for name in ["web", "other"] {
            node.until(name, phase("Running")).await;
        }
        // A resize that fits at once was never deferred.
        node.desire(&[web("1", 2), other("2")]);
        node.until("web", has("1")).await;
        assert!(!metrics::text().contains("accepted_resizes_total{"));

        // A smaller wish is another one.
        node.desire(&[web("3", 3), other("2")]);
        node.until("web", deferred).await;
        node.desire(&[web("2", 4), other("2")]);
        node.until("web", has("2")).await;
        accepted("pod_updated");

        // What has not been taken from a container is not free.
        node.desire(&[web("3", 5), other("2")]);
        node.until("web", deferred).await;
        node.script(
            r#"{"faults": [{"call": "UpdateContainerResources", "times": 3, "code": "Internal", "message": "no"}]}"#,
        );
        node.desire(&[web("3", 5), other("1")]);
        node.until("other", has("1")).await;
        pass(SECOND).await;
        let statuses = node.statuses().await;
        assert!(deferred(&statuses[&PodUid::from("web")]));
        let fails = condition(&statuses[&PodUid::from("other")], "PodResizeInProgress");
        assert_eq!(fails.as_deref(), Some("Error"));
        node.until("web", has("3")).await;
        accepted("pod_resized");

        // The node itself may stand in the way.
        let pressures = |signals: &[Signal]| {
            let change = NodeChange::Pressures(signals.iter().copied().collect());
            node.node
                .pod_manager
                .tell(pod_manager::Msg::Node(change))
                .unwrap();
        };
        pressures(&[Signal::PidAvailable]);
        node.desire(&[web("2", 6), other("1")]);
        node.until("web", deferred).await;
        pressures(&[]);
        node.until("web", has("2")).await;
        accepted("periodic_retry");
    });
}

#[test]
fn a_deferred_resize_is_allocated_when_another_pod_has_ended() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let job = named("job", "2", 1);
        let mut job = (*job).clone();
        let spec = job.spec.as_mut().unwrap();
        spec.restart_policy = Some("Never".into());
        spec.containers[0].command = Some(vec!["sleep".into(), "60".into()]);
        let job = Arc::new(job);
        node.desire(&[web("1", 1), job.clone()]);
        node.until("web", phase("Running")).await;
        node.desire(&[web("3", 2), job]);
        node.until("web", deferred).await;
        node.until("web", has("3")).await;
        let sample =
            "kubelet_pod_deferred_accepted_resizes_total{retry_trigger=\"pod_terminated\"} 1";
        assert!(metrics::text().lines().any(|line| line == sample));
    });
}

/// Upstream's HandlePodAdditions: no resize is decided before all pods that are here have been admitted.
#[test]
fn what_a_pod_wants_beyond_its_allocation_waits_for_the_pods_that_run_already() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let (first, second) = (named("a", "1", 1), named("b", "2", 1));
        node.desire(&[first, second.clone()]);
        for name in ["a", "b"] {
            node.until(name, phase("Running")).await;
        }
        pass(SECOND).await;
        let node = node.restart().await;
        node.desire(&[named("a", "3", 2), second]);
        let status = node.until("a", deferred).await;
        assert_eq!(allocated(&status).as_deref(), Some("1"));
        node.desire(&[named("a", "3", 2)]);
        node.until("a", has("3")).await;
    });
}

#[test]
fn a_deferred_resize_outlives_a_pod_manager_that_fails() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let other = named("other", "2", 1);
        node.desire(&[web("1", 1), other.clone()]);
        node.until("web", phase("Running")).await;
        node.desire(&[web("3", 2), other.clone()]);
        node.until("web", deferred).await;
        let manager = "oxlet/pods/pod-manager";
        node.node
            .root
            .inject(manager, InjectedFault::Panic)
            .unwrap();
        node.desire(&[web("3", 2), other]);
        pass(5 * SECOND).await;
        node.desire(&[web("3", 2)]);
        node.until("web", has("3")).await;
    });
}

fn sized(memory: &str, policy: &str, generation: i64) -> Arc<Pod> {
    let mut web = (*pod(&format!(
        "
metadata: {{name: web}}
spec:
  terminationGracePeriodSeconds: 1
  overhead: {{memory: 1Mi}}
  containers:
  - name: app
    image: localhost/busybox
    command: [sleep, infinity]
    resizePolicy: [{{resourceName: memory, restartPolicy: {policy}}}]
    resources: {{requests: {{memory: {memory}}}, limits: {{memory: {memory}, cpu: 500m}}}}
"
    )))
    .clone();
    web.metadata.generation = Some(generation);
    web.into()
}

/// Upstream's TestUpdatePodSandboxResources and TestDoPodResizeAction, as far as the runtime is told of the pod.
#[test]
fn the_runtime_may_refuse_a_resize_of_the_pod_as_a_whole_unless_it_does_not_know_of_such() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[sized("64Mi", "NotRequired", 1)]);
        node.until("web", phase("Running")).await;
        let answer = |code: &str, message: &str| {
            format!(
                r#"{{"faults": [{{"call": "UpdatePodSandboxResources", "times": 1, "code": "{code}", "message": "{message}"}}]}}"#
            )
        };
        let enforced = |amount: &'static str| {
            move |status: &PodStatus| {
                let resources = container(status, "app").resources.clone();
                let limits = resources.and_then(|resources| resources.limits);
                limits.is_some_and(|limits| limits.get("memory").is_some_and(|m| m.0 == amount))
            }
        };
        let amounts = [("Unimplemented", "no"), ("Unknown", "not implemented yet")]
            .into_iter()
            .zip(["128Mi", "256Mi"])
            .zip(2..);
        for (((code, message), amount), generation) in amounts {
            node.script(&answer(code, message));
            let begun = kernel::now();
            node.desire(&[sized(amount, "NotRequired", generation)]);
            node.until("web", enforced(amount)).await;
            assert!((kernel::now() - begun).as_secs() < 5, "{code}");
        }
        node.script(&answer("Internal", "sandbox update failed"));
        let begun = kernel::now();
        node.desire(&[sized("512Mi", "NotRequired", 4)]);
        let refused = |status: &PodStatus| {
            condition(status, "PodResizeInProgress").as_deref() == Some("Error")
        };
        let status = node.until("web", refused).await;
        let mut conditions = status.conditions.iter().flatten();
        let told = conditions.find(|c| c.type_ == "PodResizeInProgress");
        let told = told.and_then(|c| c.message.clone()).unwrap();
        assert!(
            told.starts_with(
                "failed to notify runtime for UpdatePodSandboxResources (resource=memory); resize rejected: "
            ) && told.ends_with("rpc error: code = Internal desc = sandbox update failed"),
            "{told}"
        );
        node.until("web", enforced("512Mi")).await;
        assert!((kernel::now() - begun).as_secs() >= 10, "it is tried again");
    });
}

#[test]
fn a_container_that_is_restarted_for_its_resources_finds_its_pod_resized() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[sized("64Mi", "RestartContainer", 1)]);
        node.until("web", phase("Running")).await;
        node.desire(&[sized("128Mi", "RestartContainer", 2)]);
        let again = |status: &PodStatus| {
            let app = container(status, "app");
            app.restart_count == 1 && app.state.as_ref().is_some_and(|s| s.running.is_some())
        };
        node.until("web", again).await;
        let text = metrics::text();
        for line in [
            "kubelet_runtime_operations_total{operation_type=\"update_podsandbox_resources\"} 1",
            "kubelet_pod_resize_duration_milliseconds_count{success=\"true\"} 1",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} in {text}");
        }
    });
}

/// Upstream's TestDoPodResizeAction: its rows on pod-level resources, over a restart of the agent.
#[test]
fn pod_level_resources_are_resized_and_known_to_the_next_agent() {
    run_paused(|| async {
        let with = |memory: &str, generation: i64| -> Arc<Pod> {
            let mut web = (*sized("64Mi", "NotRequired", generation)).clone();
            let level = serde_json::json!({"limits": {"cpu": "1", "memory": memory}});
            web.spec.as_mut().unwrap().resources = serde_json::from_value(level).unwrap();
            web.into()
        };
        let told = || {
            let text = metrics::text();
            let name =
                "kubelet_runtime_operations_total{operation_type=\"update_podsandbox_resources\"}";
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
                .unwrap_or(0)
        };
        let node = TestNode::start().await;
        node.desire(&[with("1Gi", 1)]);
        node.until("web", phase("Running")).await;
        pass(Duration::from_secs(5)).await;
        assert_eq!(told(), 0);
        node.desire(&[with("2Gi", 2)]);
        pass(Duration::from_secs(5)).await;
        assert_eq!(told(), 1);
        let node = node.restart().await;
        node.desire(&[with("2Gi", 2)]);
        node.until("web", phase("Running")).await;
        pass(Duration::from_secs(5)).await;
        assert_eq!(told(), 1);
        node.desire(&[with("3Gi", 3)]);
        pass(Duration::from_secs(5)).await;
        assert_eq!(told(), 2);
        let status = node.until("web", phase("Running")).await;
        assert_eq!(container(&status, "app").restart_count, 0);
        assert_eq!(condition(&status, "PodResizeInProgress"), None);
    });
}
