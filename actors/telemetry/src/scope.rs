//! A future in a span: spans that it begins are the span's children.

use std::pin::Pin;
use std::task::{Context, Poll};

pin_project_lite::pin_project! {
    /// A future whose spans are children of a span. It is no larger than the future and a pointer.
    #[derive(Debug)]
    pub struct Scoped<F> {
        #[pin]
        inner: F,
        span: SpanScope,
    }
}

/// What makes spans the children of another one.
#[derive(Debug, Clone, Default)]
pub struct SpanScope {
    #[cfg(feature = "otlp")]
    pub(crate) context: Option<opentelemetry::Context>,
}

impl SpanScope {
    /// Spans that the future begins are children of this scope's.
    pub fn run<F: Future>(self, future: F) -> Scoped<F> {
        Scoped {
            inner: future,
            span: self,
        }
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        #[cfg(feature = "otlp")]
        let _attached = this
            .span
            .context
            .clone()
            .map(opentelemetry::Context::attach);
        this.inner.poll(task)
    }
}
