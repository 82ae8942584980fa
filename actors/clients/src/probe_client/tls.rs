//! TLS without verification of the server: a container's certificate proves nothing to the node.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Why the TLS handshake failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TlsError {
    #[error("http: server gave HTTP response to HTTPS client")]
    SpeaksHttp,
    #[error("tls: {0}")]
    Handshake(String),
}

/// The TLS settings, made when the first HTTPS target is probed.
#[derive(Debug, Clone, Default)]
pub(super) struct ProbeTls(Arc<OnceLock<Arc<ClientConfig>>>);

impl ProbeTls {
    pub(super) async fn connect(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<PrefixedStream>, TlsError> {
        let broken = |why: String| TlsError::Handshake(why);
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| broken(error.to_string()))?;
        let connector = TlsConnector::from(Arc::clone(self.0.get_or_init(config)));
        let handshake = connector
            .connect(name, PrefixedStream::new(stream))
            .into_fallible();
        handshake
            .await
            .map_err(|(error, heard)| match heard.first == *b"HTTP/" {
                true => TlsError::SpeaksHttp,
                false => broken(super::go_error_text(&error)),
            })
    }
}

fn config() -> Arc<ClientConfig> {
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&ring))
        .with_safe_default_protocol_versions()
        .expect("ring speaks every version that rustls does")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(ring)))
        .with_no_client_auth();
    Arc::new(config)
}

/// Accepts every certificate.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A stream that keeps its first five bytes: a server that speaks plain HTTP is recognised by them.
#[derive(Debug)]
pub(super) struct PrefixedStream {
    stream: TcpStream,
    first: [u8; 5],
    kept: usize,
}

impl PrefixedStream {
    fn new(stream: TcpStream) -> Self {
        PrefixedStream {
            stream,
            first: [0; 5],
            kept: 0,
        }
    }

    fn keep(&mut self, new: &[u8]) {
        let room = &mut self.first[self.kept..];
        let count = room.len().min(new.len());
        room[..count].copy_from_slice(&new[..count]);
        self.kept += count;
    }
}

impl AsyncRead for PrefixedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if self.kept < self.first.len() {
            self.keep(&buf.filled()[before..]);
        }
        polled
    }
}

impl AsyncWrite for PrefixedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
