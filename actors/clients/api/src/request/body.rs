//! The body of an answer: bounded in size and time, and counted on the connection that carries it.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use kernel::error_chain;

use super::measured::ResponseSizeObserver;
use crate::error::ApiError;
use crate::transport::connections::StreamPermit;

/// The largest answer that is read, in bytes.
const ANSWER: usize = 64 << 20;
/// The largest event of a watch, in bytes; the API server stores at most 1.5 MiB, and prints it in a few times that.
const EVENT: usize = 16 << 20;

/// The largest size of an answer, and the end of the time for it.
pub(super) enum Bounds {
    /// So many bytes in all, and no longer than this future.
    Answer(BoxFuture<'static, ()>, ResponseSizeObserver),
    /// So many bytes a line, and no longer than the connection is wanted.
    Watch(BoxFuture<'static, ()>),
}

/// A body that ends, one way or the other.
pub(crate) struct BoundedBody {
    incoming: Incoming,
    bounds: Bounds,
    read: usize,
    _place: StreamPermit,
}

impl BoundedBody {
    pub(super) fn new(incoming: Incoming, bounds: Bounds, place: StreamPermit) -> BoundedBody {
        BoundedBody {
            incoming,
            bounds,
            read: 0,
            _place: place,
        }
    }

    fn admit(&mut self, data: &Bytes) -> Result<(), ApiError> {
        let most = match self.bounds {
            Bounds::Answer(..) => ANSWER,
            Bounds::Watch(_) => EVENT,
        };
        self.read = match (&self.bounds, data.iter().rposition(|byte| *byte == b'\n')) {
            (Bounds::Watch(_), Some(end)) => data.len() - end - 1,
            (Bounds::Watch(_) | Bounds::Answer(..), _) => self.read + data.len(),
        };
        match self.read > most {
            true => Err(ApiError::nonsense(format!(
                "the answer is larger than {} MiB",
                most >> 20
            ))),
            false => Ok(()),
        }
    }
}

impl Drop for BoundedBody {
    fn drop(&mut self) {
        if let Bounds::Answer(_, size) = &self.bounds {
            size(self.read);
        }
    }
}

impl Body for BoundedBody {
    type Data = Bytes;
    type Error = ApiError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ApiError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| {
                let frame = frame.map_err(|error| ApiError::unreachable(error_chain(&error)))?;
                if let Some(data) = frame.data_ref() {
                    self.admit(data)?;
                }
                Ok(frame)
            }));
        }
        match &mut self.bounds {
            Bounds::Answer(late, _) => late
                .as_mut()
                .poll(cx)
                .map(|()| Some(Err(ApiError::unreachable("the answer did not end in time")))),
            Bounds::Watch(unwanted) => unwanted.as_mut().poll(cx).map(|()| None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
