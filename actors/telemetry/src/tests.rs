//! Laws of spans. What makes them is one for the process: each law is a process of its own (nextest).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderMap;
use opentelemetry::trace::{SpanId, Status, TraceId};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SpanData, SpanExporter};

use super::export::{ReportingExporter, begin, exporter, sampler, target};
use super::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// What was sent.
#[derive(Debug, Clone, Default)]
struct Collector(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Collector {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

impl Collector {
    fn begin(sampling_rate_per_million: u32) -> Collector {
        let collector = Collector::default();
        let export = SpanExport {
            endpoint: None,
            sampling_rate_per_million,
            host_name: "edge".into(),
        };
        begin(&export, collector.clone()).unwrap();
        collector
    }

    /// All spans, when no more are made.
    async fn end(self) -> Vec<SpanData> {
        stop(Duration::from_secs(10)).await;
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn traceparent(is_sampled: bool) -> HeaderMap {
    let flags = if is_sampled { "01" } else { "00" };
    let value = format!("00-{TRACE}-{SPAN}-{flags}");
    HeaderMap::from_iter([("traceparent".parse().unwrap(), value.parse().unwrap())])
}

fn plain(name: &str) -> Span {
    Span::begin(name, SpanKind::Internal, Vec::new)
}

fn to(endpoint: &str) -> SpanExport {
    SpanExport {
        endpoint: Some(endpoint.into()),
        sampling_rate_per_million: 1,
        host_name: "edge".into(),
    }
}

#[tokio::test]
async fn grpcs_targets_are_uris_that_the_exporter_takes() {
    for (endpoint, uri) in [
        ("localhost:4317", "http://localhost:4317"),
        ("[::1]:4317", "http://[::1]:4317"),
        ("dns:///collector:4317", "http://collector:4317"),
        ("dns://collector:4317", "http://collector:4317"),
        ("unix:///run/collector.sock", "unix:///run/collector.sock"),
        ("unix:/run/collector.sock", "unix:///run/collector.sock"),
    ] {
        assert_eq!(target(endpoint), uri);
        let taken = exporter(&to(endpoint));
        assert!(taken.is_ok(), "{endpoint}: {}", taken.unwrap_err());
    }
}

#[tokio::test]
async fn an_address_that_is_none_is_named() {
    let error = start(&to("a b")).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("tracing.endpoint \"a b\", expected host:port")
    );
}

#[test]
fn without_a_rate_only_a_callers_traces_are_sampled() {
    let own = |per_million| {
        let Sampler::ParentBased(own) = sampler(per_million) else {
            panic!("{per_million} does not follow the caller");
        };
        format!("{own:?}")
    };
    assert_eq!(own(0), "AlwaysOff");
    assert_eq!(own(1_000_000), "TraceIdRatioBased(1.0)");
    assert_eq!(own(250_000), "TraceIdRatioBased(0.25)");
}

#[test]
fn before_spans_are_asked_for_none_is_made() {
    let span = Span::begin("a", SpanKind::Internal, || unreachable!());
    span.add(|| unreachable!());
    span.fail(&"so");
    let mut headers = HeaderMap::new();
    span.inject(&mut headers);
    assert!(headers.is_empty());
}

#[tokio::test]
async fn what_a_future_begins_is_a_child_of_its_span_also_after_it_has_waited() {
    let collector = Collector::begin(1_000_000);
    let outer = plain("outer");
    let inner = async {
        drop(plain("first"));
        tokio::task::yield_now().await;
        drop(plain("second"));
    };
    let beside = async {
        tokio::task::yield_now().await;
        drop(plain("beside"));
    };
    tokio::join!(outer.scope().run(inner), beside);
    drop(outer);
    let spans = collector.end().await;
    let found = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let outer = found("outer").span_context.clone();
    for child in ["first", "second"] {
        assert_eq!(found(child).parent_span_id, outer.span_id());
        assert_eq!(found(child).span_context.trace_id(), outer.trace_id());
    }
    assert_eq!(found("beside").parent_span_id, SpanId::INVALID);
    assert_ne!(found("beside").span_context.trace_id(), outer.trace_id());
}

#[tokio::test]
async fn a_caller_that_is_known_is_followed_and_any_other_is_linked() {
    let collector = Collector::begin(1_000_000);
    let headers = traceparent(true);
    for (parent, name) in [
        (RemoteParent::Followed, "followed"),
        (RemoteParent::Linked, "linked"),
    ] {
        let span = Span::of_request((&headers, parent), name, Vec::new);
        drop(span);
    }
    let spans = collector.end().await;
    let trace = TraceId::from_hex(TRACE).unwrap();
    assert_eq!(spans[0].span_context.trace_id(), trace);
    assert_eq!(spans[0].parent_span_id, SpanId::from_hex(SPAN).unwrap());
    assert_ne!(spans[1].span_context.trace_id(), trace);
    assert_eq!(spans[1].links[0].span_context.trace_id(), trace);
}

#[tokio::test]
async fn a_callers_decision_counts_before_the_rate() {
    let collector = Collector::begin(0);
    drop(plain("own"));
    for is_sampled in [true, false] {
        let caller = (&traceparent(is_sampled), RemoteParent::Followed);
        drop(Span::of_request(
            caller,
            format_args!("{is_sampled}"),
            Vec::new,
        ));
    }
    let names = collector.end().await;
    let names: Vec<_> = names.iter().map(|span| span.name.as_ref()).collect();
    assert_eq!(names, ["true"]);
}

#[tokio::test]
async fn a_call_carries_its_span_and_the_span_what_became_of_it() {
    let collector = Collector::begin(1_000_000);
    let span = Span::begin("call", SpanKind::Client, || {
        vec![Attribute::text("rpc.method", "Version")]
    });
    let mut headers = HeaderMap::new();
    span.inject(&mut headers);
    span.add(|| vec![Attribute::number("rpc.grpc.status_code", 14)]);
    span.fail(&"away");
    drop(span);
    let spans = collector.end().await;
    let context = &spans[0].span_context;
    let expected = format!("00-{}-{}-01", context.trace_id(), context.span_id());
    assert_eq!(headers["traceparent"], expected);
    assert_eq!(spans[0].status, Status::error("away"));
    let facts: Vec<_> = spans[0]
        .attributes
        .iter()
        .map(|fact| fact.key.as_str())
        .collect();
    assert_eq!(facts, ["rpc.method", "rpc.grpc.status_code"]);
}

#[test]
fn a_collector_that_is_away_is_told_of_once_and_once_when_it_is_back() {
    let exporter = ReportingExporter::new(Collector::default(), None);
    let told = [false, true, true, false, false, true].map(|fails| exporter.differs(fails));
    assert_eq!(told, [false, true, false, true, false, true]);
}
