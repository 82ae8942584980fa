//! A pod's life, through the whole tree, over the fake runtime, on a paused clock.

mod admission;
mod assignments;
mod claims;
mod faults;
mod handover;
mod hooks;
mod last_words;
mod life;
mod model;
mod mounts;
mod pauses;
mod probes;
mod quiet;
mod replaced;
mod resize;
mod sidecars;

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use kernel::testing::{pass, run_paused};
use logic_api::testing::yaml::pod;
use logic_api::types::{ContainerState, PodUid};
use state::events::EventType;

use crate::testing::TestNode;

fn phase<'a>(wanted: &'a str) -> impl Fn(&PodStatus) -> bool + 'a {
    move |status| status.phase.as_deref() == Some(wanted)
}

fn container<'a>(status: &'a PodStatus, name: &str) -> &'a ContainerStatus {
    let all = status.container_statuses.iter().flatten();
    all.chain(status.init_container_statuses.iter().flatten())
        .find(|status| status.name == name)
        .unwrap()
}

fn waits_for<'a>(name: &'a str, reason: &'a str) -> impl Fn(&PodStatus) -> bool + 'a {
    move |status| {
        let all = status.container_statuses.iter().flatten();
        let mut named = all.filter(|status| status.name == name);
        named.any(|status| {
            let waiting = status
                .state
                .as_ref()
                .and_then(|state| state.waiting.as_ref());
            waiting.and_then(|waiting| waiting.reason.as_deref()) == Some(reason)
        })
    }
}

const WEB: &str = "
metadata: {name: web}
spec:
  restartPolicy: Always
  terminationGracePeriodSeconds: 5
  initContainers:
  - {name: first, image: localhost/busybox, command: [sh, -c, 'sleep 1; exit 0']}
  - {name: second, image: localhost/busybox, command: [sleep, '1']}
  containers:
  - {name: app, image: localhost/busybox, command: [sleep, infinity]}
  - {name: side, image: localhost/busybox, command: [sleep, infinity]}
";

#[test]
fn a_pod_runs_its_init_containers_in_order_and_then_its_app_containers() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(WEB)]);
        let status = node.until("web", phase("Running")).await;
        let ready = status
            .conditions
            .iter()
            .flatten()
            .find(|condition| condition.type_ == "Ready");
        assert_eq!(ready.map(|ready| ready.status.as_str()), Some("True"));
        let ends = ["first", "second"].map(|name| {
            let state = container(&status, name).state.clone().unwrap();
            state.terminated.unwrap().finished_at.unwrap().0
        });
        let started = container(&status, "app")
            .state
            .clone()
            .unwrap()
            .running
            .unwrap()
            .started_at
            .unwrap()
            .0;
        assert!(
            ends[0] < ends[1] && ends[1] <= started,
            "{ends:?} {started}"
        );
        assert_eq!(status.pod_ips.as_ref().map(Vec::len), Some(1));
    });
}

#[test]
fn a_container_that_ends_comes_back_and_then_backs_off() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod("
metadata: {name: crash}
spec:
  restartPolicy: Always
  containers: [{name: app, image: localhost/busybox, command: [sh, -c, 'exit 3']}]
")]);
        let status = node
            .until("crash", waits_for("app", "CrashLoopBackOff"))
            .await;
        assert_eq!(container(&status, "app").restart_count, 1);
        let waiting = container(&status, "app")
            .state
            .clone()
            .unwrap()
            .waiting
            .unwrap();
        assert_eq!(
            waiting.message.as_deref(),
            Some("back-off 10s restarting failed container=app pod=crash_default(crash)")
        );
        pass(Duration::from_secs(11)).await;
        let again = node
            .until("crash", waits_for("app", "CrashLoopBackOff"))
            .await;
        assert_eq!(container(&again, "app").restart_count, 2);
    });
}

#[test]
fn back_off_and_restart_count_are_remembered_by_the_next_agent() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let crash = pod("
metadata: {name: crash}
spec:
  restartPolicy: Always
  containers: [{name: app, image: localhost/busybox, command: [sh, -c, 'exit 3']}]
");
        node.desire(std::slice::from_ref(&crash));
        node.until("crash", |status| {
            waits_for("app", "CrashLoopBackOff")(status)
                && container(status, "app").restart_count == 2
        })
        .await;
        pass(Duration::from_secs(2)).await;

        let node = node.restart().await;
        node.desire(&[crash]);
        let status = node
            .until("crash", waits_for("app", "CrashLoopBackOff"))
            .await;
        assert_eq!(container(&status, "app").restart_count, 2);
        let waiting = container(&status, "app")
            .state
            .clone()
            .unwrap()
            .waiting
            .unwrap();
        assert!(waiting.message.unwrap().starts_with("back-off 20s"));
    });
}

#[test]
fn a_pod_that_nobody_desires_any_more_ends_within_its_grace_and_leaves_nothing() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(WEB)]);
        node.until("web", phase("Running")).await;
        node.desire(&[]);
        node.until_gone("web").await;
        assert!(node.reasons().await.contains(&"Killing".to_owned()));
    });
}

#[test]
fn a_running_pod_is_adopted_by_the_next_agent_without_a_restart() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(WEB)]);
        let before = node.until("web", phase("Running")).await;
        let node = node.restart().await;
        node.desire(&[pod(WEB)]);
        let after = node.until("web", phase("Running")).await;
        for name in ["app", "side"] {
            assert_eq!(
                container(&before, name).container_id,
                container(&after, name).container_id
            );
        }
        assert_eq!(before.start_time, after.start_time);
    });
}

#[test]
fn a_pod_that_runs_once_succeeds_and_is_not_run_again() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let job = "
metadata: {name: job}
spec:
  restartPolicy: Never
  containers: [{name: app, image: localhost/busybox, command: [sh, -c, 'sleep 2; exit 0']}]
";
        node.desire(&[pod(job)]);
        node.until("job", phase("Succeeded")).await;
        let node = node.restart().await;
        node.desire(&[pod(job)]);
        let status = node.until("job", phase("Succeeded")).await;
        assert_eq!(container(&status, "app").restart_count, 0);
    });
}

#[test]
fn a_pod_past_its_deadline_fails() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod("
metadata: {name: late}
spec:
  restartPolicy: Never
  activeDeadlineSeconds: 30
  terminationGracePeriodSeconds: 2
  containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]
")]);
        node.until("late", phase("Running")).await;
        let status = node.until("late", phase("Failed")).await;
        assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
        let told = node.events().await.into_iter();
        let told: Vec<_> = told
            .filter(|event| event.reason == "DeadlineExceeded")
            .map(|event| (event.r#type, event.message, event.count))
            .collect();
        let message = "Pod was active on the node longer than the specified deadline";
        assert_eq!(told, [(EventType::Normal, message.to_owned(), 1)]);
    });
}

#[test]
fn an_image_that_cannot_be_pulled_shows_first_the_error_and_then_the_back_off() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod("
metadata: {name: lost}
spec:
  restartPolicy: Always
  containers:
  - {name: app, image: 'localhost/absent:1', imagePullPolicy: IfNotPresent}
  - {name: never, image: 'localhost/absent:2', imagePullPolicy: Never}
  - {name: bad, image: 'localhost/UPPER'}
")]);
        node.until("lost", waits_for("app", "ErrImagePull")).await;
        node.until("lost", waits_for("app", "ImagePullBackOff"))
            .await;
        node.until("lost", waits_for("never", "ErrImageNeverPull"))
            .await;
        node.until("lost", waits_for("bad", "InvalidImageName"))
            .await;
    });
}

#[test]
fn a_container_killed_from_outside_is_started_again_at_once() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(WEB)]);
        node.until("web", phase("Running")).await;
        let runtime = node.runtime.pod(&PodUid::from("web")).await.unwrap();
        let app = runtime.newest("app").unwrap().id.clone();
        assert!(node.fake.kill(app.as_str()));
        let status = node
            .until("web", |status| container(status, "app").restart_count == 1)
            .await;
        assert_eq!(container(&status, "side").restart_count, 0);
        let last = container(&status, "app")
            .last_state
            .clone()
            .unwrap()
            .terminated
            .unwrap();
        assert_eq!(last.exit_code, 137);
    });
}

#[test]
fn a_sandbox_that_dies_is_replaced_with_everything_in_it() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(WEB)]);
        node.until("web", phase("Running")).await;
        let uid = PodUid::from("web");
        let old = node
            .runtime
            .pod(&uid)
            .await
            .unwrap()
            .newest_sandbox()
            .unwrap()
            .id
            .clone();
        node.runtime.stop_sandbox(&old).await.unwrap();
        node.until("web", |status| {
            container(status, "app").restart_count == 1 && phase("Running")(status)
        })
        .await;
        let now = node.runtime.pod(&uid).await.unwrap();
        assert_eq!(now.newest_sandbox().unwrap().attempt, 1);
        assert!(node.reasons().await.contains(&"SandboxChanged".to_owned()));
    });
}

#[test]
fn dead_instances_do_not_pile_up() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod("
metadata: {name: crash}
spec:
  restartPolicy: Always
  containers: [{name: app, image: localhost/busybox, command: [sh, -c, 'exit 3']}]
")]);
        node.until("crash", |status| {
            container(status, "app").restart_count == 5
        })
        .await;
        pass(Duration::from_secs(5)).await;
        let pod = node.runtime.pod(&PodUid::from("crash")).await.unwrap();
        let dead = pod
            .containers
            .iter()
            .filter(|container| container.state == ContainerState::Exited);
        assert_eq!(dead.count(), 1);
        assert_eq!(node.files("logs/default_crash_crash/app"), 1);
        assert_eq!(node.files("links"), 1);
        node.desire(&[]);
        node.until_gone("crash").await;
        pass(Duration::from_secs(62)).await;
        assert_eq!(
            node.files("links") + node.files("logs") + node.files("root/pods"),
            0
        );
    });
}
