//! TLS without verification of the server: a container's certificate proves nothing to the node.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::io::InspectReader;

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
    ) -> Result<TlsStream<impl AsyncRead + AsyncWrite + Send + Unpin + use<>>, TlsError> {
        let broken = |why: String| TlsError::Handshake(why);
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| broken(error.to_string()))?;
        let connector = TlsConnector::from(Arc::clone(self.0.get_or_init(config)));
        let first = Arc::new(FirstBytes::default());
        let read = Arc::clone(&first);
        let stream = InspectReader::new(stream, move |bytes: &[u8]| read.keep(bytes));
        let shaken = connector.connect(name, stream).await;
        shaken.map_err(|error| match first.are_http() {
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

/// The first bytes that a server sent: one that speaks plain HTTP is recognised by them.
#[derive(Debug, Default)]
struct FirstBytes(Mutex<Vec<u8>>);

impl FirstBytes {
    const KEPT: usize = b"HTTP/".len();

    fn keep(&self, new: &[u8]) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = Self::KEPT - first.len();
        first.extend_from_slice(&new[..room.min(new.len())]);
    }

    fn are_http(&self) -> bool {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) == *b"HTTP/"
    }
}
