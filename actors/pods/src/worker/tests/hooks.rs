//! Hooks and grace periods, in the life of a pod.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerState, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kernel::testing::{pass, run_paused};
use logic_api::testing::yaml::pod;

use super::{container, phase, waits_for};
use crate::testing::TestNode;

#[test]
fn a_container_shows_as_running_when_its_post_start_hook_has_ended() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let begun = kernel::now();
        node.desire(&[pod("
metadata: {name: web}
spec:
  containers:
  - name: app
    image: localhost/busybox
    command: [sleep, infinity]
    lifecycle: {postStart: {sleep: {seconds: 7}}}
")]);
        node.until("web", waits_for("app", "ContainerCreating"))
            .await;
        let runs = |status: &PodStatus| {
            container(status, "app")
                .state
                .as_ref()
                .is_some_and(|state| state.running.is_some())
        };
        node.until("web", runs).await;
        assert!(kernel::now() - begun >= Duration::from_secs(7));
    });
}

fn state<'a>(status: &'a PodStatus, name: &str) -> &'a ContainerState {
    container(status, name).state.as_ref().unwrap()
}

#[test]
fn a_container_waits_for_the_hooks_of_those_before_it_and_for_nothing_else() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod("
metadata: {name: web}
spec:
  containers:
  - {name: zero, image: localhost/busybox, command: [sleep, infinity]}
  - name: one
    image: localhost/busybox
    command: [sleep, infinity]
    lifecycle: {postStart: {sleep: {seconds: 7}}}
  - {name: two, image: localhost/busybox, command: [sleep, infinity]}
")]);
        let status = node
            .until("web", |status| state(status, "zero").running.is_some())
            .await;
        assert!(state(&status, "two").waiting.is_some(), "{status:?}");
        let status = node
            .until("web", |status| state(status, "two").running.is_some())
            .await;
        let started = |name: &str| {
            state(&status, name)
                .running
                .as_ref()
                .unwrap()
                .started_at
                .as_ref()
                .unwrap()
                .0
        };
        let (hooked, after) = (started("one"), started("two"));
        assert!(
            after.duration_since(hooked) >= jiff::SignedDuration::from_secs(7),
            "{hooked} {after}"
        );
    });
}

#[test]
fn a_hook_that_fails_lets_the_next_container_start() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod("
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: one
    image: localhost/busybox
    command: [sleep, infinity]
    lifecycle: {postStart: {exec: {command: ['false']}}}
  - {name: two, image: localhost/busybox, command: [sleep, infinity]}
")]);
        node.until("web", |status| state(status, "two").running.is_some())
            .await;
    });
}

#[test]
fn a_container_whose_post_start_hook_fails_is_ended_and_says_why() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod("
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: localhost/busybox
    command: [sleep, infinity]
    lifecycle: {postStart: {exec: {command: ['false']}}}
")]);
        node.until("web", waits_for("app", "CrashLoopBackOff"))
            .await;
        let events = node.events().await;
        let told = "Exec lifecycle hook ([false]) for Container \"app\" in Pod \"web_default(web)\" failed";
        assert!(
            events.iter().any(|event| event.message.contains(told)),
            "{events:#?}"
        );
        let reasons = node.reasons().await;
        assert!(
            reasons.iter().any(|reason| reason == "FailedPostStartHook"),
            "{reasons:?}"
        );
        assert!(
            reasons.iter().any(|reason| reason == "Killing"),
            "{reasons:?}"
        );
    });
}

const SLOW: &str = "
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 30
  containers:
  - name: app
    image: localhost/busybox
    command: [sh, -c, \"trap '' TERM; sleep infinity\"]
    lifecycle: {preStop: {sleep: {seconds: 10}}}
";

/// The time until a pod is gone.
async fn gone(node: &TestNode, uid: &str) -> Duration {
    let begun = kernel::now();
    node.until_gone(uid).await;
    kernel::now() - begun
}

#[test]
fn the_pre_stop_hook_runs_inside_the_grace() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let deaf = pod(SLOW);
        let mut polite = (*deaf).clone();
        polite.metadata.uid = Some("polite".into());
        polite.metadata.name = Some("polite".into());
        polite.spec.as_mut().unwrap().containers[0].command =
            Some(vec!["sleep".into(), "infinity".into()]);
        node.desire(&[deaf, polite.into()]);
        node.until("web", phase("Running")).await;
        node.until("polite", phase("Running")).await;
        node.desire(&[]);
        let polite = gone(&node, "polite").await;
        assert!((10..13).contains(&polite.as_secs()), "{polite:?}");
        let deaf = polite + gone(&node, "web").await;
        assert!((29..33).contains(&deaf.as_secs()), "{deaf:?}");
    });
}

/// Upstream's TestLifeCycleHookForRestartableInitContainer.
#[test]
fn the_hooks_of_a_sidecar_are_run_as_those_of_an_app() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let begun = kernel::now();
        node.desire(&[pod("
metadata: {name: mesh}
spec:
  terminationGracePeriodSeconds: 30
  initContainers:
  - name: side
    image: localhost/busybox
    restartPolicy: Always
    command: [sleep, infinity]
    lifecycle: {postStart: {sleep: {seconds: 4}}, preStop: {sleep: {seconds: 9}}}
  containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]
")]);
        let runs = |status: &PodStatus| {
            let state = container(status, "side").state.clone();
            state.is_some_and(|state| state.running.is_some())
        };
        node.until("mesh", runs).await;
        assert!(kernel::now() - begun >= Duration::from_secs(4));
        node.until("mesh", phase("Running")).await;
        node.desire(&[]);
        let took = gone(&node, "mesh").await;
        assert!((9..13).contains(&took.as_secs()), "{took:?}");
    });
}

fn deleted(pod: &Pod, grace: i64) -> std::sync::Arc<Pod> {
    let mut pod = pod.clone();
    pod.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    pod.metadata.deletion_grace_period_seconds = Some(grace);
    pod.into()
}

#[test]
fn a_second_deletion_shortens_the_first() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let web = pod(SLOW);
        node.desire(std::slice::from_ref(&web));
        node.until("web", phase("Running")).await;
        node.desire(&[deleted(&web, 600)]);
        pass(Duration::from_secs(60)).await;
        assert!(node.exists(&"web".into()).await, "its grace is not over");
        node.desire(&[deleted(&web, 5)]);
        let took = gone(&node, "web").await;
        assert!((4..9).contains(&took.as_secs()), "{took:?}");
    });
}

/// Upstream gives a container two seconds more after a hook that has used the grace period up, and leaves the hook
/// running in them.
#[test]
fn a_hook_that_never_ends_runs_until_its_container_is_killed() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod("
metadata: {name: web}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 30
  initContainers:
  - name: side
    image: localhost/busybox
    restartPolicy: Always
    command: [sh, -c, \"trap '' TERM; sleep infinity\"]
    lifecycle: {preStop: {exec: {command: [sh, -c, 'sleep 31; kill -9 1']}}}
  containers:
  - {name: app, image: localhost/busybox, command: [sleep, '3']}
")]);
        let status = node.until("web", phase("Succeeded")).await;
        let ended = |name: &str| state(&status, name).terminated.clone().unwrap();
        let (app, side) = (ended("app"), ended("side"));
        let ends = [side, app].map(|ended| (ended.exit_code, ended.finished_at.unwrap().0));
        let took = ends[0].1.duration_since(ends[1].1);
        // The fake runtime does at once whatever a command does within its time; the stop alone would come after 32 s.
        assert!(ends[0].0 == 137 && took.as_secs() <= 31, "{took}");
    });
}
