//! OpenTelemetry spans: what the agent does for a pod, the runtime's calls in it, and requests to its API.
//!
//! Spans are sent to a collector by OTLP (gRPC), as `tracing:` of the configuration says. Without `tracing:`, or without
//! the feature `otlp`, nothing is made: a span that is begun is one look at a flag.
//!
//! Upstream: component-base/tracing/utils.go, cmd/kubelet/app/server.go (1.36), KEP-2831.

#[cfg(feature = "otlp")]
mod export;
mod scope;
mod span;
#[cfg(test)]
#[cfg(feature = "otlp")]
mod tests;

use std::time::Duration;

pub use self::scope::{Scoped, SpanScope};
pub use self::span::{Attribute, AttributeValue, RemoteParent, Span, SpanKind};

/// Where spans are sent to, and how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanExport {
    /// The collector: `host:port`, `dns:///host:port` or `unix:///path`. None for the environment's
    /// (`OTEL_EXPORTER_OTLP_ENDPOINT`), or else `localhost:4317`.
    pub endpoint: Option<String>,
    /// Of a million traces that begin here, so many are sampled; one that a caller began follows the caller.
    pub sampling_rate_per_million: u32,
    /// The resource's `host.name`.
    pub host_name: String,
}

/// Why no spans are sent.
#[derive(Debug, thiserror::Error)]
pub enum SpanExportError {
    /// The program was built without the feature `otlp`.
    #[error("this program was built without OpenTelemetry (feature otlp)")]
    NotBuilt,
    /// The address is none that can be called.
    #[error(
        "tracing.endpoint {endpoint:?}, expected host:port, dns:///host:port or unix:///path: {why}"
    )]
    Endpoint {
        /// As configured.
        endpoint: String,
        why: String,
    },
    /// Spans are sent already.
    #[error("spans are sent already")]
    Started,
}

/// Starts to make spans and to send them, in batches by a thread of its own. A collector that does not answer costs spans and
/// nothing else: of 2,048 that wait the rest is dropped.
///
/// # Errors
/// The address is malformed, or the program has no OpenTelemetry. Must be called within a tokio runtime.
pub fn start(export: &SpanExport) -> Result<(), SpanExportError> {
    #[cfg(feature = "otlp")]
    return export::start(export);
    #[cfg(not(feature = "otlp"))]
    {
        let _ = export;
        Err(SpanExportError::NotBuilt)
    }
}

/// Sends what waits, for at most this long. Afterwards spans are made no more.
pub async fn stop(within: Duration) {
    #[cfg(feature = "otlp")]
    export::stop(within).await;
    #[cfg(not(feature = "otlp"))]
    let _ = within;
}
