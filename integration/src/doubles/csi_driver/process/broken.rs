//! Answers that are none: what a driver with a broken memory might send.

use http_body_util::Full;
use hyper::body::Bytes;
use tonic::Status;
use tonic::body::Body;

/// Marks an answer that is to be broken on its way out.
const MARK: &str = "x-broken";
/// A frame of four bytes that are no message.
const GARBAGE: &[u8] = &[0, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff];
const NOISE: &[u8] = b"\x89PNG is not a protocol";

/// How an answer is broken.
#[derive(Clone, Copy, Debug)]
pub(super) enum BreakageKind {
    Garbage,
    Noise,
}

/// An answer that [`break_marked`] breaks.
pub(super) fn status(kind: BreakageKind) -> Status {
    let mut status = Status::internal("to be broken");
    let word = match kind {
        BreakageKind::Garbage => "garbage",
        BreakageKind::Noise => "noise",
    };
    status
        .metadata_mut()
        .insert(MARK, tonic::metadata::MetadataValue::from_static(word));
    status
}

/// Breaks the answers that are marked.
pub(super) fn break_marked(answer: hyper::Response<Body>) -> hyper::Response<Body> {
    let bytes = match answer.headers().get(MARK).map(|mark| mark.as_bytes()) {
        Some(b"garbage") => GARBAGE,
        Some(_) => NOISE,
        None => return answer,
    };
    let mut broken = hyper::Response::new(Body::new(Full::new(Bytes::from_static(bytes))));
    let grpc = hyper::header::HeaderValue::from_static("application/grpc");
    broken
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, grpc);
    broken
}
