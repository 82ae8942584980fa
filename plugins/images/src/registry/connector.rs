//! How connections are made: directly, or through the proxy that the environment has for a server.
//!
//! As Go's `http.Transport`, by which containerd pulls: a server with TLS is reached through a tunnel (CONNECT), one
//! without by asking the proxy itself.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use http::uri::Scheme;
use http_proxy::{BoxedStream, Proxy, ProxyEnvironment, ProxyProtocol};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tower::Service;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Connects to the host of a URL, or to the proxy before it.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) tcp: HttpConnector,
    pub(super) proxies: Arc<ProxyEnvironment>,
    /// For a proxy that speaks TLS: the system's authorities, no certificate of ours.
    pub(super) proxy_tls: Arc<ClientConfig>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connector({:?})", self.proxies)
    }
}

/// Returns the proxy for a URL; none where its host is reached directly.
///
/// # Errors
/// The variable whose value is not a proxy's URL.
pub(super) fn proxy_for(proxies: &ProxyEnvironment, uri: &Uri) -> Result<Option<Proxy>, BoxError> {
    let (has_tls, host, port) = place(uri);
    proxies
        .proxy(has_tls, &host, port)
        .map_err(|(variable, error)| format!("{variable}: expected {error}").into())
}

fn place(uri: &Uri) -> (bool, String, u16) {
    let has_tls = uri.scheme() == Some(&Scheme::HTTPS);
    let host = uri.host().unwrap_or_default();
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    let usual = if has_tls { 443 } else { 80 };
    (has_tls, host, uri.port_u16().unwrap_or(usual))
}

impl Connector {
    async fn connect(mut self, uri: Uri) -> Result<Stream, BoxError> {
        let Some(proxy) = proxy_for(&self.proxies, &uri)? else {
            let stream = self.tcp.call(uri).await?;
            return Ok(Stream::new(Box::new(stream.into_inner()), false));
        };
        let (has_tls, host, port) = place(&uri);
        let stream = self
            .reach(&proxy)
            .await
            .map_err(|error| proxy.unreachable(error))?;
        // Without TLS an HTTP proxy is asked for the whole URL.
        if !has_tls && proxy.protocol != ProxyProtocol::Socks5 {
            return Ok(Stream::new(stream, true));
        }
        let stream = proxy.open(stream, &host, port).await?;
        Ok(Stream::new(stream, false))
    }

    async fn reach(&mut self, proxy: &Proxy) -> io::Result<BoxedStream> {
        let uri: Uri = format!("http://{proxy}/")
            .parse()
            .map_err(|_| io::Error::other("its address makes no URL"))?;
        let stream = self.tcp.call(uri).await.map_err(io::Error::other)?;
        let stream = stream.into_inner();
        if proxy.protocol != ProxyProtocol::Https {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(proxy.host().to_owned()).map_err(io::Error::other)?;
        let tls = TlsConnector::from(self.proxy_tls.clone());
        Ok(Box::new(tls.connect(name, stream).await?))
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        // The clone has not been asked whether it is ready; a connector of TCP always is.
        Box::pin(self.clone().connect(uri))
    }
}

/// A connection to a server, or to a proxy that passes requests on.
pub(super) struct Stream {
    inner: TokioIo<BoxedStream>,
    is_proxied: bool,
}

impl Stream {
    fn new(stream: BoxedStream, is_proxied: bool) -> Self {
        Self {
            inner: TokioIo::new(stream),
            is_proxied,
        }
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.is_proxied)
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
