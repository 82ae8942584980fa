//! Upstream's tests of whole syncs (kuberuntime_manager_test.go, kuberuntime_container_test.go), in the life of a pod.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kernel::testing::{pass, run_paused};
use logic_api::testing::yaml::pod;
use logic_api::types::{ContainerInstance, ContainerState};
use runtime_fake::Rpc;

use super::{container, phase};
use crate::testing::TestNode;
use crate::worker::executor::files;

fn is_true(kind: &'static str) -> impl Fn(&PodStatus) -> bool {
    move |status| {
        let mut conditions = status.conditions.iter().flatten();
        conditions.any(|condition| condition.type_ == kind && condition.status == "True")
    }
}

fn slow_image(name: &str) -> std::sync::Arc<Pod> {
    pod(&format!(
        "
metadata: {{name: {name}}}
spec:
  containers: [{{name: app, image: localhost/busybox, imagePullPolicy: Always, command: [sleep, infinity]}}]
"
    ))
}

/// Upstream's TestOnPodSandboxReadyInvocation and TestOnPodSandboxReadyTiming.
#[test]
fn a_pod_shows_that_its_sandbox_is_ready_before_its_images_are_there() {
    run_paused(|| async {
        let mut node = TestNode::start().await;
        for (name, events) in [
            ("told", ""),
            ("listed", r#", {"call": "GetContainerEvents"}"#),
        ] {
            let slow = r#"{"call": "PullImage", "delay": "100s"}"#;
            node.script(&format!(r#"{{"faults": [{slow}{events}]}}"#));
            node = node.restart().await;
            let begun = kernel::now();
            node.desire(&[slow_image(name)]);
            let status = node.until(name, is_true("PodReadyToStartContainers")).await;
            assert!(kernel::now() - begun < Duration::from_secs(20), "{name}");
            assert_eq!(status.pod_ips.as_ref().map(Vec::len), Some(1), "{name}");
            let now = node.runtime.pod(&name.into()).await.unwrap();
            assert_eq!((now.sandboxes.len(), now.containers.len()), (1, 0));
            node.until(name, phase("Running")).await;
        }
    });
}

const DEAF_MESH: &str = "
metadata: {name: mesh}
spec:
  terminationGracePeriodSeconds: 10
  initContainers:
  - {name: first, image: localhost/busybox, restartPolicy: Always, command: [sh, -c, \"trap '' TERM; sleep infinity\"]}
  - {name: second, image: localhost/busybox, restartPolicy: Always, command: [sh, -c, \"trap '' TERM; sleep infinity\"]}
  containers:
  - {name: app, image: localhost/busybox, command: [sh, -c, \"trap '' TERM; sleep infinity\"]}
";

/// Upstream's TestTerminationOrderingObeysGrace.
#[test]
fn who_waits_for_others_to_end_waits_no_longer_than_the_grace() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(DEAF_MESH)]);
        node.until("mesh", phase("Running")).await;
        let begun = kernel::now();
        node.desire(&[]);
        node.until_gone("mesh").await;
        let took = (kernel::now() - begun).as_secs();
        assert!((10..15).contains(&took), "{took}");
    });
}

const WEB: &str = "
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - {name: app, image: localhost/busybox, command: [sleep, infinity]}
  - {name: side, image: localhost/busybox, command: [sleep, infinity]}
";

/// Upstream's TestGetPodStatus, TestGetPodStatusWithNotFoundError and TestStopContainerWithNotFoundError.
#[test]
fn what_is_gone_when_it_is_asked_for_is_no_failure() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(WEB)]);
        node.until("web", phase("Running")).await;
        let gone = |call: &str| {
            format!(
                r#"{{"faults": [{{"call": "{call}", "times": 1, "code": "NotFound", "message": "no"}}]}}"#
            )
        };
        node.script(&gone("ContainerStatus"));
        let seen = node.runtime.pod(&"web".into()).await.unwrap();
        assert_eq!((seen.name.as_str(), seen.containers.len()), ("web", 1));
        assert_eq!((seen.namespace.as_str(), seen.ips().len()), ("default", 1));
        node.script(&gone("StopContainer"));
        let begun = kernel::now();
        node.desire(&[]);
        node.until_gone("web").await;
        let took = (kernel::now() - begun).as_secs();
        assert!(took < 10, "{took}");
    });
}

/// Upstream's TestRemoveContainer.
/// Each stop of a sandbox makes containerd take its network down once more.
#[test]
fn a_pod_is_made_and_ended_by_one_call_of_each_kind() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let text = "
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]
";
        node.desire(&[pod(text)]);
        node.until("web", phase("Running")).await;
        node.desire(&[]);
        node.until_gone("web").await;
        let once = [
            Rpc::RunPodSandbox,
            Rpc::ImageStatus,
            Rpc::CreateContainer,
            Rpc::StartContainer,
            Rpc::StopContainer,
            Rpc::StopPodSandbox,
            Rpc::RemoveContainer,
            Rpc::RemovePodSandbox,
        ];
        assert_eq!(once.map(|call| node.fake.calls(call)), [1; 8]);
    });
}

#[test]
fn a_removed_instance_takes_its_logs_and_their_link_with_it() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let web = pod(WEB);
        let policy = &node.rules.node;
        let logs = policy.pod_logs_dir.join("default_web_web/app");
        std::fs::create_dir_all(&logs).unwrap();
        std::fs::create_dir_all(&policy.container_logs_dir).unwrap();
        let names = [
            "0.log",
            "0.log.20060102-150405",
            "0.log.20060102-150405.gz",
            "01.log",
            "1.log",
        ];
        for name in names {
            std::fs::write(logs.join(name), name).unwrap();
        }
        let id = "c0".into();
        let link =
            logic_api::pod::labels::legacy_log_link(&policy.container_logs_dir, &web, "app", &id);
        std::os::unix::fs::symlink(logs.join("0.log"), &link).unwrap();
        let instance = ContainerInstance {
            id,
            name: "app".into(),
            attempt: 0,
        };
        files::remove_log(&web, &instance, policy).await;
        let left = std::fs::read_dir(&logs).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["01.log", "1.log"]);
        assert_eq!(node.files("links"), 0);
    });
}

const TOGETHER: &str = "
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 2
  initContainers: [{name: init, image: localhost/busybox, command: [sleep, '1']}]
  containers:
  - {name: foo1, image: localhost/busybox, command: [sleep, infinity]}
  - name: foo2
    image: localhost/busybox
    command: [sh, -c, 'sleep 30; exit 42']
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]
";

/// Upstream's TestSyncPodWithRestartAllContainers and TestRemoveContainer_keepLogs.
#[test]
fn after_a_triggering_exit_all_begins_anew_in_the_same_sandbox_and_the_logs_stay() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(TOGETHER)]);
        node.until("web", phase("Running")).await;
        let again = |status: &PodStatus| {
            let both = ["foo1", "foo2"].map(|name| container(status, name));
            both.iter().all(|c| {
                let runs = c
                    .state
                    .as_ref()
                    .is_some_and(|state| state.running.is_some());
                runs && c.restart_count == 1
            })
        };
        let status = node.until("web", again).await;
        assert_eq!(container(&status, "init").restart_count, 1);
        let now = node.runtime.pod(&"web".into()).await.unwrap();
        assert_eq!((now.sandboxes.len(), now.sandboxes[0].attempt), (1, 0));
        assert_eq!(now.containers.len(), 3, "those of before are removed");
        for name in ["init", "foo1", "foo2"] {
            assert_eq!(
                node.files(&format!("logs/default_web_web/{name}")),
                2,
                "{name}"
            );
        }
    });
}

/// Upstream's TestKillPod.
#[test]
fn a_killed_pod_has_nothing_that_runs_debug_containers_included() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let mut web = (*pod(WEB)).clone();
        let debug = k8s_openapi::api::core::v1::EphemeralContainer {
            name: "debug".into(),
            image: Some("localhost/busybox".into()),
            command: Some(vec!["sleep".into(), "infinity".into()]),
            target_container_name: Some("app".into()),
            ..Default::default()
        };
        node.desire(&[web.clone().into()]);
        node.until("web", phase("Running")).await;
        let spec = web.spec.as_mut().unwrap();
        spec.ephemeral_containers = Some(vec![debug]);
        spec.active_deadline_seconds = Some(60);
        node.desire(&[web.into()]);
        let debugged = |status: &PodStatus| {
            let mut all = status.ephemeral_container_statuses.iter().flatten();
            all.any(|c| {
                c.state
                    .as_ref()
                    .is_some_and(|state| state.running.is_some())
            })
        };
        node.until("web", debugged).await;
        node.until("web", phase("Failed")).await;
        pass(Duration::from_secs(5)).await;
        let now = node.runtime.pod(&"web".into()).await.unwrap();
        let states: Vec<_> = now.containers.iter().map(|c| c.state).collect();
        assert_eq!(states, [ContainerState::Exited; 3]);
        assert!(!now.sandboxes[0].is_ready());
    });
}
