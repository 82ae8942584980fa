//! How spans leave: sampled, gathered, sent by OTLP.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::propagation::{
    Extractor, Injector, TextMapCompositePropagator, TextMapPropagator,
};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::WithExportConfig as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, SpanData, SpanExporter};

use crate::{SpanExport, SpanExportError};

/// What upstream's resource is called; dashboards look for it.
const SERVICE_NAME: &str = "kubelet";
/// Of our spans.
const SCOPE: &str = "oxlet";

static EXPORTING: OnceLock<Exporting> = OnceLock::new();

/// What makes spans.
pub(crate) struct Exporting {
    pub(crate) tracer: SdkTracer,
    provider: SdkTracerProvider,
    propagator: TextMapCompositePropagator,
}

/// What makes spans; none where spans are not asked for.
pub(crate) fn exporting() -> Option<&'static Exporting> {
    EXPORTING.get()
}

pub(crate) fn start(export: &SpanExport) -> Result<(), SpanExportError> {
    let sent = exporter(export)?;
    begin(
        export,
        ReportingExporter::new(sent, export.endpoint.clone()),
    )
}

/// What sends to the collector; it connects when there is something to send.
pub(crate) fn exporter(
    export: &SpanExport,
) -> Result<opentelemetry_otlp::SpanExporter, SpanExportError> {
    let mut builder = opentelemetry_otlp::SpanExporter::builder().with_tonic();
    if let Some(endpoint) = &export.endpoint {
        builder = builder.with_endpoint(target(endpoint));
    }
    builder.build().map_err(|error| SpanExportError::Endpoint {
        endpoint: export.endpoint.clone().unwrap_or_default(),
        why: error.to_string(),
    })
}

/// Makes spans from now on, for this exporter.
pub(crate) fn begin(
    export: &SpanExport,
    exporter: impl SpanExporter + 'static,
) -> Result<(), SpanExportError> {
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(sampler(export.sampling_rate_per_million))
        .with_resource(resource(&export.host_name))
        .build();
    let exporting = Exporting {
        tracer: provider.tracer(SCOPE),
        provider,
        propagator: TextMapCompositePropagator::new(vec![
            Box::new(TraceContextPropagator::new()),
            Box::new(BaggagePropagator::new()),
        ]),
    };
    EXPORTING
        .set(exporting)
        .map_err(|_| SpanExportError::Started)
}

pub(crate) async fn stop(within: Duration) {
    let Some(exporting) = exporting() else { return };
    let provider = exporting.provider.clone();
    // The thread that sends needs this one's runtime.
    let stopped = kernel::spawn_blocking(move || provider.shutdown_with_timeout(within));
    if let Ok(Err(error)) = stopped.await {
        tracing::debug!("the last spans are not sent: {error}");
    }
}

/// gRPC's targets as URIs.
pub(crate) fn target(endpoint: &str) -> String {
    if let Some(path) = endpoint.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        // With one slash it had no scheme by the exporter's rule, and were taken for HTTPS.
        return format!("unix://{path}");
    }
    let address = endpoint
        .strip_prefix("dns:")
        .map_or(endpoint, |rest| rest.trim_start_matches('/'));
    format!("http://{address}")
}

/// Upstream's: as the caller has decided, else for so many of a million.
pub(crate) fn sampler(per_million: u32) -> Sampler {
    let own = match per_million {
        0 => Sampler::AlwaysOff,
        rate => Sampler::TraceIdRatioBased(f64::from(rate) / 1_000_000.0),
    };
    Sampler::ParentBased(Box::new(own))
}

fn resource(host_name: &str) -> Resource {
    Resource::builder_empty()
        .with_attributes([
            KeyValue::new("service.name", SERVICE_NAME),
            KeyValue::new("host.name", host_name.to_owned()),
        ])
        .build()
}

impl Exporting {
    /// The context that a caller has sent.
    pub(crate) fn extract(&self, headers: &HeaderMap) -> Context {
        self.propagator
            .extract_with_context(&Context::new(), &Received(headers))
    }

    pub(crate) fn inject(&self, context: &Context, headers: &mut HeaderMap) {
        self.propagator.inject_context(context, &mut Sent(headers));
    }
}

struct Received<'a>(&'a HeaderMap);

impl Extractor for Received<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct Sent<'a>(&'a mut HeaderMap);

impl Injector for Sent<'_> {
    fn set(&mut self, key: &str, value: String) {
        let name = HeaderName::from_bytes(key.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&value)) {
            self.0.insert(name, value);
        }
    }
}

/// Says once that spans are not sent, and once that they are again.
pub(crate) struct ReportingExporter<E> {
    inner: E,
    /// As configured; the environment's, or the default, is not named.
    collector: String,
    is_failing: AtomicBool,
}

impl<E> ReportingExporter<E> {
    pub(crate) fn new(inner: E, endpoint: Option<String>) -> Self {
        ReportingExporter {
            inner,
            collector: endpoint.unwrap_or_else(|| "the collector".to_owned()),
            is_failing: AtomicBool::new(false),
        }
    }

    /// Notes how a batch went; returns whether that differs from the one before.
    pub(crate) fn differs(&self, is_failing: bool) -> bool {
        self.is_failing.swap(is_failing, Ordering::Relaxed) != is_failing
    }

    fn report(&self, sent: &OTelSdkResult) {
        match (self.differs(sent.is_err()), sent) {
            (true, Err(error)) => {
                tracing::warn!("spans are not sent to {}: {error}", self.collector);
            }
            (true, Ok(())) => tracing::info!("spans are sent to {} again", self.collector),
            (false, _) => {}
        }
    }
}

impl<E> fmt::Debug for ReportingExporter<E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failing = self.is_failing.load(Ordering::Relaxed);
        write!(out, "ReportingExporter(failing: {failing})")
    }
}

impl<E: SpanExporter> SpanExporter for ReportingExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let sent = self.inner.export(batch).await;
        self.report(&sent);
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
