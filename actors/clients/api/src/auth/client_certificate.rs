//! The kubeconfig's own client certificate; its files are read again when they may have changed.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// How long a loaded certificate is used before its files are read again; upstream's client-go: five minutes.
const LOOKED_AT: Duration = Duration::from_mins(1);

/// The source of the certificate or of the key: inline data or a file.
#[derive(Clone)]
pub(crate) enum PemSource {
    Inline(Vec<u8>),
    File(PathBuf),
}

impl PemSource {
    pub(crate) fn read(&self) -> std::io::Result<Vec<u8>> {
        match self {
            PemSource::Inline(bytes) => Ok(bytes.clone()),
            PemSource::File(path) => std::fs::read(path),
        }
    }
}

/// The certificate and its key.
#[derive(Default)]
pub(crate) struct ClientCertificateSource(Option<CertificateCache>);

struct CertificateCache {
    certificate: PemSource,
    key: PemSource,
    now: Mutex<LoadedCertificate>,
}

/// The certificate and key that were read last, and when.
struct LoadedCertificate {
    text: (Vec<u8>, Vec<u8>),
    parsed: Arc<CertifiedKey>,
    at: Instant,
}

/// Why a certificate and key cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientCertificateError {
    #[error("cannot be read")]
    Unread(#[source] std::io::Error),
    #[error("a PEM certificate followed by the rest of its chain")]
    Certificate,
    #[error("a PEM private key")]
    Key,
    #[error("a private key that belongs to the certificate")]
    Mismatch,
}

impl ClientCertificateSource {
    pub(super) fn new(
        certificate: PemSource,
        key: PemSource,
        now: Instant,
    ) -> Result<ClientCertificateSource, ClientCertificateError> {
        let text = (
            certificate.read().map_err(ClientCertificateError::Unread)?,
            key.read().map_err(ClientCertificateError::Unread)?,
        );
        let parsed = parse(&text.0, &text.1)?;
        let now = Mutex::new(LoadedCertificate {
            text,
            parsed,
            at: now,
        });
        Ok(ClientCertificateSource(Some(CertificateCache {
            certificate,
            key,
            now,
        })))
    }

    /// The key as it is now. While its files are half written it is what it was.
    pub(crate) fn key(&self, now: Instant) -> Option<Arc<CertifiedKey>> {
        let kept = self.0.as_ref()?;
        let mut read = kept.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.duration_since(read.at) >= LOOKED_AT {
            read.at = now;
            if let (Ok(certificate), Ok(key)) = (kept.certificate.read(), kept.key.read())
                && (&certificate, &key) != (&read.text.0, &read.text.1)
                && let Ok(parsed) = parse(&certificate, &key)
            {
                read.text = (certificate, key);
                read.parsed = parsed;
            }
        }
        Some(Arc::clone(&read.parsed))
    }
}

/// Reads a chain and its key; both may come from the same text.
pub(crate) fn parse(
    certificate: &[u8],
    key: &[u8],
) -> Result<Arc<CertifiedKey>, ClientCertificateError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|_| ClientCertificateError::Certificate)?;
    if chain.is_empty() {
        return Err(ClientCertificateError::Certificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| ClientCertificateError::Key)?;
    let key = ring::sign::any_supported_type(&key).map_err(|_| ClientCertificateError::Key)?;
    let pair = CertifiedKey::new(chain, key);
    match pair.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
            Ok(Arc::new(pair))
        }
        Err(_) => Err(ClientCertificateError::Mismatch),
    }
}
