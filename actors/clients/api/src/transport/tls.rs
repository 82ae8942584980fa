//! The TLS side of a connection: the trusted authorities and the client's identity.

use std::fmt;
use std::sync::Arc;

use http_proxy::BoxedStream;
use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How the server's certificate is verified.
pub(crate) enum Trust {
    /// It must be issued by one of these authorities.
    Roots(Arc<RootCertStore>),
    /// It is not verified (insecure-skip-tls-verify).
    Anybody,
}

/// The TLS settings of connections.
#[derive(Clone)]
pub(super) struct TlsContext {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl TlsContext {
    pub(super) fn new(
        trust: &Trust,
        name: ServerName<'static>,
        identity: Arc<dyn ResolvesClientCert>,
    ) -> Result<TlsContext, rustls::Error> {
        TlsContext::with_protocols(trust, name, identity, &[b"h2", b"http/1.1"])
    }

    /// For a proxy, whose CONNECT is one of HTTP/1.1.
    pub(super) fn for_proxy(
        trust: &Trust,
        name: ServerName<'static>,
    ) -> Result<TlsContext, rustls::Error> {
        let nobody = Arc::new(ClientIdentity(None));
        TlsContext::with_protocols(trust, name, nobody, &[b"http/1.1"])
    }

    fn with_protocols(
        trust: &Trust,
        name: ServerName<'static>,
        identity: Arc<dyn ResolvesClientCert>,
        protocols: &[&[u8]],
    ) -> Result<TlsContext, rustls::Error> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match trust {
            Trust::Roots(roots) => builder.with_root_certificates(Arc::clone(roots)),
            Trust::Anybody => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Unasked(provider))),
        };
        let mut config = builder.with_client_cert_resolver(identity);
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        // A resumed session would carry the identity of before.
        config.resumption = rustls::client::Resumption::disabled();
        Ok(TlsContext {
            connector: TlsConnector::from(Arc::new(config)),
            name,
        })
    }

    pub(super) async fn connect(
        &self,
        stream: BoxedStream,
    ) -> std::io::Result<TlsStream<BoxedStream>> {
        self.connector.connect(self.name.clone(), stream).await
    }
}

impl fmt::Debug for TlsContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls({:?})", self.name)
    }
}

/// One identity, or none, for all connections of its time.
#[derive(Debug)]
pub(super) struct ClientIdentity(pub(super) Option<Arc<CertifiedKey>>);

impl ResolvesClientCert for ClientIdentity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.clone()
    }

    fn has_certs(&self) -> bool {
        self.0.is_some()
    }
}

/// Believes any certificate, but not a signature that does not belong to it.
#[derive(Debug)]
struct Unasked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unasked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
