//! The server on its real socket, with an inbox as pod manager.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kernel::testing::{pass, run_paused};
use kernel::{ChildSpec, mailbox};
use logic_api::testing::yaml::pod;
use logic_placement::claims::{ClaimCache, ClaimDevice, ClaimEntry, Preparation};
use pods::testing::TestNode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Code;

use super::service::client::ListerClient;
use super::*;

const WEB: &str = "
metadata: {name: web, namespace: shop}
spec:
  initContainers:
  - {name: setup, image: localhost/busybox, command: ['true']}
  - {name: sidecar, image: localhost/busybox, command: [sleep, infinity], restartPolicy: Always}
  containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]
";

const JOB: &str = "
metadata: {name: job, namespace: shop}
spec:
  restartPolicy: Never
  containers: [{name: app, image: localhost/busybox, command: ['true']}]
";

async fn start() -> (TestNode, tempfile::TempDir, ListerClient) {
    start_with(&[pod(WEB)]).await
}

async fn start_with(pods: &[Arc<Pod>]) -> (TestNode, tempfile::TempDir, ListerClient) {
    start_knowing(pods, KnownClaims::default()).await
}

async fn start_knowing(
    pods: &[Arc<Pod>],
    known: KnownClaims,
) -> (TestNode, tempfile::TempDir, ListerClient) {
    let node = TestNode::start().await;
    node.desire(pods);
    let folder = tempfile::tempdir().unwrap();
    let (_, port) = mailbox(MAILBOX);
    let (root, pod_manager) = (folder.path().to_owned(), node.node.pod_manager.clone());
    let (_, known) = watch::channel(Arc::new(known));
    let held = (node.assignments.clone(), known);
    let spec = ChildSpec::permanent("pod-resources");
    node.node.root.spawn(spec, port, move || {
        PodResources::new(&root, pod_manager.clone(), held.clone())
    });
    pass(Duration::from_secs(1)).await;
    let client = ListerClient::new(socket(folder.path()));
    (node, folder, client)
}

/// Upstream's TestListPodResourcesV1, TestListPodResourcesWithInitContainersV1 and their like of Get, while no resource is assigned exclusively.
#[test]
fn pods_are_listed_with_their_sidecars_and_containers() {
    run_paused(|| async {
        let (_node, _folder, mut client) = start().await;
        let expected = (
            "web".to_owned(),
            vec!["sidecar".to_owned(), "app".to_owned()],
        );
        assert_eq!(
            client.list().await.unwrap(),
            std::slice::from_ref(&expected)
        );
        assert_eq!(client.get("shop", "web").await.unwrap(), expected);
        let missing = client.get("shop", "gone").await.unwrap_err();
        assert_eq!(missing.code(), Code::Unknown);
        assert_eq!(missing.message(), "pod gone in namespace shop not found");
        let text = metrics::text();
        for line in [
            "kubelet_pod_resources_endpoint_requests_total{server_api_version=\"v1\"} 3",
            "kubelet_pod_resources_endpoint_requests_list{server_api_version=\"v1\"} 1",
            "kubelet_pod_resources_endpoint_requests_get{server_api_version=\"v1\"} 2",
            "kubelet_pod_resources_endpoint_errors_get{server_api_version=\"v1\"} 1",
        ] {
            assert!(text.lines().any(|there| there == line), "{line}");
        }
    });
}

fn listed(name: &str, containers: &[&str]) -> (String, Vec<String>) {
    let containers = containers.iter().map(|name| (*name).to_owned());
    (name.to_owned(), containers.collect())
}

/// Upstream's TestListPodResourcesUsesOnlyActivePodsV1.
#[test]
fn a_pod_that_has_ended_is_not_listed_but_can_be_asked_for() {
    run_paused(|| async {
        let (node, _folder, mut client) = start_with(&[]).await;
        assert_eq!(client.list().await.unwrap(), []);
        node.desire(&[pod(WEB), pod(JOB)]);
        node.until("job", |status| status.phase.as_deref() == Some("Succeeded"))
            .await;
        pass(Duration::from_secs(60)).await;
        let web = listed("web", &["sidecar", "app"]);
        assert_eq!(client.list().await.unwrap(), [web]);
        let job = listed("job", &["app"]);
        assert_eq!(client.get("shop", "job").await.unwrap(), job);
    });
}

/// Upstream's TestListPodResourcesV1 with `DynamicResources`.
#[test]
fn a_container_is_listed_with_its_claims() {
    const CLAIMING: &str = "
metadata: {name: web, namespace: shop}
spec:
  resourceClaims: [{name: device, resourceClaimName: gpu}]
  containers:
  - {name: app, image: localhost/busybox, resources: {claims: [{name: device}]}}
  - {name: other, image: localhost/busybox}
";
    run_paused(|| async {
        let device = ClaimDevice {
            pool: "pool".to_owned(),
            device: "dev".to_owned(),
            share: Some("share".to_owned()),
            requests: Vec::new(),
            cdi_ids: vec!["vendor.com/gpu=0".to_owned()],
        };
        let claim = ClaimEntry {
            uid: "gpu-uid".into(),
            namespace: "shop".to_owned(),
            name: "gpu".to_owned(),
            pods: ["web".into()].into(),
            drivers: [("gpu.example.com".into(), vec![device])].into(),
            preparation: Preparation::Prepared,
        };
        let known = KnownClaims {
            claims: ClaimCache::from_iter([claim]),
            ..KnownClaims::default()
        };
        let (_node, _folder, mut client) = start_knowing(&[pod(CLAIMING)], known).await;
        let shown = client.claims("shop", "web").await.unwrap();
        let own = "gpu.example.com/pool/dev share shop/gpu: vendor.com/gpu=0";
        assert_eq!(
            shown,
            [
                ("app".to_owned(), vec![own.to_owned()]),
                ("other".to_owned(), Vec::new())
            ]
        );
    });
}

/// Upstream's TestListPodResourcesV1alpha1, while no device is assigned.
#[test]
fn the_first_version_lists_every_pod_with_its_app_containers() {
    run_paused(|| async {
        let (node, _folder, mut client) = start_with(&[]).await;
        assert_eq!(client.list_v1alpha1().await.unwrap(), []);
        node.desire(&[pod(WEB), pod(JOB)]);
        node.until("job", |status| status.phase.as_deref() == Some("Succeeded"))
            .await;
        let expected = [listed("job", &["app"]), listed("web", &["app"])];
        assert_eq!(client.list_v1alpha1().await.unwrap(), expected);
        let line =
            "kubelet_pod_resources_endpoint_requests_total{server_api_version=\"v1alpha1\"} 2";
        let text = metrics::text();
        assert!(text.lines().any(|there| there == line), "{text}");
        assert!(!text.contains("requests_list{server_api_version=\"v1alpha1\"}"));
    });
}

/// Upstream's TestAllocatableResources with the policies `none`.
#[test]
fn nothing_is_there_to_be_given_to_a_container_for_itself() {
    run_paused(|| async {
        let (_node, _folder, mut client) = start().await;
        assert_eq!(client.allocatable().await.unwrap(), [0, 0, 0]);
    });
}

/// Upstream's limit of requests (pkg/kubelet/apis/grpc/ratelimit.go).
#[test]
fn more_requests_than_the_limit_are_refused_until_time_has_passed() {
    run_paused(|| async {
        let (_node, _folder, mut client) = start().await;
        for _ in 0..10 {
            client.allocatable().await.unwrap();
        }
        let refused = client.allocatable().await.unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (Code::ResourceExhausted, "rejected by rate limit")
        );
        pass(Duration::from_secs(1)).await;
        client.allocatable().await.unwrap();
    });
}

/// A request for the list as grpc-go writes it when it dials a path: its HPACK block, with `:authority`
/// `%2Fvar%2Flib%2Fkubelet%2Fpod-resources%2Fkubelet.sock`, and an empty message.
fn request_by_path() -> Vec<u8> {
    let authority = b"%2Fvar%2Flib%2Fkubelet%2Fpod-resources%2Fkubelet.sock";
    let fields: [&[u8]; 5] = [
        b"\x83\x86\x44\x1b/v1.PodResourcesLister/List\x41",
        &[u8::try_from(authority.len()).unwrap()],
        authority,
        b"\x5f\x10application/grpc\x7a\x0egrpc-go/1.79.0",
        b"\x40\x02te\x08trailers",
    ];
    let block = fields.concat();
    let length = u8::try_from(block.len()).unwrap();
    let frames: [&[u8]; 5] = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        &[0, 0, length, 1, 4, 0, 0, 0, 1],
        &block,
        &[0, 0, 5, 0, 1, 0, 0, 0, 1],
        &[0; 5],
    ];
    frames.concat()
}

#[test]
fn a_client_that_names_the_socket_as_its_host_is_answered() {
    run_paused(|| async {
        let (_node, folder, _client) = start().await;
        let path = socket(folder.path());
        let mut stream = tokio::net::UnixStream::connect(path).await.unwrap();
        stream.write_all(&request_by_path()).await.unwrap();
        loop {
            let mut header = [0; 9];
            stream.read_exact(&mut header).await.unwrap();
            let mut payload = vec![0; usize::from(header[1]) << 8 | usize::from(header[2])];
            stream.read_exact(&mut payload).await.unwrap();
            let kind = header[3];
            assert!(![3, 7].contains(&kind), "reset: {header:?} {payload:?}");
            // The pod's name is in the answer's message.
            if kind == 0 && header[8] == 1 {
                let text = String::from_utf8_lossy(&payload);
                assert!(text.contains("web"), "{text}");
                return;
            }
        }
    });
}
