//! TLS to a host: the system's authorities and those of its hosts.toml, a client certificate, or no verification.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::hosts::{HostsError, TlsFiles};
use crate::disk::read;

/// Bytes of one file of certificates or keys.
const MAX_FILE_BYTES: usize = 1 << 20;

/// Returns the system's authorities. One damaged file of theirs must not cost all of them.
pub(super) fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Makes the configuration of connections to a host with these files, beside the system's `roots`.
pub(super) fn config(files: &TlsFiles, roots: &RootCertStore) -> Result<ClientConfig, HostsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(Path::new("/"), error))?;
    let builder = match files.skip_verify {
        true => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unverified(provider))),
        false => builder.with_root_certificates(with(roots.clone(), &files.authorities)?),
    };
    // Of several client certificates the first is shown: one that a server chose among is beyond hosts.toml's users.
    match files.client.first() {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, key)) => builder
            .with_client_auth_cert(
                certificates(certificate)?,
                PrivateKeyDer::from_pem_slice(&read(key, MAX_FILE_BYTES)?)
                    .map_err(|error| failed(key, error))?,
            )
            .map_err(|error| failed(certificate, error)),
    }
}

fn with(mut roots: RootCertStore, authorities: &[PathBuf]) -> Result<RootCertStore, HostsError> {
    for path in authorities {
        for certificate in certificates(path)? {
            roots
                .add(certificate)
                .map_err(|error| failed(path, error))?;
        }
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, HostsError> {
    let content = read(path, MAX_FILE_BYTES)?;
    let all = CertificateDer::pem_slice_iter(&content)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| failed(path, error))?;
    match all.is_empty() {
        true => Err(failed(path, "it has no certificate")),
        false => Ok(all),
    }
}

fn failed(path: &Path, error: impl ToString) -> HostsError {
    HostsError::Tls {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

/// What `skip_verify` asks for: any certificate will do, as long as the server has its key.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
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
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
