//! Sidecars: before the app containers, and after them.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use kernel::testing::run_paused;
use logic_api::testing::yaml::pod;

use super::{container, phase};
use crate::testing::TestNode;

const MESH: &str = "
metadata: {name: mesh}
spec:
  activeDeadlineSeconds: 30
  terminationGracePeriodSeconds: 60
  initContainers:
  - name: first
    image: localhost/busybox
    restartPolicy: Always
    command: [sh, -c, 'sleep 4; touch /started; sleep infinity']
    startupProbe: {exec: {command: [test, -f, /started]}, periodSeconds: 1, failureThreshold: 30}
  - {name: second, image: localhost/busybox, restartPolicy: Always, command: [sleep, infinity]}
  - {name: init, image: localhost/busybox, command: [sleep, '1']}
  containers:
  - {name: app, image: localhost/busybox, command: [sh, -c, \"trap 'sleep 3; exit 0' TERM; sleep infinity\"]}
";

fn started(status: &PodStatus, name: &str) -> Timestamp {
    let state = container(status, name).state.clone().unwrap();
    state.running.unwrap().started_at.unwrap().0
}

fn ended_at(status: &PodStatus, name: &str) -> Timestamp {
    let state = container(status, name).state.clone().unwrap();
    state.terminated.unwrap().finished_at.unwrap().0
}

#[test]
fn a_sidecar_is_waited_for_when_it_starts_and_ends_after_the_app() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(MESH)]);
        let up = node.until("mesh", phase("Running")).await;
        let up = match container(&up, "app").state.clone().unwrap().running {
            Some(_) => up,
            None => {
                let runs = |status: &PodStatus| {
                    container(status, "app")
                        .state
                        .as_ref()
                        .is_some_and(|s| s.running.is_some())
                };
                node.until("mesh", runs).await
            }
        };
        let waited = started(&up, "second").duration_since(started(&up, "first"));
        assert!(
            waited.as_secs() >= 4,
            "the startup probe was not waited for: {waited}"
        );
        assert!(started(&up, "app") >= ended_at(&up, "init"));
        let over = |status: &PodStatus| {
            let state = container(status, "first").state.clone();
            state.is_some_and(|state| state.terminated.is_some())
        };
        let down = node.until("mesh", over).await;
        assert!(phase("Failed")(&down));
        let ends = ["app", "second", "first"].map(|name| ended_at(&down, name));
        assert!(ends.is_sorted(), "{ends:?}");
        assert!(ends[1].duration_since(ends[0]).as_secs() <= 2);
    });
}

#[test]
fn a_sidecar_that_ends_is_started_again_while_the_app_lives_on() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod("
metadata: {name: mesh}
spec:
  initContainers:
  - {name: side, image: localhost/busybox, restartPolicy: Always, command: [sleep, '5']}
  containers:
  - {name: app, image: localhost/busybox, command: [sleep, infinity]}
")]);
        let again = |status: &PodStatus| container(status, "side").restart_count == 2;
        let status = node.until("mesh", again).await;
        assert_eq!(container(&status, "app").restart_count, 0);
        assert_eq!(status.phase.as_deref(), Some("Running"));
    });
}

#[test]
fn a_pod_succeeds_when_its_app_has_and_its_sidecars_are_ended_for_it() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod("
metadata: {name: job}
spec:
  restartPolicy: Never
  initContainers:
  - {name: side, image: localhost/busybox, restartPolicy: Always, command: [sleep, infinity]}
  containers:
  - {name: app, image: localhost/busybox, command: [sleep, '3']}
")]);
        let status = node.until("job", phase("Succeeded")).await;
        assert!(ended_at(&status, "side") >= ended_at(&status, "app"));
    });
}
