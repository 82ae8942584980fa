//! A pod's volumes: before its containers, with them, after them.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use clients::storage::testing::StorageFault;
use k8s_openapi::api::core::v1::{Pod, PodStatus, ResourceRequirements};
use kernel::testing::observe;
use logic_api::testing::quantities;
use logic_pods::admission::no_room_for_volumes;
use tonic::Status;

use super::*;
use crate::pod_manager;
use crate::worker::{Explanation, WorkerReport};

const RETRY_PERIOD: Duration = Duration::from_secs(10);

/// A pod with an emptyDir; its UID is its name.
fn with_volume(name: &str) -> Arc<Pod> {
    pod(&format!(
        "
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: localhost/busybox
    volumeMounts: [{{name: data, mountPath: /data}}]
  volumes: [{{name: data, emptyDir: {{}}}}]
"
    ))
}

fn id(pod: &str) -> String {
    format!("kubernetes.io/empty-dir/{pod}-data")
}

async fn why(node: &TestNode, pod: &str) -> Explanation {
    let pod = pod.to_owned();
    let asked = |reply| pod_manager::Msg::worker_of(pod, reply);
    let found = node
        .node
        .pod_manager
        .ask(RETRY_PERIOD, asked)
        .await
        .unwrap();
    let pod_manager::PodLookup::Worker(worker) = found else {
        panic!("{found:?}");
    };
    let asked = |reply| crate::worker::Msg::Why { reply };
    worker.ask(RETRY_PERIOD, asked).await.unwrap()
}

fn running(status: &PodStatus) -> bool {
    status.phase.as_deref() == Some("Running")
}

#[test]
fn nothing_starts_before_every_volume_is_there() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.storage.fault("mount", &id("web"), StorageFault::Held);
        node.desire(&[with_volume("web"), with_volume("other")]);
        node.until("other", running).await;
        node.until("web", waits_for("app", "ContainerCreating"))
            .await;
        assert!(!node.exists(&"web".into()).await, "not even a sandbox");
        node.storage.release();
        node.until("web", running).await;
        assert_eq!(node.storage.mounted().len(), 2);
    });
}

#[test]
fn a_resync_while_volumes_are_awaited_requests_them_once_more() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.storage.fault("mount", &id("web"), StorageFault::Held);
        node.desire(&[with_volume("web")]);
        node.until("web", waits_for("app", "ContainerCreating"))
            .await;
        let requests = Rc::new(Cell::new(0));
        let counted = requests.clone();
        observe(Some(Box::new(move |actor, message| {
            if (actor, message) == ("oxlet/volumes/volumes", "Mount") {
                counted.set(counted.get() + 1);
            }
        })));
        node.node
            .pod_manager
            .tell(pod_manager::Msg::Resync)
            .unwrap();
        // The clock stands still, so that nothing but messages can lead to others.
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        observe(None);
        assert_eq!(requests.get(), 1);
        node.storage.release();
        node.until("web", running).await;
    });
}

#[test]
fn a_volume_that_cannot_be_mounted_is_told_and_tried_again() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let refused = StorageFault::Refused(Status::internal("the disk is on fire"));
        node.storage.fault("mount", &id("web"), refused);
        node.desire(&[with_volume("web")]);
        node.until("web", running).await;
        let events = node.events().await;
        let told = events.iter().find(|event| event.reason == "FailedMount");
        let told = told.expect("an event");
        assert_eq!(
            told.message,
            "MountVolume.SetUp failed for volume \"data\" : the disk is on fire"
        );
    });
}

#[test]
fn who_waits_for_longer_than_a_wish_lasts_says_what_is_missing_and_wishes_again() {
    run_paused(|| async {
        let node = TestNode::start().await;
        // Retried after half a second, then twice as long each time: longer than the request's deadline.
        for _ in 0..9 {
            let refused = StorageFault::Refused(Status::internal("no"));
            node.storage.fault("mount", &id("web"), refused);
        }
        node.desire(&[with_volume("web")]);
        node.until("web", waits_for("app", "ContainerCreating"))
            .await;
        pass(Duration::from_secs(124)).await;
        let why = why(&node, "web").await;
        let told = |text: &str| why.lines.iter().any(|line| line.why.message.contains(text));
        assert!(told("unmounted volumes=[data]"), "{why:#?}");
        node.until("web", running).await;
    });
}

#[test]
fn volumes_go_when_nothing_of_the_pod_runs_and_before_the_pod_is_forgotten() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[with_volume("web")]);
        node.until("web", running).await;
        node.storage
            .fault("unmount", &id("web"), StorageFault::Held);
        node.desire(&[]);
        node.until("web", |status| status.phase.as_deref() != Some("Running"))
            .await;
        pass(Duration::from_secs(30)).await;
        assert!(
            node.statuses().await.contains_key(&"web".into()),
            "it waits for its volume"
        );
        node.storage.release();
        node.until_gone("web").await;
        assert!(node.storage.mounted().is_empty());
        let calls = node.storage.calls();
        let unmounts = calls.iter().filter(|call| call.starts_with("unmount "));
        assert_eq!(unmounts.count(), 1);
        assert_eq!(node.storage.overlaps(), Vec::<String>::new());
    });
}

#[test]
fn a_finished_pod_gives_its_volumes_back_and_keeps_its_status() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod("
metadata: {name: job}
spec:
  restartPolicy: Never
  containers:
  - name: app
    image: localhost/busybox
    command: [sh, -c, sleep 1]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
")]);
        node.until("job", |status| status.phase.as_deref() == Some("Succeeded"))
            .await;
        pass(Duration::from_secs(5)).await;
        assert!(node.storage.mounted().is_empty());
        assert!(node.statuses().await.contains_key(&"job".into()));
    });
}

#[test]
fn a_successor_of_the_agent_takes_the_volumes_of_running_pods_over() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[with_volume("web")]);
        node.until("web", running).await;
        let node = node.restart().await;
        node.desire(&[with_volume("web")]);
        node.until("web", running).await;
        pass(Duration::from_secs(30)).await;
        assert_eq!(node.storage.mounted().len(), 1);
        let calls = node.storage.calls();
        assert!(!calls.iter().any(|call| call.starts_with("unmount ")));
    });
}

#[test]
fn a_successor_of_the_agent_takes_away_what_belongs_to_no_pod() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[with_volume("web"), with_volume("gone")]);
        node.until("web", running).await;
        node.until("gone", running).await;
        let node = node.restart().await;
        node.desire(&[with_volume("web")]);
        node.until_gone("gone").await;
        pass(Duration::from_secs(30)).await;
        let mounted = node.storage.mounted();
        assert_eq!(mounted.len(), 1, "{mounted:?}");
        assert!(mounted[0].contains("/pods/web/"));
    });
}

#[test]
fn a_path_within_a_volume_is_bound_before_its_container_is_made() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let refused = StorageFault::Refused(Status::invalid_argument("a link leads out"));
        node.storage.fault("bind", &id("web"), refused);
        node.desire(&[pod("
metadata: {name: web}
spec:
  containers:
  - name: app
    image: localhost/busybox
    volumeMounts: [{name: data, mountPath: /data, subPath: a}]
  volumes: [{name: data, emptyDir: {}}]
")]);
        let waits = node
            .until("web", waits_for("app", "CreateContainerConfigError"))
            .await;
        let waiting = waits.container_statuses.as_ref().unwrap()[0].state.clone();
        assert_eq!(
            waiting.unwrap().waiting.unwrap().message.as_deref(),
            Some("failed to prepare subPath for volumeMount \"data\" of container \"app\"")
        );
        node.until("web", running).await;
    });
}

#[test]
fn variables_come_from_a_file_of_a_volume() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod("
metadata: {name: web}
spec:
  containers:
  - name: app
    image: localhost/busybox
    env:
    - name: COLOUR
      valueFrom: {fileKeyRef: {volumeName: data, path: vars, key: COLOUR}}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
")]);
        node.until("web", waits_for("app", "CreateContainerConfigError"))
            .await;
        let target = node.storage.mounted().remove(0);
        node.storage.file(&target, "vars", "COLOUR='green'\n");
        node.until("web", running).await;
    });
}

/// Upstream's TestVolumeAttachLimitExceededCleanup.
#[test]
fn a_pod_whose_volumes_find_no_room_fails_and_leaves_its_own_room_to_others() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let asking = |name: &str| {
            let mut pod = (*with_volume(name)).clone();
            let app = &mut pod.spec.as_mut().unwrap().containers[0];
            app.resources = Some(ResourceRequirements {
                requests: Some(quantities(&[("cpu", "3")])),
                ..ResourceRequirements::default()
            });
            Arc::new(pod)
        };
        node.storage.fault("mount", &id("full"), StorageFault::Held);
        let full = asking("full");
        node.desire(std::slice::from_ref(&full));
        node.until("full", waits_for("app", "ContainerCreating"))
            .await;
        let report = WorkerReport::Rejected {
            uid: "full".into(),
            failure: Box::new(no_room_for_volumes("too many volumes")),
        };
        let rejected = pod_manager::Msg::Worker(report);
        node.node.pod_manager.tell(rejected).unwrap();
        let status = node.until("full", phase("Failed")).await;
        assert_eq!(
            (status.reason.as_deref(), status.message.as_deref()),
            (
                Some("VolumeAttachmentLimitExceeded"),
                Some("Pod was rejected: too many volumes")
            )
        );
        assert!(!node.exists(&"full".into()).await, "not even a sandbox");
        node.desire(&[full, asking("next")]);
        node.until("next", running).await;
    });
}
