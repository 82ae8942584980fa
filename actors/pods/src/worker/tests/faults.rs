//! Calls of the runtime that fail, hang, or are carried out though their answer is lost: whatever happens to
//! one pod, it starts and ends, nothing of it is duplicated, and its neighbour is not affected.

use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use kernel::testing::{pass, run_paused};
use logic_api::testing::yaml::pod;
use logic_api::types::{ContainerState, RuntimePod, SandboxState};

use super::phase;
use crate::testing::TestNode;

fn struck(name: &str) -> String {
    format!(
        "
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 2
  initContainers:
  - {{name: init, image: localhost/busybox, command: [sleep, '1']}}
  - {{name: side, image: localhost/busybox, restartPolicy: Always, command: [sleep, infinity]}}
  containers:
  - name: app
    image: localhost/busybox
    command: [sleep, infinity]
    livenessProbe: {{exec: {{command: ['true']}}, periodSeconds: 1}}
    lifecycle: {{postStart: {{sleep: {{seconds: 0}}}}, preStop: {{exec: {{command: ['true']}}}}}}
"
    )
}

/// The calls of a pod's life.
const CALLS: [&str; 12] = [
    "RunPodSandbox",
    "PodSandboxStatus",
    "ListPodSandbox",
    "ImageStatus",
    "CreateContainer",
    "StartContainer",
    "ContainerStatus",
    "ListContainers",
    "ExecSync",
    "StopContainer",
    "StopPodSandbox",
    "RemoveContainer",
];

/// What may happen to a call.
const FAULTS: [&str; 4] = [
    r#""code": "Internal", "message": "no""#,
    r#""code": "Internal", "message": "done, and lost", "after_effect": true"#,
    r#""code": "Unavailable", "message": "gone", "after_effect": true"#,
    r#""hang": true"#,
];

/// Upstream's TestNetworkErrorsWithoutHostNetwork, and its node suite on a runtime without a network: only pods on the node's network start.
#[test]
fn no_sandbox_is_asked_for_while_the_runtimes_network_is_not_ready_but_on_the_nodes_own() {
    const APP: &str =
        "containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]";
    let yaml =
        |name: &str, more: &str| format!("{{metadata: {{name: {name}}}, spec: {{{more}{APP}}}}}");
    run_paused(|| async {
        let node = TestNode::start().await;
        node.script(r#"{"network_ready": false}"#);
        node.desire(&[
            pod(&yaml("web", "")),
            pod(&yaml("host", "hostNetwork: true, ")),
        ]);
        node.until("host", phase("Running")).await;
        pass(Duration::from_secs(3)).await;
        assert_eq!(node.fake.calls(runtime_fake::Rpc::RunPodSandbox), 1);
        let events = node.events().await;
        let told = events
            .iter()
            .find(|event| event.reason == "NetworkNotReady");
        assert_eq!(
            told.unwrap().message,
            "network is not ready: container runtime network not ready: NetworkReady=false reason:Scripted message:NetworkReady is scripted to be false"
        );
        node.script("{}");
        node.until("web", phase("Running")).await;
    });
}

#[test]
fn a_network_that_was_ready_a_moment_ago_is_not_asked_about_again() {
    let yaml = |name: &str| {
        let app = "{name: app, image: localhost/busybox, command: [sleep, infinity]}";
        pod(&format!(
            "{{metadata: {{name: {name}}}, spec: {{containers: [{app}]}}}}"
        ))
    };
    run_paused(|| async {
        let node = TestNode::start().await;
        let asked = || node.fake.calls(runtime_fake::Rpc::Status);
        node.desire(&[yaml("a")]);
        node.until("a", phase("Running")).await;
        let before = asked();
        node.desire(&[yaml("a"), yaml("b")]);
        node.until("b", phase("Running")).await;
        assert_eq!(asked(), before);
        pass(Duration::from_secs(5)).await;
        node.desire(&[yaml("a"), yaml("b"), yaml("c")]);
        node.until("c", phase("Running")).await;
        assert_eq!(asked(), before + 1);
    });
}

/// No container name has two running instances.
fn doubled(pod: &RuntimePod) -> Option<String> {
    let alive = |name: &str| {
        let instances = pod.instances(name);
        instances
            .filter(|c| c.state == ContainerState::Running)
            .count()
    };
    let names = pod
        .containers
        .iter()
        .map(|container| container.name.clone());
    names.into_iter().find(|name| alive(name) > 1)
}

fn all_ready(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[test]
fn whatever_call_fails_or_hangs_the_pod_comes_to_run_and_to_an_end_and_its_neighbour_is_not_delayed()
 {
    run_paused(|| async {
        let node = TestNode::start().await;
        for (turn, call) in CALLS.into_iter().enumerate() {
            for (kind, fault) in FAULTS.into_iter().enumerate() {
                let (name, free) = (
                    format!("struck-{turn}-{kind}"),
                    format!("free-{turn}-{kind}"),
                );
                let script = format!(
                    r#"{{"faults": [{{"call": "{call}", "subject": "{name}", "times": 2, {fault}}}]}}"#
                );
                node.script(&script);
                let begun = kernel::now();
                node.desire(&[pod(&struck(&name)), pod(&struck(&free))]);
                node.until(&free, all_ready).await;
                let took = kernel::now() - begun;
                assert!(
                    took < Duration::from_secs(20),
                    "{call}, {fault}: its neighbour took {took:?}"
                );
                node.until(&name, all_ready).await;
                let now = node.runtime.pod(&name.as_str().into()).await.unwrap();
                assert_eq!(doubled(&now), None, "{call}, {fault}");
                assert_eq!(
                    now.sandboxes.iter().filter(|s| s.is_ready()).count(),
                    1,
                    "{call}, {fault}"
                );
                node.desire(&[]);
                node.until_gone(&free).await;
                node.until_gone(&name).await;
            }
        }
    });
}

/// Upstream's TestSyncPodWithSandboxAndDeletedPod.
#[test]
fn a_sandbox_that_fails_is_told_of_unless_its_pod_is_to_end() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let slow = |name: &str| {
            format!(
                r#"{{"call": "RunPodSandbox", "subject": "{name}", "times": 1, "delay": "5s",
                    "code": "Unknown", "message": "no network"}}"#
            )
        };
        let faults = [slow("kept"), slow("gone")].join(",");
        node.script(&format!(r#"{{"faults": [{faults}]}}"#));
        let kept = pod(&struck("kept"));
        node.desire(&[kept.clone(), pod(&struck("gone"))]);
        pass(Duration::from_secs(1)).await;
        node.desire(&[kept]);
        node.until_gone("gone").await;
        node.until("kept", all_ready).await;
        let events = node.events().await.into_iter();
        let told: Vec<(String, String)> = events
            .filter(|event| event.reason == "FailedCreatePodSandBox")
            .map(|event| (event.object.name.clone(), event.message))
            .collect();
        let message = "Failed to create pod sandbox: rpc error: code = Unknown desc = no network";
        assert_eq!(told, [("kept".to_owned(), message.to_owned())]);
    });
}

#[test]
fn a_call_that_hangs_at_the_end_of_a_pod_hangs_that_pod_alone() {
    run_paused(|| async {
        let node = TestNode::start().await;
        for call in [
            "ExecSync",
            "StopContainer",
            "StopPodSandbox",
            "RemoveContainer",
            "RemovePodSandbox",
        ] {
            let (name, free) = (
                format!("struck-{call}").to_lowercase(),
                format!("free-{call}").to_lowercase(),
            );
            node.desire(&[pod(&struck(&name)), pod(&struck(&free))]);
            node.until(&free, phase("Running")).await;
            node.until(&name, all_ready).await;
            node.script(&format!(
                r#"{{"faults": [{{"call": "{call}", "subject": "{name}", "times": 1, "hang": true}}]}}"#
            ));
            let begun = kernel::now();
            node.desire(&[]);
            node.until_gone(&free).await;
            let took = kernel::now() - begun;
            assert!(
                took < Duration::from_secs(10),
                "{call}: its neighbour took {took:?}"
            );
            node.until_gone(&name).await;
        }
    });
}

/// What was made of a pod: its sandboxes and the instances of its containers.
fn made(pod: &RuntimePod) -> (usize, Vec<(String, u32)>) {
    let instances = pod.containers.iter();
    let instances = instances.map(|container| (container.name.clone(), container.attempt));
    (pod.sandboxes.len(), instances.collect())
}

const PLAIN: &str = "
metadata: {name: plain}
spec:
  terminationGracePeriodSeconds: 2
  containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]
";

#[test]
fn a_call_that_is_broken_off_is_looked_for_asked_for_once_more_and_no_failure_of_the_pod() {
    run_paused(|| async {
        let node = TestNode::start().await;
        for call in ["RunPodSandbox", "CreateContainer", "StartContainer"] {
            for after_effect in [true, false] {
                node.script(&format!(
                    r#"{{"faults": [{{"call": "{call}", "subject": "plain", "times": 3, "code": "Unavailable",
                        "message": "gone", "after_effect": {after_effect}}}]}}"#
                ));
                let begun = kernel::now();
                node.desire(&[pod(PLAIN)]);
                let status = node.until("plain", all_ready).await;
                let took = kernel::now() - begun;
                assert!(took < Duration::from_secs(2), "{call}: {took:?}");
                assert_eq!(super::container(&status, "app").restart_count, 0);
                let now = node.runtime.pod(&"plain".into()).await.unwrap();
                assert_eq!(made(&now), (1, vec![("app".to_owned(), 0)]), "{call}");
                node.desire(&[]);
                node.until_gone("plain").await;
                // Its logs would count as instances of the next one, whose UID is the same.
                pass(Duration::from_secs(62)).await;
            }
        }
        let failed = |reason: &String| reason.starts_with("Failed") || reason == "BackOff";
        let failures = node.reasons().await.into_iter().filter(failed);
        assert_eq!(failures.collect::<Vec<_>>(), [""; 0]);
    });
}

#[test]
fn a_container_that_an_earlier_agent_made_and_did_not_start_is_started_and_not_made_again() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.script(
            r#"{"faults": [{"call": "StartContainer", "subject": "plain", "times": 1, "hang": true}]}"#,
        );
        node.desire(&[pod(PLAIN)]);
        pass(Duration::from_secs(5)).await;
        let before = node.runtime.pod(&"plain".into()).await.unwrap();
        assert_eq!(before.containers[0].state, ContainerState::Created);

        let node = node.restart().await;
        node.script("{}");
        node.desire(&[pod(PLAIN)]);
        node.until("plain", all_ready).await;
        let after = node.runtime.pod(&"plain".into()).await.unwrap();
        assert_eq!(after.containers[0].id, before.containers[0].id);
        assert_eq!(made(&after), (1, vec![("app".to_owned(), 0)]));
    });
}

#[test]
fn a_pod_that_the_runtime_does_not_remove_is_over_for_everybody_else_and_said_to_be_stuck() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(PLAIN)]);
        node.until("plain", all_ready).await;
        let refused = |call: &str| {
            format!(
                r#"{{"call": "{call}", "subject": "plain", "code": "FailedPrecondition",
                    "message": "cannot delete running task"}}"#
            )
        };
        let faults = ["RemoveContainer", "RemovePodSandbox"]
            .map(refused)
            .join(",");
        node.script(&format!(r#"{{"faults": [{faults}]}}"#));
        node.desire(&[]);
        pass(Duration::from_secs(30)).await;
        let stuck = stuck(&node).await;
        assert_eq!(stuck.len(), 1, "{stuck:?}");
        assert!(stuck[0].starts_with("default/plain: sandbox"), "{stuck:?}");
        assert!(stuck[0].contains("container app ("), "{stuck:?}");
        assert!(stuck[0].contains("cannot delete running task"), "{stuck:?}");
        assert!(!node.statuses().await.contains_key(&"plain".into()));
        let events = node.events().await;
        let told = events
            .iter()
            .filter(|event| event.reason == "FailedRemoval");
        assert_eq!(told.count(), 1);

        // Its name is free.
        let mut other = (*pod(PLAIN)).clone();
        other.metadata.uid = Some("other".to_owned());
        node.desire(&[std::sync::Arc::new(other)]);
        node.until("other", all_ready).await;

        node.script("{}");
        node.until_gone("plain").await;
        assert_eq!(self::stuck(&node).await, [""; 0]);
    });
}

/// Twenty running pods of this manifest.
async fn crowd(node: &TestNode, text: &str) {
    let named = |nth: usize| {
        let mut pod = (*pod(text)).clone();
        let name = format!("plain-{nth}");
        (pod.metadata.name, pod.metadata.uid) = (Some(name.clone()), Some(name));
        std::sync::Arc::new(pod)
    };
    let pods: Vec<_> = (0..20).map(named).collect();
    node.desire(&pods);
    for nth in 0..20 {
        node.until(&format!("plain-{nth}"), all_ready).await;
    }
    pass(Duration::from_secs(5)).await;
}

#[test]
fn sandboxes_of_many_pods_are_stopped_a_few_abreast() {
    run_paused(|| async {
        let node = TestNode::start().await;
        crowd(&node, PLAIN).await;
        node.script(r#"{"faults": [{"call": "StopPodSandbox", "delay": "1s"}]}"#);
        node.desire(&[]);
        // One round of stops: the containers end at once.
        pass(Duration::from_millis(1_500)).await;
        let all = node.runtime.pods().await.unwrap();
        let sandboxes = all.values().flat_map(|pod| &pod.sandboxes);
        let ready = sandboxes
            .filter(|sandbox| sandbox.state == SandboxState::Ready)
            .count();
        assert!(
            (8..20).contains(&ready),
            "{ready} of 20 are not stopped yet"
        );
        pass(Duration::from_secs(10)).await;
        assert!(node.runtime.pods().await.unwrap().is_empty());
    });
}

const STUBBORN: &str = "
metadata: {name: plain}
spec:
  terminationGracePeriodSeconds: 3
  containers:
  - {name: app, image: localhost/busybox, command: [sh, -c, \"trap '' TERM; sleep 86400\"]}
";

async fn running(node: &TestNode) -> usize {
    let all = node.runtime.pods().await.unwrap();
    let containers = all.values().flat_map(|pod| &pod.containers);
    let running = containers.filter(|one| matches!(one.state, ContainerState::Running));
    running.count()
}

#[test]
fn of_many_containers_whose_grace_is_over_a_few_are_killed_abreast() {
    run_paused(|| async {
        let node = TestNode::start().await;
        crowd(&node, STUBBORN).await;
        node.desire(&[]);
        pass(Duration::from_millis(2_900)).await;
        assert_eq!(running(&node).await, 20, "none before its grace is over");
        node.script(r#"{"faults": [{"call": "StopContainer", "delay": "1s"}]}"#);
        // One round of kills, beside those that the runtime's own clock has killed.
        pass(Duration::from_millis(1_500)).await;
        let left = running(&node).await;
        assert!((4..16).contains(&left), "{left} of 20 run");
        pass(Duration::from_secs(5)).await;
        assert_eq!(running(&node).await, 0);
    });
}

#[test]
fn a_container_whose_turn_to_be_killed_does_not_come_is_killed_by_the_runtime() {
    run_paused(|| async {
        let node = TestNode::start().await;
        crowd(&node, STUBBORN).await;
        node.desire(&[]);
        pass(Duration::from_millis(2_900)).await;
        node.script(r#"{"faults": [{"call": "StopContainer", "delay": "1h"}]}"#);
        pass(Duration::from_secs(9)).await;
        assert!(running(&node).await > 0);
        pass(Duration::from_secs(2)).await;
        assert_eq!(running(&node).await, 0);
    });
}

#[test]
fn the_api_forgets_a_pod_when_nothing_of_it_runs_not_when_all_of_it_is_removed() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(PLAIN)]);
        node.until("plain", all_ready).await;
        node.script(
            r#"{"faults": [{"call": "RemoveContainer", "subject": "plain", "delay": "20s"}]}"#,
        );
        node.desire(&[]);
        pass(Duration::from_secs(10)).await;
        let left = node.runtime.pod(&"plain".into()).await.unwrap();
        assert!(left.is_stopped() && left.containers.len() == 1);
        assert!(!node.statuses().await.contains_key(&"plain".into()));
        node.until_gone("plain").await;
    });
}

async fn stuck(node: &TestNode) -> Vec<String> {
    let pods = &node.node.pod_manager;
    let asked = pods.ask(Duration::from_secs(1), crate::pod_manager::Msg::stuck);
    asked.await.unwrap()
}
