//! An answer's body on its way back: frames as they are, a loss on the way turned into a gRPC status.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use crate::{backend, grpc};

/// The body of one answer; it holds the call's place among those in flight.
#[derive(Debug)]
pub(crate) struct Relay {
    body: Incoming,
    place: String,
    cut: bool,
    _permit: OwnedSemaphorePermit,
}

impl Relay {
    /// Relays `body`, which comes from `place`.
    pub(crate) fn new(body: Incoming, place: String, permit: OwnedSemaphorePermit) -> Self {
        Self {
            body,
            place,
            cut: false,
            _permit: permit,
        }
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.cut {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body)
            .poll_frame(cx)
            .map(|frame| match frame? {
                Ok(frame) => Some(Ok(frame)),
                Err(error) => {
                    self.cut = true;
                    Some(Ok(Frame::trailers(grpc::trailers(&backend::lost(
                        &self.place,
                        error,
                    )))))
                }
            })
    }

    fn is_end_stream(&self) -> bool {
        self.cut || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // A cut body is shorter than announced: only the lower bound of nothing is sure.
        SizeHint::default()
    }
}
