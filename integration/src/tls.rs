//! A client of the node's HTTPS API that is content with any certificate of the server, and free in what it sends.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use apiserver::{CertificateWithKey, NoServerVerification};
use rustls::ClientConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A connection whose handshake is over.
pub type Stream = tokio_rustls::client::TlsStream<TcpStream>;

/// Longer than the agent asks an API server that does not answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(40);

/// All that a server sent until it closed the connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawResponse {
    /// 0 where there was no answer.
    pub status: u16,
    /// The status line and the headers, in small letters.
    pub head: String,
    /// The body, not decoded.
    pub body: String,
}

impl RawResponse {
    /// Returns the value of a header, in small letters; empty where there is none.
    pub fn header(&self, name: &str) -> &str {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .find(|(key, _)| *key == name)
            .map_or("", |(_, value)| value)
    }
}

/// Connects to a port of 127.0.0.1, with a client certificate or without one.
pub async fn connect(port: u16, credentials: Option<&CertificateWithKey>) -> Result<Stream> {
    connect_with(port, any_server(credentials)?).await
}

/// As [`connect`], for HTTP/2, without a client certificate.
pub async fn connect_http2(port: u16) -> Result<Stream> {
    let mut config = any_server(None)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    connect_with(port, config).await
}

/// Returns settings of a client that is content with any server.
pub fn any_server(credentials: Option<&CertificateWithKey>) -> Result<ClientConfig> {
    any_server_of(ring::default_provider(), credentials)
}

/// As [`any_server`], with this provider's key exchanges and ciphers.
pub fn any_server_of(
    provider: CryptoProvider,
    credentials: Option<&CertificateWithKey>,
) -> Result<ClientConfig> {
    let provider = Arc::new(provider);
    let any = Arc::new(NoServerVerification::new(Arc::clone(&provider)));
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(any);
    Ok(match credentials {
        None => builder.with_no_client_auth(),
        Some(CertificateWithKey { certificate, key }) => {
            let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
            let chain = chain.collect::<Result<Vec<_>, _>>()?;
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes())?)?
        }
    })
}

/// Connects to a port of 127.0.0.1 with these settings.
pub async fn connect_with(port: u16, config: ClientConfig) -> Result<Stream> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from("localhost")?;
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let connected = tokio::time::timeout(RESPONSE_TIMEOUT, connecting).await;
    Ok(connected.context("no end of the TLS handshake")??)
}

/// Sends these bytes on a connection of their own; returns what is received until its end.
pub async fn send(
    port: u16,
    credentials: Option<&CertificateWithKey>,
    bytes: &[u8],
) -> Result<RawResponse> {
    let mut stream = connect(port, credentials).await?;
    // The answer may come, and the connection end, before everything is sent.
    drop(stream.write_all(bytes).await);
    read_response(&mut stream).await
}

/// Returns what is received until the connection ends, however it ends.
pub async fn read_response(stream: &mut (impl AsyncRead + Unpin)) -> Result<RawResponse> {
    let mut bytes = Vec::new();
    let reading = tokio::time::timeout(RESPONSE_TIMEOUT, stream.read_to_end(&mut bytes)).await;
    // What came before a cut counts.
    drop(reading.context("the connection does not end")?);
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok(RawResponse {
        status: status.unwrap_or_default(),
        head: head.to_lowercase(),
        body: body.to_owned(),
    })
}
