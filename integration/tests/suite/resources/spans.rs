//! Spans of the agent, as a collector gets them (`tracing:`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use integration::agent::Node;
use integration::{images, wait_until};
use k8s_openapi::api::core::v1::Pod;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Fact;
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::{Request, Response, Status};

/// A debug build on a busy machine.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// A span with its resource's facts.
type ResourceSpan = (BTreeMap<String, String>, Span);

/// What the agent has sent.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<ResourceSpan>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for resource in request.into_inner().resource_spans {
            let of = facts(&resource.resource.unwrap_or_default().attributes);
            let spans = resource
                .scope_spans
                .into_iter()
                .flat_map(|scope| scope.spans);
            let spans = spans.map(|span| (of.clone(), span));
            self.0.lock().unwrap().extend(spans);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn facts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |fact: &KeyValue| {
        let value = fact.value.as_ref()?.value.as_ref()?;
        let Fact::StringValue(text) = value else {
            let Fact::IntValue(number) = value else {
                return None;
            };
            return Some(number.to_string());
        };
        Some(text.clone())
    };
    let facts = attributes.iter();
    facts
        .filter_map(|fact| Some((fact.key.clone(), text(fact)?)))
        .collect()
}

impl Collector {
    /// Serves on a port of its own; returns its address.
    async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let service = TraceServiceServer::new(self.clone());
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        address
    }

    /// Serves on this socket.
    fn serve_at(&self, path: &Path) {
        let listener = UnixListener::bind(path).unwrap();
        let service = TraceServiceServer::new(self.clone());
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
    }

    async fn until(&self, name: &str) -> ResourceSpan {
        self.until_one(name, |_| true).await
    }

    async fn until_one(&self, name: &str, is_meant: impl Fn(&Span) -> bool) -> ResourceSpan {
        let find = || {
            let spans = self.0.lock().unwrap();
            let mut spans = spans.iter();
            let found = spans.find(|(_, span)| span.name == name && is_meant(span));
            found.cloned()
        };
        wait_until(CONVERGENCE_TIMEOUT, name, async || find().is_some())
            .await
            .unwrap();
        find().unwrap()
    }
}

fn pod() -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" },
        "spec": { "containers": [{ "name": "app", "image": images::BUSYBOX_IMAGE, "command": ["sleep", "100000"] }] },
    })
    .to_string()
}

fn runs(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    status.and_then(|status| status.phase.as_deref()) == Some("Running")
}

/// Upstream: TestTraces of test/e2e_node (KEP-2831), as far as a span says what it is.
#[tokio::test]
async fn what_is_done_for_a_pod_is_one_trace_down_to_the_runtimes_calls() {
    let collector = Collector::default();
    let endpoint = collector.serve().await;
    let node = Node::builder()
        .config(
            &json!({ "tracing": { "endpoint": endpoint, "samplingRatePerMillion": 1_000_000 } }),
        )
        .environment("OTEL_BSP_SCHEDULE_DELAY", "100")
        .manifest("web.yaml", &pod());
    let mut node = node.start().await.unwrap();
    let web = node
        .until("web", CONVERGENCE_TIMEOUT, "runs", runs)
        .await
        .unwrap();
    let (resource, call) = collector
        .until("runtime.v1.RuntimeService/RunPodSandbox")
        .await;
    assert_eq!(resource["service.name"], "kubelet");
    assert_eq!(resource["host.name"], "node");
    assert_eq!(facts(&call.attributes)["rpc.grpc.status_code"], "0");
    let (_, sync) = collector.until("syncPod").await;
    assert_eq!(call.trace_id, sync.trace_id);
    assert_eq!(call.parent_span_id, sync.span_id);
    let of_pod = facts(&sync.attributes);
    assert_eq!(of_pod["k8s.pod.uid"], web.metadata.uid.unwrap());
    assert_eq!(of_pod["k8s.pod"], "default/web-node");

    let asked = format!("http://127.0.0.1:{}/pods", node.read_only_port());
    let traceparent = format!("traceparent: 00-{TRACE}-b7ad6b7169203331-01");
    let status = tokio::process::Command::new("curl")
        .args(["-sf", "-o", "/dev/null", "-H", &traceparent, &asked])
        .status();
    assert!(status.await.unwrap().success());
    let is_linked = |span: &Span| {
        let links = span.links.iter();
        let links = links.map(|link| link.trace_id.iter().map(|byte| format!("{byte:02x}")));
        links.map(String::from_iter).any(|trace| trace == TRACE)
    };
    let (_, answered) = collector.until_one("/pods", is_linked).await;
    assert!(answered.parent_span_id.is_empty());
    assert_eq!(
        facts(&answered.attributes)["http.response.status_code"],
        "200"
    );

    node.remove_manifest("web.yaml").unwrap();
    collector.until("syncTerminatingPod").await;
    collector.until("syncTerminatedPod").await;
    assert!(node.terminate().await.unwrap().success());
}

#[tokio::test]
async fn spans_reach_a_collector_at_a_socket_of_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("collector.sock");
    let collector = Collector::default();
    collector.serve_at(&socket);
    let endpoint = format!("unix://{}", socket.display());
    let node = Node::builder()
        .config(
            &json!({ "tracing": { "endpoint": endpoint, "samplingRatePerMillion": 1_000_000 } }),
        )
        .environment("OTEL_BSP_SCHEDULE_DELAY", "100")
        .manifest("web.yaml", &pod());
    let mut node = node.start().await.unwrap();
    collector.until("syncPod").await;
    assert!(node.terminate().await.unwrap().success());
    assert!(!node.log().contains("spans"), "{}", node.log());
}

/// What stands where a collector should, and takes no span.
struct BadCollector {
    what: &'static str,
    endpoint: String,
    /// What the agent says of it.
    why: &'static str,
    /// Batches that it has refused.
    refused: Option<Arc<AtomicUsize>>,
}

impl BadCollector {
    fn at(what: &'static str, endpoint: String, why: &'static str) -> Self {
        BadCollector {
            what,
            endpoint,
            why,
            refused: None,
        }
    }

    /// It takes connections and never answers.
    fn hanging(listener: &TcpListener) -> Self {
        let endpoint = listener.local_addr().unwrap().to_string();
        BadCollector::at("a collector that hangs", endpoint, "Timeout expired")
    }

    /// A proxy whose server has fallen over.
    async fn answering_500() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let refused = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&refused);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let counted = Arc::clone(&counted);
                let answer = service_fn(move |_| {
                    counted.fetch_add(1, Ordering::Relaxed);
                    let answer = hyper::Response::builder().status(500).body(String::new());
                    std::future::ready(answer)
                });
                let server = http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(TokioIo::new(stream), answer));
            }
        });
        BadCollector {
            refused: Some(refused),
            ..BadCollector::at("a collector that answers 500", endpoint, "code: Unknown")
        }
    }

    async fn all(hanging: &TcpListener, folder: &Path) -> Vec<Self> {
        let fifo = folder.join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let unix = |path: &Path| format!("unix://{}", path.display());
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let free = free.local_addr().unwrap().to_string();
        vec![
            BadCollector::hanging(hanging),
            BadCollector::answering_500().await,
            BadCollector::at("a FIFO", unix(&fifo), "code: Unavailable"),
            BadCollector::at("no file", unix(&folder.join("none")), "code: Unavailable"),
            BadCollector::at("a port of nobody", free, "code: Unavailable"),
        ]
    }

    /// Has refused several batches, as far as it knows of them.
    fn is_seen_often(&self) -> bool {
        let refused = self.refused.as_ref();
        refused.is_none_or(|refused| refused.load(Ordering::Relaxed) > 3)
    }
}

#[tokio::test]
async fn a_collector_that_takes_no_span_holds_up_no_pod_and_is_told_of_once() {
    let folder = tempfile::tempdir().unwrap();
    let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for collector in BadCollector::all(&hanging, folder.path()).await {
        let what = collector.what;
        let tracing =
            json!({ "endpoint": collector.endpoint, "samplingRatePerMillion": 1_000_000 });
        let node = Node::builder()
            .config(&json!({ "tracing": tracing }))
            .environment("OTEL_BSP_SCHEDULE_DELAY", "100")
            .environment("OTEL_EXPORTER_OTLP_TIMEOUT", "500")
            .manifest("web.yaml", &pod());
        let mut node = node.start().await.unwrap();
        node.until("web", CONVERGENCE_TIMEOUT, "runs", runs)
            .await
            .unwrap();
        let complaints = |node: &Node| -> Vec<String> {
            let is_of_spans = |line: &&str| line.to_lowercase().contains("span");
            node.log()
                .lines()
                .filter(is_of_spans)
                .map(str::to_owned)
                .collect()
        };
        wait_until(CONVERGENCE_TIMEOUT, what, async || {
            // Each question makes a span.
            node.pods().await.is_ok() && !complaints(&node).is_empty() && collector.is_seen_often()
        })
        .await
        .unwrap();
        assert!(node.is_healthy().await, "{what}");
        assert!(node.terminate().await.unwrap().success(), "{what}");
        let [complaint] = &complaints(&node)[..] else {
            panic!("{what}: {:#?}", complaints(&node));
        };
        let told = format!("spans are not sent to {}: ", collector.endpoint);
        assert!(complaint.contains(&told), "{what}: {complaint}");
        assert!(complaint.contains(collector.why), "{what}: {complaint}");
    }
}
