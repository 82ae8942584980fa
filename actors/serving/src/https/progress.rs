//! Whether a peer takes a response: time counts while the connection could take a piece of it and does not ask for one.
//!
//! A peer of HTTP/2 that opens no window, or one that does not read, leaves no other trace: nothing is written, and pings go on.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::body::{Body, Bytes, Frame, SizeHint};

use crate::http::{HandlerResponse, HttpBody};

/// How long a piece of a response may wait for the peer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a piece of a log may, as of every response upstream: a person reads it page by page.
const LOG_WRITE_TIMEOUT: Duration = Duration::from_secs(4 * 60 * 60);

/// Marks a response, as an extension, that a person reads page by page.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadByPeople;

/// How far a response has got.
#[derive(Debug)]
pub(super) struct BodyProgress {
    /// Since when it is the peer's turn; none while the handler has nothing to send.
    peers_turn: Mutex<Option<Instant>>,
    timeout: Duration,
}

impl BodyProgress {
    pub(super) fn of(answer: &HandlerResponse) -> BodyProgress {
        let is_log = answer.extensions().get::<ReadByPeople>().is_some();
        BodyProgress {
            peers_turn: Mutex::new(Some(kernel::now())),
            timeout: match is_log {
                true => LOG_WRITE_TIMEOUT,
                false => WRITE_TIMEOUT,
            },
        }
    }

    pub(super) fn is_stalled(&self, now: Instant) -> bool {
        let since = *self.turn();
        since.is_some_and(|since| now.saturating_duration_since(since) >= self.timeout)
    }

    fn turn(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.peers_turn
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A response's body, whose progress is noted; `K` is kept for as long as it is being sent.
pub(super) struct ResponseBody<K> {
    body: HttpBody,
    progress: Arc<BodyProgress>,
    _keep: K,
}

impl<K> ResponseBody<K> {
    pub(super) fn new(body: HttpBody, progress: Arc<BodyProgress>, keep: K) -> ResponseBody<K> {
        ResponseBody {
            body,
            progress,
            _keep: keep,
        }
    }
}

impl<K: Unpin> Body for ResponseBody<K> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        *self.progress.turn() = polled.is_ready().then(kernel::now);
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::{StreamExt, stream};
    use http_body_util::BodyExt;
    use kernel::testing::{pass, run_paused};

    use super::*;
    use crate::http::{streamed, text};

    #[test]
    fn only_the_peers_turn_counts() {
        run_paused(|| async {
            let day = Duration::from_secs(24 * 60 * 60);
            let whole = BodyProgress::of(&text(hyper::StatusCode::OK, "ok"));
            let pieces = stream::once(async { Bytes::from("piece") }).chain(stream::pending());
            let mut log = streamed(pieces);
            log.extensions_mut().insert(ReadByPeople);
            let progress = Arc::new(BodyProgress::of(&log));
            let mut body = ResponseBody::new(log.into_body(), Arc::clone(&progress), ());
            let stalled = |progress: &BodyProgress| progress.is_stalled(kernel::now());
            assert!(!stalled(&whole));
            pass(WRITE_TIMEOUT).await;
            assert!(stalled(&whole) && !stalled(&progress), "a log has time");
            body.frame().await.unwrap().unwrap();
            pass(LOG_WRITE_TIMEOUT).await;
            assert!(stalled(&progress), "the next piece is not asked for");
            poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx).is_pending())).await;
            pass(day).await;
            assert!(!stalled(&progress), "there is nothing to send");
        });
    }
}
