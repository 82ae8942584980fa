//! A connection that is not read before something was written.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Holds back what the peer sends, and its end, until the first bytes are written.
///
/// hyper takes a response that is there before its request for an error, where Go's client, which writes at once, takes it
/// for the response: a pod that answers with `nc -l` at each connection is healthy.
pub(super) struct WriteFirst<S> {
    stream: S,
    is_written: bool,
    reader: Option<Waker>,
}

impl<S> WriteFirst<S> {
    pub(super) fn new(stream: S) -> WriteFirst<S> {
        WriteFirst {
            stream,
            is_written: false,
            reader: None,
        }
    }

    fn let_read(&mut self) {
        self.is_written = true;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteFirst<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_written {
            self.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteFirst<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        self.let_read();
        Poll::Ready(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, slices));
        self.let_read();
        Poll::Ready(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
