//! What pods have to themselves: held, on the disk, and left by others; on a node of 4 CPUs of which one is reserved.

use k8s_openapi::api::core::v1::PodStatus;
use kernel::InjectedFault;
use kernel::testing::{pass, run_paused};
use logic_api::testing::yaml::pod;
use logic_placement::testing::static_cpus;

use crate::testing::TestNode;
use crate::worker::tests::{container, phase};

const WEB: &str = "
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: side, image: localhost/busybox, command: [sleep, infinity], restartPolicy: Always}
  containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]
";

/// A guaranteed pod of this many CPUs.
pub(super) fn guaranteed(name: &str, cpus: &str) -> String {
    format!(
        "
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: localhost/busybox
    command: [sleep, infinity]
    resources: {{limits: {{cpu: '{cpus}', memory: 64Mi}}, requests: {{cpu: '{cpus}', memory: 64Mi}}}}
"
    )
}

/// What the kubelet would read.
fn state(node: &TestNode) -> String {
    std::fs::read_to_string(node.path("root/cpu_manager_state")).unwrap_or_default()
}

/// Upstream's TestReconcileState, as far as containers run.
#[test]
fn what_one_pod_takes_the_containers_of_others_leave_and_get_back() {
    run_paused(|| async {
        let node = TestNode::assigning(static_cpus(4)).await;
        let (web, db) = (pod(WEB), pod(&guaranteed("db", "2")));
        node.desire(std::slice::from_ref(&web));
        node.until("web", phase("Running")).await;
        assert_eq!(node.cpus("web", "app").await, "0-3");
        node.desire(&[web.clone(), db]);
        node.until("db", phase("Running")).await;
        pass(std::time::Duration::from_secs(1)).await;
        assert_eq!(node.cpus("db", "app").await, "1-2");
        for name in ["app", "side"] {
            assert_eq!(node.cpus("web", name).await, "0,3");
        }
        let expected =
            r#"{"policyName":"static","defaultCpuSet":"0,3","entries":{"db":{"app":"1-2"}}"#;
        assert!(state(&node).starts_with(expected), "{}", state(&node));
        node.desire(&[web]);
        node.until_gone("db").await;
        pass(std::time::Duration::from_secs(1)).await;
        assert_eq!(node.cpus("web", "app").await, "0-3");
        let expected = r#"{"policyName":"static","defaultCpuSet":"0-3","#;
        assert!(state(&node).starts_with(expected), "{}", state(&node));
    });
}

#[test]
fn a_container_that_the_runtime_would_not_move_is_moved_later_even_while_an_image_is_pulled() {
    run_paused(|| async {
        let node = TestNode::assigning(static_cpus(4)).await;
        node.desire(&[pod(&guaranteed("seed", "500m"))]);
        node.until("seed", phase("Running")).await;
        // The image is there now, and another one never comes.
        let both = WEB.replace(
            "localhost/busybox,",
            "localhost/busybox, imagePullPolicy: Never,",
        );
        let both = both.replace(
            "containers: [{",
            "containers: [{name: late, image: 'localhost/late:1'}, {",
        );
        let present = "image: localhost/busybox\n    imagePullPolicy: Never";
        let db = guaranteed("db", "2").replace("image: localhost/busybox", present);
        let (web, db) = (pod(&both), pod(&db));
        node.script(r#"{"faults": [{"call": "PullImage", "hang": true}]}"#);
        node.desire(std::slice::from_ref(&web));
        pass(std::time::Duration::from_secs(5)).await;
        assert_eq!(node.cpus("web", "side").await, "0-3");
        node.script(
            r#"{"faults": [
                {"call": "PullImage", "hang": true},
                {"call": "UpdateContainerResources", "code": "Internal"}
            ]}"#,
        );
        node.desire(&[web, db]);
        node.until("db", phase("Running")).await;
        pass(std::time::Duration::from_secs(5)).await;
        assert_eq!(node.cpus("web", "side").await, "0-3");
        node.script(r#"{"faults": [{"call": "PullImage", "hang": true}]}"#);
        pass(std::time::Duration::from_secs(11)).await;
        for name in ["side", "app"] {
            assert_eq!(node.cpus("web", name).await, "0,3", "{name}");
        }
    });
}

/// Upstream's TestCPUManagerAdd and TestCPUManagerRemove, over restarts of a container, the pod manager and the agent.
#[test]
fn a_pod_keeps_its_cpus_until_nothing_of_it_runs() {
    run_paused(|| async {
        let node = TestNode::assigning(static_cpus(4)).await;
        let (db, more) = (pod(&guaranteed("db", "2")), pod(&guaranteed("more", "2")));
        node.desire(std::slice::from_ref(&db));
        node.until("db", phase("Running")).await;
        let id = node.runtime.pod(&"db".into()).await.unwrap();
        node.fake.kill(id.newest("app").unwrap().id.as_str());
        let restarted = |status: &PodStatus| container(status, "app").restart_count == 1;
        node.until("db", restarted).await;
        assert_eq!(node.cpus("db", "app").await, "1-2");
        let manager = "oxlet/pods/pod-manager";
        node.node
            .root
            .inject(manager, InjectedFault::Panic)
            .unwrap();
        node.desire(&[db.clone(), more.clone()]);
        let failed =
            |status: &PodStatus| status.reason.as_deref() == Some("UnexpectedAdmissionError");
        let refused = node.until("more", failed).await;
        assert_eq!(
            refused.message.as_deref(),
            Some(
                "Pod was rejected: Allocate failed due to not enough cpus available to satisfy request: \
                 requested=2, available=1, which is unexpected"
            )
        );

        let node = node.restart_assigning(static_cpus(4)).await;
        node.desire(&[db, pod(&guaranteed("other", "1"))]);
        node.until("db", phase("Running")).await;
        node.until("other", phase("Running")).await;
        assert_eq!(node.cpus("db", "app").await, "1-2");
        assert_eq!(node.cpus("other", "app").await, "3");
        node.desire(&[]);
        node.until_gone("db").await;
        node.until_gone("other").await;
        pass(std::time::Duration::from_secs(1)).await;
        assert!(!state(&node).contains("entries"), "{}", state(&node));
    });
}

#[test]
fn what_a_pod_holds_that_is_gone_for_good_is_free_after_the_start() {
    run_paused(|| async {
        let node = TestNode::assigning(static_cpus(4)).await;
        node.desire(&[pod(&guaranteed("db", "3"))]);
        node.until("db", phase("Running")).await;
        let node = node.restart_elsewhere_assigning(static_cpus(4)).await;
        assert!(
            state(&node).contains(r#""db":{"app":"1-3"}"#),
            "{}",
            state(&node)
        );
        node.desire(&[pod(WEB)]);
        node.until("web", phase("Running")).await;
        pass(std::time::Duration::from_secs(2)).await;
        assert_eq!(node.cpus("web", "app").await, "0-3");
        assert!(!state(&node).contains("entries"), "{}", state(&node));
    });
}

/// Upstream's TestRemoveStaleState of the CPU manager: a pod that is over holds nothing, though its object is there.
#[test]
fn what_a_pod_holds_that_was_over_before_the_start_is_free() {
    run_paused(|| async {
        let node = TestNode::assigning(static_cpus(4)).await;
        let db = pod(&guaranteed("db", "3"));
        node.desire(std::slice::from_ref(&db));
        node.until("db", phase("Running")).await;
        let node = node.restart_elsewhere_assigning(static_cpus(4)).await;
        let mut over = k8s_openapi::api::core::v1::Pod::clone(&db);
        over.status = Some(PodStatus {
            phase: Some("Succeeded".to_owned()),
            ..PodStatus::default()
        });
        node.desire(&[over.into(), pod(&guaranteed("next", "3"))]);
        node.until("next", phase("Running")).await;
        assert_eq!(node.cpus("next", "app").await, "1-3");
    });
}

/// The gate DisableCPUQuotaWithExclusiveCPUs: the CPUs are the limit.
#[test]
fn exclusive_cpus_have_no_quota_and_neither_has_their_pod() {
    run_paused(|| async {
        let node = TestNode::assigning(static_cpus(4)).await;
        node.desire(&[
            pod(&guaranteed("whole", "1")),
            pod(&guaranteed("part", "500m")),
        ]);
        for (name, quota) in [("whole", -1), ("part", 50_000)] {
            node.until(name, phase("Running")).await;
            assert_eq!(node.quota(name, "app").await, quota, "{name}");
        }
    });
}
