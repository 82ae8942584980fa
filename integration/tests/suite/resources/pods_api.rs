//! The pods API on its socket (feature gate `PodsAPI`), as a client on the node sees it.

use std::collections::BTreeMap;
use std::time::Duration;

use integration::agent::Node;
use integration::containerd::connect;
use integration::wait_until;
use prost::Message as _;
use proto::pods::pods_client::PodsClient;
use proto::pods::{EventType, GetPodRequest, ListPodsRequest, WatchPodsEvent, WatchPodsRequest};
use serde_json::json;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Streaming};

use crate::suite::node_rig::{CONVERGENCE_TIMEOUT, server};

const SOCKET: &str = "pods-api/pods-api.sock";

/// What is looked at of a pod, by the numbers of `k8s.io.api.core.v1.Pod`.
#[derive(Clone, PartialEq, prost::Message)]
struct PodMessage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<MetaMessage>,
    #[prost(message, optional, tag = "3")]
    status: Option<StatusMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct MetaMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StatusMessage {
    #[prost(string, tag = "1")]
    phase: String,
}

impl PodMessage {
    fn metadata(&self) -> MetaMessage {
        self.metadata.clone().unwrap()
    }

    fn phase(&self) -> String {
        self.status.clone().unwrap_or_default().phase
    }
}

fn decoded(bytes: &[u8]) -> PodMessage {
    PodMessage::decode(bytes).unwrap()
}

/// Waits until the agent serves.
async fn client(node: &Node) -> PodsClient<Channel> {
    let client = PodsClient::new(connect(&node.root().join(SOCKET)));
    let serves = async || client.clone().list_pods(ListPodsRequest {}).await.is_ok();
    let what = "the pods API answers";
    wait_until(CONVERGENCE_TIMEOUT, what, serves).await.unwrap();
    client
}

async fn next(watch: &mut Streaming<WatchPodsEvent>) -> (EventType, PodMessage) {
    let event = timeout(CONVERGENCE_TIMEOUT, watch.message()).await;
    let event = event.expect("an event in time").unwrap().unwrap();
    (event.r#type(), decoded(&event.pod))
}

/// Upstream's TestStaticPod and its suite on nodes (test/e2e_node/pods_api_test.go).
#[tokio::test]
async fn a_pod_of_a_manifest_is_listed_and_watched_until_it_is_gone() {
    let gates = json!({ "featureGates": { "PodsAPI": true } });
    let mut node = Node::builder().config(&gates).start().await.unwrap();
    assert!(!node.log().contains("featureGates.PodsAPI"));
    let mut client = client(&node).await;
    let watch = client.watch_pods(WatchPodsRequest {}).await;
    let mut watch = watch.unwrap().into_inner();
    let (synced, _) = next(&mut watch).await;
    assert_eq!(synced, EventType::InitialSyncComplete);

    node.drop_manifest("web", &server("web")).unwrap();
    let (added, pod) = next(&mut watch).await;
    assert_eq!(added, EventType::Added);
    let metadata = pod.metadata();
    assert_eq!(metadata.name, "web-node");
    assert_eq!(metadata.annotations["kubernetes.io/config.source"], "file");
    let mut phase = pod.phase();
    while phase != "Running" {
        assert_eq!(phase, "Pending");
        let (modified, pod) = next(&mut watch).await;
        assert_eq!(modified, EventType::Modified);
        phase = pod.phase();
    }
    let list = client.list_pods(ListPodsRequest {}).await.unwrap();
    let listed = list.into_inner().pods;
    assert_eq!(listed.len(), 1);
    assert_eq!(decoded(&listed[0]).metadata(), metadata);
    let question = GetPodRequest {
        pod_uid: metadata.uid.clone(),
    };
    let found = client.get_pod(question.clone()).await.unwrap();
    assert_eq!(decoded(&found.into_inner().pod).phase(), "Running");

    node.remove_manifest("web").unwrap();
    let mut last = next(&mut watch).await;
    while last.0 == EventType::Modified {
        last = next(&mut watch).await;
    }
    let (deleted, pod) = last;
    assert_eq!(deleted, EventType::Deleted);
    assert_eq!(pod.metadata().uid, metadata.uid);
    assert_eq!(pod.status, None);
    let is_gone = async || {
        let found = client.clone().get_pod(question.clone()).await;
        found.is_err_and(|error| error.code() == Code::NotFound)
    };
    let within = Duration::from_secs(10);
    let what = "the pod is not found";
    wait_until(within, what, is_gone).await.unwrap();
    assert!(node.terminate().await.unwrap().success());
    assert!(!node.root().join(SOCKET).exists());
}

#[tokio::test]
async fn nothing_listens_where_the_gate_is_off() {
    let mut node = Node::builder()
        .manifest("web", &server("web"))
        .start()
        .await
        .unwrap();
    let pod_resources = node.root().join("pod-resources/kubelet.sock");
    let serves = async || pod_resources.exists();
    let what = "the sockets are there";
    wait_until(CONVERGENCE_TIMEOUT, what, serves).await.unwrap();
    node.until("web", CONVERGENCE_TIMEOUT, "runs", |pod| {
        crate::suite::node_rig::phase(pod) == "Running"
    })
    .await
    .unwrap();
    assert!(!node.root().join("pods-api").exists());
    assert!(node.terminate().await.unwrap().success());
}
