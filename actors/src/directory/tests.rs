//! Who is desired, who is an orphan, and who holds which name.

use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use kernel::Fault;
use kernel::testing::{pass, run_paused};
use logic::types::PodUid;

use crate::testing::{TestNode, pod};

const WEB: &str = "
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 5
  containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]
";

fn running(status: &PodStatus) -> bool {
    status.phase.as_deref() == Some("Running")
}

#[test]
fn a_pod_found_in_the_runtime_that_no_source_desires_is_ended() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(WEB)]);
        node.until("web", running).await;
        let node = node.restart().await;
        pass(Duration::from_secs(60)).await;
        assert!(
            node.exists(&PodUid::from("web")).await,
            "no source has spoken yet"
        );
        node.desire(&[]);
        node.until_gone("web").await;
    });
}

#[test]
fn a_pod_of_a_taken_name_waits_until_the_name_is_free() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(WEB)]);
        node.until("web", running).await;
        let mut changed = (*pod(WEB)).clone();
        changed.metadata.uid = Some("web-2".to_owned());
        node.desire(&[changed.into()]);
        node.until("web-2", running).await;
        assert!(!node.exists(&PodUid::from("web")).await);
    });
}

#[test]
fn a_directory_that_dies_finds_its_workers_again_and_ends_what_was_dropped_meanwhile() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let web = pod(WEB);
        node.desire(std::slice::from_ref(&web));
        let before = node.until("web", running).await;
        node.node
            .root
            .inject("oxlet/pods/directory", Fault::Panic)
            .unwrap();
        node.desire(&[]);
        node.desire(std::slice::from_ref(&web));
        pass(Duration::from_secs(5)).await;
        let after = node.until("web", running).await;
        assert_eq!(before.container_statuses, after.container_statuses);
        node.desire(&[]);
        node.until_gone("web").await;
    });
}
