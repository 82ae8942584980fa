//! A span: a piece of work with a name, a beginning and an end.

use std::fmt::Display;

use http::HeaderMap;

use crate::scope::SpanScope;

/// A fact about a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// By OpenTelemetry's semantic conventions, e.g. `k8s.pod.uid`.
    pub key: &'static str,
    pub value: AttributeValue,
}

/// The value of a fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeValue {
    Text(String),
    Number(i64),
}

impl Attribute {
    pub fn text(key: &'static str, value: impl Into<String>) -> Attribute {
        let value = AttributeValue::Text(value.into());
        Attribute { key, value }
    }

    pub fn number(key: &'static str, value: i64) -> Attribute {
        let value = AttributeValue::Number(value);
        Attribute { key, value }
    }
}

/// Which end of a call a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// No call, but work of our own.
    Internal,
    /// A call that is made.
    Client,
    /// A call that is answered.
    Server,
}

/// What the trace in a request's headers (`traceparent`) is for the span of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteParent {
    /// The span is part of it: the caller is known.
    Followed,
    /// The span begins a trace of its own and names it: anybody may have sent it.
    Linked,
}

/// A span; it ends when it is dropped.
#[derive(Debug, Default)]
pub struct Span {
    #[cfg(feature = "otlp")]
    context: Option<opentelemetry::Context>,
}

#[cfg(not(feature = "otlp"))]
mod absent {
    use super::*;

    impl Span {
        /// Begins a span within the one that is current.
        pub fn begin(_: impl Display, _: SpanKind, _: impl FnOnce() -> Vec<Attribute>) -> Span {
            Span::default()
        }

        /// Begins the span of a request that is answered.
        pub fn of_request(
            _: (&HeaderMap, RemoteParent),
            _: impl Display,
            _: impl FnOnce() -> Vec<Attribute>,
        ) -> Span {
            Span::default()
        }

        /// What makes spans the children of this one.
        pub fn scope(&self) -> SpanScope {
            SpanScope::default()
        }

        /// Adds facts.
        pub fn add(&self, _: impl FnOnce() -> Vec<Attribute>) {}

        /// The work has failed.
        pub fn fail(&self, _: &dyn Display) {}

        /// Puts the trace into the headers of a call.
        pub fn inject(&self, _: &mut HeaderMap) {}
    }
}

#[cfg(feature = "otlp")]
mod made {
    use opentelemetry::trace::{
        Link, SpanBuilder, SpanKind as Kind, Status, TraceContextExt as _, Tracer as _,
    };
    use opentelemetry::{Context, KeyValue, Value};

    use super::*;
    use crate::export::{self, Exporting};

    impl Span {
        /// Begins a span within the one that is current. The facts are asked for only where one is made.
        pub fn begin(
            name: impl Display,
            kind: SpanKind,
            attributes: impl FnOnce() -> Vec<Attribute>,
        ) -> Span {
            let Some(exporting) = export::exporting() else {
                return Span::default();
            };
            let parent = Context::current();
            Span::made(exporting, builder(name, kind, attributes()), &parent)
        }

        /// Begins the span of a request that is answered.
        pub fn of_request(
            (headers, parent): (&HeaderMap, RemoteParent),
            name: impl Display,
            attributes: impl FnOnce() -> Vec<Attribute>,
        ) -> Span {
            let Some(exporting) = export::exporting() else {
                return Span::default();
            };
            let remote = exporting.extract(headers);
            let builder = builder(name, SpanKind::Server, attributes());
            match parent {
                RemoteParent::Followed => Span::made(exporting, builder, &remote),
                RemoteParent::Linked => {
                    let remote = remote.span().span_context().clone();
                    let links = remote.is_valid().then(|| Link::with_context(remote));
                    let links = links.into_iter().collect();
                    Span::made(exporting, builder.with_links(links), &Context::new())
                }
            }
        }

        fn made(exporting: &Exporting, builder: SpanBuilder, parent: &Context) -> Span {
            let span = exporting.tracer.build_with_context(builder, parent);
            let context = Some(parent.with_span(span));
            Span { context }
        }

        /// What makes spans the children of this one.
        pub fn scope(&self) -> SpanScope {
            let context = self.context.clone();
            SpanScope { context }
        }

        /// Adds facts. They are asked for only where the span is made.
        pub fn add(&self, attributes: impl FnOnce() -> Vec<Attribute>) {
            if let Some(context) = &self.context {
                let facts = attributes().into_iter().map(Into::into);
                context.span().set_attributes(facts);
            }
        }

        /// The work has failed.
        pub fn fail(&self, error: &dyn Display) {
            if let Some(context) = &self.context {
                let (span, words) = (context.span(), error.to_string());
                let message = KeyValue::new("exception.message", words.clone());
                span.add_event("exception", vec![message]);
                span.set_status(Status::error(words));
            }
        }

        /// Puts the trace into the headers of a call (`traceparent`, `tracestate`, `baggage`).
        pub fn inject(&self, headers: &mut HeaderMap) {
            if let (Some(context), Some(exporting)) = (&self.context, export::exporting()) {
                exporting.inject(context, headers);
            }
        }
    }

    impl Drop for Span {
        fn drop(&mut self) {
            if let Some(context) = &self.context {
                context.span().end();
            }
        }
    }

    fn builder(name: impl Display, kind: SpanKind, attributes: Vec<Attribute>) -> SpanBuilder {
        let kind = match kind {
            SpanKind::Internal => Kind::Internal,
            SpanKind::Client => Kind::Client,
            SpanKind::Server => Kind::Server,
        };
        SpanBuilder::from_name(name.to_string())
            .with_kind(kind)
            .with_attributes(attributes.into_iter().map(KeyValue::from))
    }

    impl From<Attribute> for KeyValue {
        fn from(attribute: Attribute) -> KeyValue {
            let value = match attribute.value {
                AttributeValue::Text(text) => Value::from(text),
                AttributeValue::Number(number) => Value::from(number),
            };
            KeyValue::new(attribute.key, value)
        }
    }
}
