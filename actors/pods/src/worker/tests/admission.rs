//! Admission, on a node of 4 CPUs.

use k8s_openapi::api::core::v1::PodStatus;
use kernel::InjectedFault;
use kernel::testing::run_paused;
use logic_api::testing::yaml::pod;
use logic_placement::topology::testing::OneCpuEach;

use super::phase;
use crate::testing::TestNode;

fn wanting(name: &str, cpu: &str, more: &str) -> String {
    format!(
        "
metadata: {{name: {name}}}
spec:
  {more}
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: localhost/busybox
    command: [sleep, infinity]
    resources: {{requests: {{cpu: '{cpu}'}}}}
"
    )
}

#[test]
fn a_pod_without_room_fails_and_says_what_was_missing() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[
            pod(&wanting("small", "1", "")),
            pod(&wanting("zoo", "3500m", "")),
        ]);
        node.until("small", phase("Running")).await;
        let status = node.until("zoo", phase("Failed")).await;
        assert_eq!(status.reason.as_deref(), Some("OutOfcpu"));
        assert_eq!(
            status.message.as_deref(),
            Some(
                "Pod was rejected: Node didn't have enough resource: cpu, requested: 3500, used: 1000, capacity: 4000"
            )
        );
        assert!(!node.exists(&"zoo".into()).await, "nothing of it was begun");
        assert!(
            node.reasons()
                .await
                .iter()
                .any(|reason| reason == "OutOfcpu")
        );
    });
}

#[test]
fn strict_supplemental_groups_are_admitted_where_the_runtime_honours_them() {
    let strict = "securityContext: {supplementalGroupsPolicy: Strict}";
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(&wanting("web", "1", strict))]);
        node.until("web", phase("Running")).await;
    });
    run_paused(|| async {
        let node = TestNode::start().await;
        node.script(r#"{"supplemental_groups_policy": false}"#);
        node.desire(&[pod(&wanting("web", "1", strict))]);
        let status = node.until("web", phase("Failed")).await;
        let reason = status.reason.as_deref();
        assert_eq!(reason, Some("SupplementalGroupsPolicyNotSupported"));
    });
}

#[test]
fn a_critical_pod_takes_the_room_of_another_and_begins_when_that_has_ended() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let web = pod(&wanting("web", "3", ""));
        node.desire(std::slice::from_ref(&web));
        node.until("web", phase("Running")).await;
        let critical = pod(&wanting("critical", "3", "priority: 2000000000"));
        node.desire(&[web, critical]);
        let victim = node.until("web", phase("Failed")).await;
        assert_eq!(victim.reason.as_deref(), Some("Preempting"));
        node.until("critical", phase("Running")).await;
    });
}

#[test]
fn what_runs_is_adopted_though_there_would_be_no_room_for_it_now() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let (a, b) = (pod(&wanting("a", "2", "")), pod(&wanting("b", "2", "")));
        node.desire(&[a.clone(), b.clone()]);
        for name in ["a", "b"] {
            node.until(name, phase("Running")).await;
        }
        let node = node.restart_with(2).await;
        node.desire(&[a, b]);
        for name in ["a", "b"] {
            node.until(name, phase("Running")).await;
        }
    });
}

#[test]
fn a_failed_pod_stays_failed_when_its_worker_dies() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(&wanting("zoo", "5", ""))]);
        node.until("zoo", phase("Failed")).await;
        let path = "oxlet/pods/workers/zoo";
        node.node
            .root
            .inject(path, kernel::InjectedFault::Panic)
            .unwrap();
        kernel::testing::pass(std::time::Duration::from_secs(5)).await;
        let failed = |status: &PodStatus| status.reason.as_deref() == Some("OutOfcpu");
        node.until("zoo", failed).await;
        assert!(!node.exists(&"zoo".into()).await);
    });
}

#[test]
fn what_a_pod_has_to_itself_is_free_again_when_nothing_of_it_runs() {
    let failed = |status: &PodStatus| status.reason.as_deref() == Some("UnexpectedAdmissionError");
    run_paused(|| async {
        let node = TestNode::assigning(OneCpuEach(2).alone().into()).await;
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| pod(&wanting(name, "1m", "")));
        node.desire(&[a.clone(), b.clone()]);
        node.until("a", phase("Running")).await;
        node.until("b", phase("Running")).await;
        // The workers hold it, not the pod manager.
        let manager = "oxlet/pods/pod-manager";
        node.node
            .root
            .inject(manager, InjectedFault::Panic)
            .unwrap();
        node.desire(&[a, b.clone(), c.clone()]);
        let status = node.until("c", failed).await;
        assert_eq!(
            status.message.as_deref(),
            Some("Pod was rejected: Allocate failed due to no CPU left, which is unexpected")
        );
        node.desire(&[b.clone(), c.clone()]);
        node.until_gone("a").await;
        node.desire(&[b, c, d]);
        node.until("d", phase("Running")).await;
    });
}
