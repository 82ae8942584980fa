//! A span for each call of the runtime, under the names that gRPC's own instrumentation gives it, and the trace in the
//! call's headers.

use plugin_host::CallError;
use telemetry::{Attribute, Span, SpanKind};
use tonic::{Code, Request};

/// Begins the span of a call, by its name in CRI.
pub(super) fn begin(call: &'static str) -> Span {
    let service = service(call);
    Span::begin(format_args!("{service}/{call}"), SpanKind::Client, || {
        vec![
            Attribute::text("rpc.system", "grpc"),
            Attribute::text("rpc.service", service),
            Attribute::text("rpc.method", call),
        ]
    })
}

/// The request of a call, which tells the runtime of the span.
pub(super) fn request<Q>(span: &Span, message: Q) -> Request<Q> {
    let mut request = Request::new(message);
    span.inject(request.metadata_mut().as_mut());
    request
}

/// Ends the span of a call.
pub(super) fn end<T>(span: &Span, answer: &Result<T, CallError>) {
    let code = match answer {
        Ok(_) => Some(Code::Ok),
        Err(error) => error.code(),
    };
    // A call without an answer has none.
    let code = code.map(|code| Attribute::number("rpc.grpc.status_code", i64::from(code as i32)));
    span.add(|| code.into_iter().collect());
    if let Err(error) = answer {
        span.fail(&kernel::error_chain(error));
    }
}

fn service(call: &str) -> &'static str {
    match call {
        "ImageStatus" | "ListImages" | "PullImage" | "RemoveImage" | "ImageFsInfo" => {
            "runtime.v1.ImageService"
        }
        _ => "runtime.v1.RuntimeService",
    }
}
