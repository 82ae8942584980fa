//! Certificates of clients. As upstream's, the TLS handshake accepts any, and a request with an invalid one is
//! answered 401.

use std::sync::Arc;

use anyhow::Context as _;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::authority::CertificateAuthority;
use crate::clock;
use crate::endpoints::request_info::UserInfo;

#[derive(Debug)]
pub(super) struct ClientVerifier {
    strict: Arc<dyn ClientCertVerifier>,
}

impl ClientVerifier {
    pub(super) fn new(
        authority: &CertificateAuthority,
        provider: &Arc<CryptoProvider>,
    ) -> anyhow::Result<ClientVerifier> {
        let mut roots = RootCertStore::empty();
        roots
            .add(authority.der())
            .context("cannot trust the authority")?;
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let strict = builder
            .allow_unauthenticated()
            .build()
            .context("cannot verify clients")?;
        Ok(ClientVerifier { strict })
    }

    /// Returns whose certificate it is, if it is good now.
    pub(super) fn user(
        &self,
        end: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
    ) -> Option<UserInfo> {
        let now = u64::try_from(clock::now().as_second()).ok()?;
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now));
        self.strict
            .verify_client_cert(end, intermediates, now)
            .ok()?;
        let (_, certificate) = X509Certificate::from_der(end).ok()?;
        let subject = certificate.subject();
        let text = |part: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            part.as_str().ok().map(str::to_string)
        };
        let name = subject
            .iter_common_name()
            .next()
            .and_then(text)
            .filter(|name| !name.is_empty())?;
        let groups = subject.iter_organization().filter_map(text).collect();
        Some(UserInfo {
            name,
            groups,
            ..UserInfo::default()
        })
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.strict.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.strict
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.strict
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.strict.supported_verify_schemes()
    }
}
