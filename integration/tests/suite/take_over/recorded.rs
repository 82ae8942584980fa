//! A node as version 0.1 left it, killed with its plugins: its successor adopts what it finds.
//!
//! `tests/data/node-0.1.tar` was recorded from that version on the fake runtime: checkpoints, the runtime's own state, the
//! folders of pods and their manifests. What is recorded names its own path, so the node comes back where it was.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::*;

const RECORDED: &[u8] = include_bytes!("../../data/node-0.1.tar");
const PLACE: &str = "/tmp/oxlet-written-before";
/// The container of the pod that runs, and of the one that is done.
const RUNNING: &str = "773291d5154bbf38ddb89399086729633d484c5e5ec8b1033c3111e21bc97783";
const DONE: &str = "ab919beac59da391f73ded0a711625c4878f2dbde34e40a0992ff0cc948a0c3e";

fn container(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

/// The container's id and restarts.
fn instance(pod: &Pod) -> Option<(String, i32)> {
    let status = container(pod)?;
    let id = status.container_id.as_deref()?.rsplit('/').next()?;
    Some((id.to_owned(), status.restart_count))
}

#[tokio::test]
async fn a_node_written_by_version_0_1_is_adopted_and_restarts_nothing() {
    let place = Path::new(PLACE);
    Node::clear(place).unwrap();
    tar::Archive::new(RECORDED).unpack(place).unwrap();
    let node = Node::builder().at(place).start().await.unwrap();
    node.until("web", CONVERGENCE_TIMEOUT, "is ready", |pod| {
        container(pod).is_some_and(|status| status.ready)
    })
    .await
    .unwrap();
    let done = node.until("done", CONVERGENCE_TIMEOUT, "is done", |pod| {
        let status = pod.status.as_ref();
        status.and_then(|status| status.phase.as_deref()) == Some("Succeeded")
    });
    done.await.unwrap();
    // The back-off is over by now: the pod that fails goes on, and counts on from where it was.
    node.until("crash", CONVERGENCE_TIMEOUT, "is restarted", |pod| {
        container(pod).is_some_and(|status| status.restart_count > 3)
    })
    .await
    .unwrap();
    let web = node.pod("web").await.unwrap().unwrap();
    assert_eq!(instance(&web), Some((RUNNING.to_owned(), 0)));
    let began = web.status.and_then(|status| status.start_time).unwrap();
    assert_eq!(began.0.to_string(), "2026-11-22T23:39:24Z");
    let done = node.pod("done").await.unwrap().unwrap();
    assert_eq!(instance(&done), Some((DONE.to_owned(), 0)));
    drop(node);
    Node::clear(place).unwrap();
}
