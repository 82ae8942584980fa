//! The server on its real socket, on a node in this process.

use std::time::Duration;

use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kernel::testing::{pass, run_paused};
use kernel::{ChildSpec, mailbox};
use logic_api::testing::yaml::pod;
use pods::testing::TestNode;
use prost::Message as _;
use proto::pods as wire;
use proto::pods::EventType;
use proto::pods::pods_client::PodsClient;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Streaming};

use super::service::MAX_WATCHES;
use super::*;

const WEB: &str = "
metadata: {name: web, namespace: shop}
spec: {containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]}
";

const JOB: &str = "
metadata: {name: job, namespace: shop}
spec: {containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]}
";

/// The few fields of a pod that these tests look at, by their numbers on the wire.
#[derive(Clone, PartialEq, prost::Message)]
struct PodMessage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<MetaMessage>,
    #[prost(message, optional, tag = "2")]
    spec: Option<SpecMessage>,
    #[prost(message, optional, tag = "3")]
    status: Option<StatusMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct MetaMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "5")]
    uid: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SpecMessage {
    #[prost(message, repeated, tag = "2")]
    containers: Vec<ContainerMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ContainerMessage {
    #[prost(string, tag = "2")]
    image: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StatusMessage {
    #[prost(string, tag = "1")]
    phase: String,
    #[prost(string, tag = "3")]
    message: String,
}

/// A node with the server, and clients of its socket.
struct ApiFixture {
    node: TestNode,
    folder: tempfile::TempDir,
}

impl ApiFixture {
    /// Waits until these pods run.
    async fn start(pods: &[Arc<Pod>]) -> ApiFixture {
        let node = TestNode::start().await;
        node.desire(pods);
        let folder = tempfile::tempdir().unwrap();
        let (_, port) = mailbox(MAILBOX);
        let root = folder.path().to_owned();
        let (pod_manager, statuses) = (node.node.pod_manager.clone(), node.node.statuses.clone());
        let spec = ChildSpec::permanent("pods-api");
        node.node.root.spawn(spec, port, move || {
            PodsApi::new(&root, pod_manager.clone(), statuses.clone())
        });
        for pod in pods {
            let name = pod.metadata.name.as_deref().unwrap();
            node.until(name, is_running).await;
        }
        pass(Duration::from_secs(1)).await;
        ApiFixture { node, folder }
    }

    fn client(&self) -> PodsClient<Channel> {
        let socket = socket(self.folder.path());
        let connector = tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://localhost");
        PodsClient::new(endpoint.connect_with_connector_lazy(connector))
    }

    async fn watch(&self) -> Watch {
        let watch = self.client().watch_pods(wire::WatchPodsRequest {}).await;
        Watch(watch.unwrap().into_inner())
    }

    /// Gives the pod `web` a status with this message.
    fn say(&self, message: &str) {
        let status = PodStatus {
            phase: Some("Running".to_owned()),
            message: Some(message.to_owned()),
            ..PodStatus::default()
        };
        let (uid, status) = ("web".into(), Arc::new(status));
        let changed = status::Msg::Changed { uid, status };
        self.node.node.statuses.tell(changed).unwrap();
    }
}

struct Watch(Streaming<wire::WatchPodsEvent>);

impl Watch {
    /// The next event, with the pod's name and phase.
    async fn next(&mut self) -> (EventType, String, String) {
        let event = self.0.message().await.unwrap().unwrap();
        let pod = decoded(&event.pod);
        let name = pod.metadata.unwrap_or_default().name;
        let phase = pod.status.unwrap_or_default().phase;
        (event.r#type.try_into().unwrap(), name, phase)
    }

    /// The next event that is none of these.
    async fn after(&mut self, kind: EventType, name: &str) -> (EventType, String, String) {
        loop {
            let next = self.next().await;
            if next.0 != kind || next.1 != name {
                return next;
            }
        }
    }
}

fn decoded(bytes: &[u8]) -> PodMessage {
    PodMessage::decode(bytes).unwrap()
}

fn is_running(status: &PodStatus) -> bool {
    status.phase.as_deref() == Some("Running")
}

fn told(kind: EventType, name: &str, phase: &str) -> (EventType, String, String) {
    (kind, name.to_owned(), phase.to_owned())
}

/// Upstream's TestListPods and TestStatusOverlay.
#[test]
fn pods_are_listed_by_uid_with_their_newest_statuses() {
    run_paused(|| async {
        let rig = ApiFixture::start(&[pod(WEB), pod(JOB)]).await;
        rig.say("news");
        let list = rig.client().list_pods(wire::ListPodsRequest {}).await;
        let listed: Vec<PodMessage> = list
            .unwrap()
            .into_inner()
            .pods
            .iter()
            .map(|bytes| decoded(bytes))
            .collect();
        let uids: Vec<String> = listed
            .iter()
            .map(|pod| pod.metadata.clone().unwrap().uid)
            .collect();
        assert_eq!(uids, ["job", "web"]);
        let image = &listed[1].spec.as_ref().unwrap().containers[0].image;
        assert_eq!(image, "localhost/busybox");
        assert_eq!(listed[1].status.as_ref().unwrap().message, "news");
    });
}

/// Upstream's TestGetPod and TestStatusOverlay.
#[test]
fn a_pod_is_found_by_its_uid_with_its_newest_status() {
    run_paused(|| async {
        let rig = ApiFixture::start(&[pod(WEB)]).await;
        rig.say("news");
        let get = |uid: &str| wire::GetPodRequest {
            pod_uid: uid.to_owned(),
        };
        let mut client = rig.client();
        let found = client.get_pod(get("web")).await.unwrap().into_inner();
        let found = decoded(&found.pod);
        assert_eq!(found.metadata.unwrap().namespace, "shop");
        assert_eq!(found.status.unwrap().message, "news");
        let missing = client.get_pod(get("gone")).await.unwrap_err();
        let expected = (Code::NotFound, "pod with UID gone not found");
        assert_eq!((missing.code(), missing.message()), expected);
    });
}

/// Upstream's TestWatchPods, TestStartEventLoop and TestStatusOverlay.
#[test]
fn a_watch_begins_with_all_pods_and_goes_on_with_what_changes() {
    run_paused(|| async {
        let rig = ApiFixture::start(&[pod(WEB)]).await;
        let mut watch = rig.watch().await;
        let first = watch.next().await;
        assert_eq!(first, told(EventType::Added, "web", "Running"));
        let synced = watch.0.message().await.unwrap().unwrap();
        assert_eq!(synced.r#type(), EventType::InitialSyncComplete);
        assert!(synced.pod.is_empty());

        rig.node.desire(&[pod(WEB), pod(JOB)]);
        let added = watch.next().await;
        assert_eq!(added, told(EventType::Added, "job", "Pending"));
        rig.node.until("job", is_running).await;
        let mut last = watch.next().await;
        while last.2 == "Pending" {
            assert_eq!((last.0, last.1.as_str()), (EventType::Modified, "job"));
            last = watch.next().await;
        }
        assert_eq!(last, told(EventType::Modified, "job", "Running"));

        rig.node.desire(&[pod(JOB)]);
        let gone = watch.after(EventType::Modified, "web").await;
        assert_eq!(gone, told(EventType::Deleted, "web", ""));
    });
}

/// For upstream's clients: a deleted pod has a name, a namespace and a UID, and no event comes after.
#[test]
fn a_removed_pod_is_told_once_and_without_its_spec() {
    run_paused(|| async {
        let rig = ApiFixture::start(&[pod(WEB), pod(JOB)]).await;
        let mut watch = rig.watch().await;
        for _ in 0..3 {
            watch.next().await;
        }
        rig.node.desire(&[pod(JOB)]);
        rig.node.until_gone("web").await;
        let mut event = watch.0.message().await.unwrap().unwrap();
        while event.r#type() == EventType::Modified {
            event = watch.0.message().await.unwrap().unwrap();
        }
        assert_eq!(event.r#type(), EventType::Deleted);
        let metadata = MetaMessage {
            name: "web".to_owned(),
            namespace: "shop".to_owned(),
            uid: "web".to_owned(),
        };
        let expected = PodMessage {
            metadata: Some(metadata),
            spec: None,
            status: None,
        };
        assert_eq!(decoded(&event.pod), expected);
        let more = tokio::time::timeout(Duration::from_secs(60), watch.0.message()).await;
        assert!(more.is_err(), "{more:?}");
    });
}

/// Upstream's TestBroadcaster_SlowClient and TestErrorsAndMetrics.
#[test]
fn a_client_that_does_not_keep_up_is_dropped_and_the_others_are_not() {
    run_paused(|| async {
        let rig = ApiFixture::start(&[pod(WEB)]).await;
        let (mut slow, mut fast) = (rig.watch().await, rig.watch().await);
        for watch in [&mut slow, &mut fast] {
            watch.next().await;
            watch.next().await;
        }
        // A client's library takes in 2 MiB before it is asked for the next event.
        let long = "x".repeat(2048);
        for round in 0..40 {
            for change in 0..100 {
                rig.say(&format!("{round}.{change} {long}"));
            }
            for _ in 0..100 {
                let event = fast.next().await;
                assert_eq!(event, told(EventType::Modified, "web", "Running"));
            }
        }
        let dropped = async {
            loop {
                if let Err(status) = slow.0.message().await {
                    return status;
                }
            }
        };
        let dropped = tokio::time::timeout(Duration::from_secs(60), dropped);
        let dropped = dropped.await.unwrap();
        let expected = (Code::ResourceExhausted, "watch client channel closed");
        assert_eq!((dropped.code(), dropped.message()), expected);
        let line = "kubelet_pod_watch_events_dropped_total 1";
        let text = metrics::text();
        assert!(text.lines().any(|there| there == line), "{text}");
        rig.say("still here");
        let event = fast.next().await;
        assert_eq!(event, told(EventType::Modified, "web", "Running"));
    });
}

#[test]
fn watches_are_limited_and_one_that_ends_makes_room() {
    run_paused(|| async {
        let rig = ApiFixture::start(&[]).await;
        let mut client = rig.client();
        let mut watches = Vec::new();
        for _ in 0..MAX_WATCHES {
            let watch = client.watch_pods(wire::WatchPodsRequest {}).await;
            watches.push(watch.unwrap());
        }
        let refused = client.watch_pods(wire::WatchPodsRequest {}).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert_eq!(refused.message(), "no more than 32 watches at one time");
        drop(watches.pop());
        pass(Duration::from_secs(1)).await;
        client.watch_pods(wire::WatchPodsRequest {}).await.unwrap();
    });
}

/// Upstream's limit of requests (pkg/kubelet/apis/grpc/ratelimit.go), which watches are not counted for.
#[test]
fn more_requests_than_the_limit_are_refused_until_time_has_passed() {
    run_paused(|| async {
        let rig = ApiFixture::start(&[]).await;
        let mut client = rig.client();
        for _ in 0..10 {
            client.list_pods(wire::ListPodsRequest {}).await.unwrap();
        }
        let refused = client
            .list_pods(wire::ListPodsRequest {})
            .await
            .unwrap_err();
        let expected = (Code::ResourceExhausted, "rejected by rate limit");
        assert_eq!((refused.code(), refused.message()), expected);
        rig.watch().await;
        pass(Duration::from_secs(1)).await;
        client.list_pods(wire::ListPodsRequest {}).await.unwrap();
    });
}
