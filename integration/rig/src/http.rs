//! A minimal HTTP client for tests: one request, the whole answer, over TCP or a Unix socket.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Longer than the agent's own timeouts.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(65);

/// A complete HTTP response.
#[derive(Debug)]
pub struct HttpAnswer {
    /// The HTTP status code.
    pub status: u16,
    /// The whole body.
    pub body: Bytes,
}

impl HttpAnswer {
    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends a GET to a server on 127.0.0.1.
pub async fn get(port: u16, path: &str) -> Result<HttpAnswer> {
    let stream = TcpStream::connect(("127.0.0.1", port))
        .await
        .with_context(|| format!("nobody listens on port {port}"))?;
    ask(stream, Method::GET, path).await
}

/// Asks a server on a Unix socket.
pub async fn ask_socket(socket: &Path, method: Method, path: &str) -> Result<HttpAnswer> {
    let stream = UnixStream::connect(socket)
        .await
        .with_context(|| format!("nobody listens at {}", socket.display()))?;
    ask(stream, method, path).await
}

async fn ask<S>(stream: S, method: Method, path: &str) -> Result<HttpAnswer>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .body(Empty::<Bytes>::new())?;
    let asked = async {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Its error also ends `send_request`.
        let connection = tokio::spawn(async move { drop(connection.await) });
        let answer = sender.send_request(request).await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        connection.abort();
        anyhow::Ok(HttpAnswer { status, body })
    };
    tokio::time::timeout(RESPONSE_TIMEOUT, asked)
        .await
        .with_context(|| format!("no answer to {path} within {RESPONSE_TIMEOUT:?}"))?
        .with_context(|| format!("no answer to {path}"))
}
