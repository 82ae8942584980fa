//! Spans of the agent, as a collector gets them (`tracing:`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
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
async fn a_collector_that_never_answers_holds_up_no_pod_and_is_told_of_once() {
    let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = hanging.local_addr().unwrap().to_string();
    let node = Node::builder()
        .config(
            &json!({ "tracing": { "endpoint": endpoint, "samplingRatePerMillion": 1_000_000 } }),
        )
        .environment("OTEL_BSP_SCHEDULE_DELAY", "100")
        .environment("OTEL_EXPORTER_OTLP_TIMEOUT", "500")
        .manifest("web.yaml", &pod());
    let mut node = node.start().await.unwrap();
    node.until("web", CONVERGENCE_TIMEOUT, "runs", runs)
        .await
        .unwrap();
    let complaints = |node: &Node| node.log().matches("spans are not sent").count();
    wait_until(CONVERGENCE_TIMEOUT, "it is told", async || {
        complaints(&node) > 0
    })
    .await
    .unwrap();
    assert!(node.terminate().await.unwrap().success());
    assert_eq!(complaints(&node), 1);
}
