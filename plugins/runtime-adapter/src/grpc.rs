//! The few answers of gRPC's wire format that the adapter writes or reads itself.

use std::convert::Infallible;

use futures_util::stream::{self, BoxStream, StreamExt};
use http::Response;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use prost::Message;
use tonic::body::Body;
use tonic::{Code, Status};

/// Flag "not compressed" and a length of four bytes.
const PREFIX: usize = 5;

/// The frames of an answer's body.
pub(crate) type Frames = BoxStream<'static, Result<Frame<Bytes>, Infallible>>;

/// Returns an answer whose head is sent at once.
pub(crate) fn answer(frames: Frames) -> Response<Body> {
    let mut answer = Response::new(Body::new(StreamBody::new(frames)));
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    answer
}

/// Returns the answer of success with a message that has no field set.
pub(crate) fn empty_answer() -> Response<Body> {
    let message = Frame::data(Bytes::from_static(&[0; PREFIX]));
    answer(stream::iter([Ok(message), Ok(Frame::trailers(trailers(&Status::ok(""))))]).boxed())
}

/// Returns a message as a frame.
pub(crate) fn message(message: &impl Message) -> Frame<Bytes> {
    let length = message.encoded_len();
    let mut frame = Vec::with_capacity(PREFIX + length);
    frame.push(0);
    frame.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend_from_slice(&message.encode_to_vec());
    Frame::data(frame.into())
}

/// Reads the message of a body that holds one, uncompressed.
pub(crate) fn read<M: Message + Default>(body: &[u8]) -> Option<M> {
    let (prefix, message) = body.split_at_checked(PREFIX)?;
    M::decode(message).ok().filter(|_| prefix[0] == 0)
}

/// Returns a status as the trailers that end an answer.
pub(crate) fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("14"));
    }
    trailers
}

/// Returns the code of an answer that ended with its head; nothing if a body follows.
pub(crate) fn ended(head: &HeaderMap) -> Option<Code> {
    head.get(Status::GRPC_STATUS)
        .map(|code| Code::from_bytes(code.as_bytes()))
}
